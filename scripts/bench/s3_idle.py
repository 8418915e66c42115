"""What a worker with nothing to do costs, with everything on."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

from buquet import Queue, Worker
from buquet.store import MemoryStore
from buquet.testing import FakeClock, FaultyStore

LOOPS = 4
"""Poller, heartbeat, watchdog, sweeper: they rest together, and then time may pass."""

HOUR = 3600
MONTH = 30 * 24
"""In hours."""


def idle_hour() -> Counter[str]:
    """Let a worker be idle for an hour of a fake clock; return its calls of the store.

    Each of them is one request on S3.
    """
    clock = FakeClock()
    store = FaultyStore(MemoryStore(clock))
    queue = Queue(store)
    queue.submit("job", delay=timedelta(days=1))
    worker = Worker(queue)
    worker.task("job")(_do_nothing)
    working = threading.Thread(target=worker.run)
    working.start()
    _pass(clock, 60)  # until the pauses between polls have grown to the ceiling
    before = len(store.calls)
    _pass(clock, HOUR)
    calls = Counter(call.op for call in store.calls[before:])
    worker.stop()
    working.join()
    return calls


def _do_nothing(input: None) -> None:
    pass


def _pass(clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.await_waiters(LOOPS)
        clock.advance(seconds=1)
    clock.await_waiters(LOOPS)
