"""litequeue: it has no workers, so a loop pops and marks as done."""

from __future__ import annotations

import argparse
import json
from time import perf_counter

from litequeue import LiteQueue


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("tasks", type=int)
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL"), required=True)
    given = parser.parse_args()
    queue = LiteQueue(given.path)
    queue.conn.execute(f"PRAGMA synchronous = {given.synchronous}")

    begun = perf_counter()
    for number in range(given.tasks):
        queue.put(json.dumps({"task": "noop", "input": number}))
    submitted = perf_counter() - begun

    done = 0
    begun = perf_counter()
    while (message := queue.pop()) is not None:
        json.loads(message.data)
        queue.done(message.message_id)
        done += 1
    drained = perf_counter() - begun
    print(json.dumps({"submit": submitted, "drain": drained, "done": done}))


main()
