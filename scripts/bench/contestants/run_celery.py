"""celery on Redis: two prefork processes, a prefetch for short tasks, results ignored."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter

from redis import Redis

BROKER_KEYS = ("celery", "unacked")
"""Where the broker keeps tasks that wait, and those that are being worked on."""

TICK = 0.005


def left(redis: Redis) -> int:
    """Return how many tasks have not been done and acknowledged."""
    waiting, begun = BROKER_KEYS
    return int(redis.llen(waiting)) + int(redis.hlen(begun))


def drain(redis: Redis, ready: Path) -> float:
    """Have a worker do all; return the seconds from when it was ready."""
    command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--loglevel=ERROR"]
    more = ["--pool=prefork", "--concurrency=2", "--without-gossip", "--without-mingle"]
    watch = threading.Event()
    folder = Path(__file__).parent
    with subprocess.Popen([*command, *more], cwd=folder, stdout=subprocess.DEVNULL) as worker:
        try:
            while left(redis) or not ready.exists():
                if worker.poll() is not None:
                    raise RuntimeError("The worker has left.")
                watch.wait(TICK)
            ended = perf_counter()
        finally:
            worker.terminate()
    return ended - float(ready.read_text("utf-8"))


def counted(notes: Path) -> int:
    """Return how many tasks the processes of the worker have done, once they have left."""
    return sum(int(line) for line in notes.read_text("utf-8").split())


def main() -> None:
    """Print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("tasks", type=int)
    parser.add_argument("--socket", required=True)
    given = parser.parse_args()
    ready, done = given.path.with_suffix(".ready"), given.path.with_suffix(".done")
    os.environ.update(BENCH_SOCKET=given.socket, BENCH_READY=str(ready), BENCH_DONE=str(done))
    from celery_tasks import noop  # noqa: PLC0415 -- it reads where the broker is

    noop.delay(-1)  # connects
    redis = Redis(unix_socket_path=given.socket)
    redis.flushall()
    begun = perf_counter()
    for number in range(given.tasks):
        noop.delay(number)
    submitted = perf_counter() - begun
    drained = drain(redis, ready)
    print(json.dumps({"submit": submitted, "drain": drained, "done": counted(done)}))


main()
