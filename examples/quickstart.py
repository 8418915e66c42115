"""Submit a task, run it, and read its result, on a SQLite file."""

import tempfile
from pathlib import Path

from buquet import Worker, connect

folder = tempfile.TemporaryDirectory()
queue = connect(path=Path(folder.name) / "queue.db")  # or connect("s3://my-bucket/prefix")

# --- in the producer

task = queue.submit("greet", {"name": "Ann"})
print(task.status)

# --- in the worker, usually another process

worker = Worker(queue, threads=2)


@worker.task("greet")
def greet(input: dict[str, str]) -> str:
    return f"Hello, {input['name']}!"


worker.run(burst=True)  # without burst it runs until it is stopped

# --- back in the producer

task = queue.wait(task.id, timeout=5)
print(task.status, task.output)
for revision in queue.history(task.id):
    print(revision.version, revision.event)

queue.close()
folder.cleanup()

# Output:
# pending
# completed Hello, Ann!
# 1 created
# 2 claimed
# 3 completed
