"""persist-queue: a `SQLiteAckQueue`; it has no workers, so a loop gets and acknowledges."""

from __future__ import annotations

import argparse
import json
from time import perf_counter

from persistqueue import SQLiteAckQueue


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("tasks", type=int)
    given = parser.parse_args()
    queue = SQLiteAckQueue(given.path)

    begun = perf_counter()
    for number in range(given.tasks):
        queue.put({"task": "noop", "input": number})
    submitted = perf_counter() - begun

    begun = perf_counter()
    for _ in range(given.tasks):
        queue.ack(queue.get(block=False))
    drained = perf_counter() - begun
    done = queue.acked_count()
    print(json.dumps({"submit": submitted, "drain": drained, "done": done}))


main()
