"""Counts what becomes of tasks through a queue."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from buquet.client.queue import Queue
from buquet.core.batch import Commit


class Tally:
    """Counts the changes that this process writes.

    Args:
        by: counts only those of this worker.
    """

    def __init__(self, by: str | None = None) -> None:
        self.events: Counter[str] = Counter()
        self._by = by
        self._claimed: set[str] = set()
        self._lock = threading.Lock()

    @property
    def claimed(self) -> int:
        """How many tasks are claimed at present."""
        return len(self._claimed)

    def on_commit(self, commit: Commit) -> None:
        """Take note of a commit."""
        for task, revision in commit.revisions:
            with self._lock:
                if revision.event == "claimed" and revision.by == self._by:
                    self._claimed.add(task.id)
                else:
                    self._claimed.discard(task.id)
                if self._by in (None, revision.by):
                    self.events[revision.event] += 1


@contextmanager
def counting(queue: Queue, by: str | None = None) -> Iterator[Tally]:
    """Count for a while."""
    tally = Tally(by)
    queue.ledger.observers.append(tally.on_commit)
    try:
        yield tally
    finally:
        queue.ledger.observers.remove(tally.on_commit)
