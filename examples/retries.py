"""How a handler decides what happens to its task: retry it, put it off, or fail it."""

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

logging.getLogger("buquet").setLevel(logging.CRITICAL)  # the failures here are on purpose
queue = connect("memory:")
worker = Worker(queue)


@worker.task("flaky")
def flaky(input: None, context: TaskContext) -> str:
    if context.attempt < 3:
        raise RetryableError("busy")  # as any other exception
    return f"attempt {context.attempt} did it"


@worker.task("hopeless")
def hopeless(input: None) -> None:
    raise PermanentError("no such customer")


@worker.task("patient")
def patient(input: None, context: TaskContext) -> str:
    if context.task.reschedule_count < 2:
        # Not ready yet. This uses up no attempt, and moves the deadline.
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
