"""The application that celery's producer and its worker share."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter
from typing import Any

from celery import Celery
from celery.signals import task_success, worker_process_shutdown, worker_ready

app = Celery("celery_tasks", broker=f"redis+socket://{os.environ['BENCH_SOCKET']}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,  # as its guide to optimizing advises for short tasks
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(number: int) -> None:
    """Do nothing."""


done = 0
"""How many tasks this process of the worker has done."""


@task_success.connect
def count(**_: Any) -> None:
    """Count a task whose body has returned."""
    global done  # noqa: PLW0603 -- signals are told to functions
    done += 1


@worker_process_shutdown.connect
def note_done(**_: Any) -> None:
    """Note how many there were: at the end, so that it costs nothing before."""
    with Path(os.environ["BENCH_DONE"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{done}\n")


@worker_ready.connect
def note_ready(**_: Any) -> None:
    """Note when the worker begins to consume."""
    Path(os.environ["BENCH_READY"]).write_text(str(perf_counter()), "utf-8")
