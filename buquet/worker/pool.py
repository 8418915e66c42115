"""The threads that run handlers: started together, replaced one by one, awaited for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from buquet.clock import Clock
from buquet.worker.service import Vitals

LONGEST_WAIT = 1.0


class Pool:
    """The threads of a worker.

    Args:
        clock: the local clock.
        size: how many threads.
        serve: what each of them does.
        vitals: notices when one dies.
    """

    def __init__(self, clock: Clock, size: int, serve: Callable[[], None], vitals: Vitals) -> None:
        self.lost_threads = 0
        """How many threads have been given up."""
        self._size = size
        self._serve = serve
        self._vitals = vitals
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._numbers = 0
        self._may_go = clock.event()

    def start(self) -> None:
        """Start all threads."""
        for _ in range(self._size):
            self._start(self._serve)

    def replace(self, thread: threading.Thread, serve: Callable[[], None]) -> None:
        """Give a thread up and start another, which serves in its own way.

        Raises:
            RuntimeError: if the system has no more threads.
        """
        self._start(serve)
        self.lost_threads += 1
        self._forget(thread)

    def join(self, grace: timedelta) -> bool:
        """Wait until all threads have ended; return whether they have within the grace period."""
        with self._lock:
            if not self._threads:
                return True
        left = grace.total_seconds()
        # In short waits: a signal that comes to another thread is acted upon when this one wakes.
        while left > 0 and not self._may_go.wait(min(left, LONGEST_WAIT)):
            left -= LONGEST_WAIT
        with self._lock:
            return not self._threads

    def hurry(self) -> None:
        """End the wait of `join`."""
        self._may_go.set()

    def _start(self, serve: Callable[[], None]) -> None:
        def run() -> None:
            try:
                self._vitals.guard(serve)
            finally:
                self._forget(threading.current_thread())

        with self._lock:
            self._numbers += 1
            thread = threading.Thread(target=run, name=f"buquet-pool-{self._numbers}", daemon=True)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system has no more
            self._forget(thread)
            raise

    def _forget(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.discard(thread)
            if not self._threads:
                self._may_go.set()
