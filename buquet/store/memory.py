"""A store in memory: the twin for tests, as strict as S3."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from datetime import datetime

from buquet.clock import Clock, SystemClock
from buquet.store.base import PAGE, Change, Conflict, Listed, Stored, commit_in_steps


class MemoryStore:
    """Objects in a dict. Nothing outlives the process; every call is atomic."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._objects: dict[str, tuple[Stored, datetime]] = {}
        self._keys: list[str] = []  # code points sort as their UTF-8 bytes do
        self._etags = (f'"{n:x}"' for n in itertools.count(1))
        self._lock = threading.RLock()

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object; None if there is none, or if its etag is `unless`."""
        with self._lock:
            stored, _ = self._objects.get(key, (None, None))
        return None if stored is None or stored.etag == unless else stored

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object, on a condition if one is given; return its new etag."""
        with self._lock:
            old = self.get(key)
            if (if_absent and old) or (if_match and (old is None or old.etag != if_match)):
                return Conflict()
            if old is None:
                insort(self._keys, key)
            etag = next(self._etags)
            self._objects[key] = Stored(bytes(body), etag), self.now()
            return etag

    def commit(self, change: Change) -> str | Conflict:
        """Add the entries, put the object on its condition, drop the entries."""
        with self._lock:
            return commit_in_steps(self, change, self.delete)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects in bulk; missing ones are fine."""
        with self._lock:
            for key in keys:
                if self._objects.pop(key, None):
                    del self._keys[bisect_left(self._keys, key)]

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """Return the keys that start with `prefix` and sort after `after`, in order."""
        with self._lock:
            begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
            page = self._keys[begin : begin + min(limit, PAGE)]
            return [Listed(key, self._objects[key][1]) for key in page if key.startswith(prefix)]

    def now(self) -> datetime:
        """Return the clock's time."""
        return self.clock.now()

    def latest(self) -> datetime:
        """Return the clock's time: nothing about it is uncertain."""
        return self.clock.now()

    def flush(self) -> None:
        """Do nothing: commits delete at once."""

    def close(self) -> None:
        """Do nothing; the objects stay as long as the store does."""
