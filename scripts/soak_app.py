"""What the workers of the soak run: `buquet worker scripts.soak_app:worker`."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from buquet import PermanentError, RescheduleError, RetryableError, TaskContext, Worker, connect

queue = connect()
worker = Worker(
    queue,
    threads=4,
    poll_min=timedelta(seconds=0.05),
    poll_max=timedelta(seconds=0.5),
    sweep_interval=timedelta(seconds=2),
)


@worker.task("work")
def work(input: dict[str, Any], context: TaskContext) -> int:
    """Take a while, and then do as the input says."""
    queue.store.clock.sleep(input["seconds"])
    match input["ending"]:
        case "retry" if context.attempt == 1:
            raise RetryableError("as agreed")
        case "reschedule" if context.task.reschedule_count == 0:
            raise RescheduleError(delay_seconds=random.random())
        case "fail":
            raise PermanentError("as agreed")
    return int(input["number"])
