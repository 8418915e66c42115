"""How a handler says what is to become of its task: again, later, or never."""

import logging
import threading

from buquet import (
    PermanentError,
    RescheduleError,
    RetryableError,
    RetryPolicy,
    TaskContext,
    Worker,
    connect,
)

logging.getLogger("buquet").setLevel(logging.CRITICAL)  # it fails on purpose here
queue = connect("memory:")
worker = Worker(queue)


@worker.task("flaky")
def flaky(input: None, context: TaskContext) -> str:
    if context.attempt < 3:
        raise RetryableError("busy")  # any other exception does the same
    return f"attempt {context.attempt} did it"


@worker.task("hopeless")
def hopeless(input: None) -> None:
    raise PermanentError("no such customer")


@worker.task("patient")
def patient(input: None, context: TaskContext) -> str:
    if context.task.reschedule_count < 2:
        # Not ready yet. No attempt is used up, and the deadline moves along.
        raise RescheduleError(delay_seconds=0.1, extend_expiration_seconds=60)
    return f"put off {context.task.reschedule_count} times, attempt {context.attempt}"


quick = RetryPolicy(initial_seconds=0.1, factor=2, jitter=0)
tasks = [
    queue.submit("flaky", retry_policy=quick, max_retries=5),
    queue.submit("hopeless"),
    queue.submit("patient", ttl_seconds=60),
]
thread = threading.Thread(target=worker.run)
thread.start()
for task in queue.wait([task.id for task in tasks], timeout=10):
    print(task.task_type, task.status, task.output or task.last_error.partition(" (")[0])
print([revision.event for revision in queue.history(tasks[2].id)])
worker.stop()
thread.join()

# Output:
# flaky completed attempt 3 did it
# hopeless failed PermanentError: no such customer
# patient completed put off 2 times, attempt 1
# ['created', 'claimed', 'rescheduled', 'claimed', 'rescheduled', 'claimed', 'completed']
