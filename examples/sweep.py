"""Sweep without a worker, as cron does with `* * * * * buquet sweep`."""

from buquet import Sweeper, TaskStatus, connect

queue = connect("memory:")
queue.submit_many([("fax", number) for number in range(20)], ttl_seconds=0)
queue.submit("letter", ttl_seconds=3600)

report = Sweeper(queue).sweep_once()
print("expired:", report.expired)
for task_type, backlog in sorted(report.backlog.items()):
    print(f"seen: {backlog.ready} {task_type}")

# Sweeps may overlap with each other and with workers: each task expires once.
print("expired by the next:", Sweeper(queue).sweep_once().expired)

print(len(list(queue.list(status=TaskStatus.EXPIRED))), "expired")
print([task.task_type for task in queue.list(status=TaskStatus.PENDING)], "pending")

# Output:
# expired: 20
# seen: 20 fax
# seen: 1 letter
# expired by the next: 0
# 20 expired
# ['letter'] pending
