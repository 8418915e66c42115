"""Cancelling: at once while a task is pending, by request while it runs."""

import threading
from datetime import timedelta

from buquet import CannotCancel, TaskContext, Worker, connect

queue = connect("memory:")
# A request is seen at a heartbeat, every third of the lease: 20 s unless set; short here.
worker = Worker(queue, lease=timedelta(seconds=1))
begun = threading.Event()
pause = threading.Event()


@worker.task("long")
def long(input: None, context: TaskContext) -> None:
    begun.set()
    while True:
        context.raise_if_cancelled()  # where it is safe to give in
        pause.wait(0.05)


pending = queue.submit("long", delay=timedelta(hours=1))
print("pending:", queue.cancel(pending.id).status)

running = queue.submit("long")
thread = threading.Thread(target=worker.run)
thread.start()
begun.wait(5)
asked = queue.cancel(running.id, by="ann")
print("running:", asked.status, "- asked to give in:", asked.cancel_requested)

ended = queue.wait(running.id, timeout=10)
print("then:", ended.status, "by", ended.cancelled_by)

queue.cancel(running.id)  # twice is fine
expired = queue.submit("long", ttl_seconds=0)
queue.wait(expired.id, timeout=10)
try:
    queue.cancel(expired.id)
except CannotCancel as error:
    print("too late:", error.status)

worker.stop()
thread.join()

# Output:
# pending: cancelled
# running: running - asked to give in: True
# then: cancelled by ann
# too late: expired
