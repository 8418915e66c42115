"""Set deadlines: a task that nobody has started by then never runs."""

from datetime import timedelta

from buquet import TaskContext, TaskExpired, TaskStatus, Worker, connect

queue = connect("memory:")

# The deadline counts from when the task is due, here in an hour.
later = queue.submit("reminder", "stretch", delay=timedelta(hours=1), ttl=timedelta(minutes=5))
print("the window is", later.expires_at - later.available_at)

in_time = queue.submit("reminder", "lunch", ttl_seconds=60)
too_late = queue.submit("reminder", "breakfast", ttl_seconds=0)

worker = Worker(queue)


@worker.task("reminder")
def remind(input: str, context: TaskContext) -> None:
    left = context.remaining()
    print(input, "with time left:", left is not None and left > timedelta(seconds=30))


worker.drain()

for task in queue.wait([in_time.id, too_late.id], timeout=5):
    print(task.input, task.status)

# Expired is neither failed nor cancelled. Expired tasks can be listed, and have their own error.
print([task.input for task in queue.list(status=TaskStatus.Expired)])
try:
    queue.get(too_late.id).result()
except TaskExpired:
    print("there is no result")

# Still wanted? Submit it again, as a new task with a new deadline.
again = queue.resubmit(too_late.id, ttl_seconds=60)
print(again.input, again.status)

# Output:
# the window is 0:05:00
# lunch with time left: True
# lunch completed
# breakfast expired
# ['breakfast']
# there is no result
# breakfast pending
