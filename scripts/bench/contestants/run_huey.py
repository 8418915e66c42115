"""huey on SQLite: `SqliteHuey`, and a consumer with worker threads."""

from __future__ import annotations

import argparse
import json
import logging
import threading
from time import perf_counter

from huey import SqliteHuey


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("tasks", type=int)
    parser.add_argument("--fsync", choices=("on", "off"), required=True)
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    logging.getLogger("huey").setLevel(logging.WARNING)
    huey = SqliteHuey(filename=given.path, fsync=given.fsync == "on")
    done = 0
    lock = threading.Lock()
    all_done = threading.Event()
    ended = 0.0

    @huey.task()
    def noop(number: int) -> None:
        nonlocal done, ended
        with lock:
            done += 1
            if done == given.tasks:
                ended = perf_counter()
                all_done.set()

    begun = perf_counter()
    for number in range(given.tasks):
        noop(number)
    submitted = perf_counter() - begun

    consumer = huey.create_consumer(workers=given.workers, worker_type="thread", periodic=False)
    begun = perf_counter()
    consumer.start()
    if not all_done.wait(600):
        raise TimeoutError(f"{done} of {given.tasks} tasks were done.")
    consumer.stop(graceful=True)
    print(json.dumps({"submit": submitted, "drain": ended - begun, "done": done}))


main()
