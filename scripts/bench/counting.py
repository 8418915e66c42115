"""A store that counts what its calls would be as requests to S3."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from math import ceil

from buquet.clock import Clock
from buquet.store import Change, Conflict, Listed, Store, Stored
from buquet.store.base import PAGE

DELETED_AT_ONCE = 1000
"""How many keys one request deletes."""


class CountingStore:
    """Another store, whose calls are counted: a commit as the requests that it is on S3.

    Args:
        store: where the objects are.
        on_request: is told of each request; not of deletes, which wait for others.
    """

    def __init__(
        self, store: Store, on_request: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self.store = store
        self.clock: Clock = store.clock
        self._on_request = on_request
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def requests(self) -> Counter[str]:
        """Return how many requests there were of each kind; deletes as if they waited for all."""
        with self._lock:
            found = +self._counts
        deleted = found.pop("deleted", 0)
        return found + Counter(delete=ceil(deleted / DELETED_AT_ONCE))

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object."""
        self._count("get", key)
        return self.store.get(key, unless=unless)

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object."""
        self._count("put", key)
        return self.store.put(key, body, if_match=if_match, if_absent=if_absent)

    def commit(self, change: Change) -> str | Conflict:
        """Write the entries and the object, and delete the entries that are dropped."""
        for key in (*change.add, change.key):
            self._count("put", key)
        self._count_deleted(len(change.drop))
        return self.store.commit(change)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        keys = list(keys)
        self._count_deleted(len(keys))
        self.store.delete(keys)

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """List keys."""
        self._count("list", prefix)
        return self.store.list(prefix, after=after, limit=limit)

    def now(self) -> datetime:
        """Return the store's time."""
        return self.store.now()

    def latest(self) -> datetime:
        """Return the latest that the store's time may be."""
        return self.store.latest()

    def flush(self) -> None:
        """Delete what waits for that."""
        self.store.flush()

    def close(self) -> None:
        """Let go of connections."""
        self.store.close()

    def _count(self, kind: str, key: str) -> None:
        with self._lock:
            self._counts[kind] += 1
            self._on_request(kind, key)

    def _count_deleted(self, number: int) -> None:
        with self._lock:
            self._counts["deleted"] += number
