"""rq on Redis: a `SimpleWorker`, which forks no process for each job, in burst mode."""

from __future__ import annotations

import argparse
import json
from time import perf_counter

from redis import Redis
from rq import Queue, SimpleWorker


def noop(number: int) -> None:
    """Do nothing."""


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("tasks", type=int)
    parser.add_argument("--socket", required=True)
    given = parser.parse_args()
    redis = Redis(unix_socket_path=given.socket)
    redis.flushall()
    queue = Queue(connection=redis)

    begun = perf_counter()
    for number in range(given.tasks):
        queue.enqueue("run_rq.noop", number, result_ttl=0)
    submitted = perf_counter() - begun

    worker = SimpleWorker([queue], connection=redis)
    begun = perf_counter()
    worker.work(burst=True, logging_level="WARNING")
    drained = perf_counter() - begun
    worker.refresh()
    done = worker.successful_job_count
    print(json.dumps({"submit": submitted, "drain": drained, "done": done}))


if __name__ == "__main__":
    main()
