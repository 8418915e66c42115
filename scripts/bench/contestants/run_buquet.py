"""buquet on SQLite, as shipped: `submit` or `submit_many`, then a worker of default settings."""

from __future__ import annotations

import argparse
import json
import threading
from time import perf_counter

from buquet import Queue, Task, TaskStatus, Worker, connect


def noop(input: int) -> None:
    """Do nothing."""


def submit(queue: Queue, tasks: int, *, many: bool) -> None:
    """Submit so many tasks."""
    if many:
        queue.submit_many([("noop", number) for number in range(tasks)])
        return
    for number in range(tasks):
        queue.submit("noop", number)


def drain(queue: Queue, tasks: int) -> float:
    """Run a worker until it has written that all have completed; return the seconds."""
    worker = Worker(queue)
    worker.task("noop")(noop)
    completed = 0
    lock = threading.Lock()
    begun = perf_counter()
    ended = begun

    @worker.on_success
    def count(task: Task) -> None:
        nonlocal completed, ended
        with lock:
            completed += 1
            if completed == tasks:
                ended = perf_counter()
                worker.stop()

    worker.run()
    return ended - begun


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("tasks", type=int)
    parser.add_argument("--many", action="store_true")
    given = parser.parse_args()
    with connect(path=given.path) as queue:
        begun = perf_counter()
        submit(queue, given.tasks, many=given.many)
        submitted = perf_counter() - begun
        drained = drain(queue, given.tasks)
        done = sum(1 for _ in queue.list(TaskStatus.COMPLETED))
    print(json.dumps({"submit": submitted, "drain": drained, "done": done}))


main()
