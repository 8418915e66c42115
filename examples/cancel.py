"""Cancel tasks: a pending one at once, a running one by asking its handler to stop."""

import threading
from datetime import timedelta

from buquet import CannotCancel, TaskContext, Worker, connect

queue = connect("memory:")
# The worker sees a request at its next heartbeat, every third of the lease. Short here.
worker = Worker(queue, lease=timedelta(seconds=1))
begun = threading.Event()
pause = threading.Event()


@worker.task("long")
def long(input: None, context: TaskContext) -> None:
    begun.set()
    while True:
        context.raise_if_cancelled()  # a point where it is safe to stop
        pause.wait(0.05)


pending = queue.submit("long", delay=timedelta(hours=1))
print("pending:", queue.cancel(pending.id).status)

running = queue.submit("long")
thread = threading.Thread(target=worker.run)
thread.start()
begun.wait(5)
asked = queue.cancel(running.id, by="ann")
print("running:", asked.status, "- asked to stop:", asked.cancel_requested)

ended = queue.wait(running.id, timeout=10)
print("then:", ended.status, "by", ended.cancelled_by)

queue.cancel(running.id)  # cancelling twice is harmless
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
# running: running - asked to stop: True
# then: cancelled by ann
# too late: expired
