"""A store that dies or fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from attrs import frozen

from buquet.clock import Clock
from buquet.store import Change, Conflict, Listed, Store, Stored
from buquet.store.base import PAGE, commit_in_steps

T = TypeVar("T")


class Crash(BaseException):
    """The process died. Nothing catches it, as nothing would survive."""


@frozen
class Call:
    """One call that reached the store."""

    op: str
    """`get`, `put`, `delete` or `list`."""
    key: str
    """The key, or the prefix of a listing; of a delete, the first key."""


@frozen
class Fault:
    """What is to happen at one call."""

    error: BaseException
    is_done: bool
    """Whether the call takes effect before the error."""


class FaultyStore:
    """Another store, with faults at the calls that a test names.

    A commit is done in its steps, so that each is a call. Calls are numbered from 1; asking for the
    time, `flush` and `close` are not calls. After a crash every call crashes: the process is dead.

    Example:
        >>> from buquet.store import MemoryStore
        >>> store = FaultyStore(MemoryStore())
        >>> store.die_after(1)
        >>> store.put("key", b"")
        Traceback (most recent call last):
        buquet.testing.faults.Crash
        >>> store.calls
        [Call(op='put', key='key')]
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock: Clock = store.clock
        self.calls: list[Call] = []
        self.is_dead = False
        self._faults: dict[int, Fault] = {}

    def die_before(self, n: int) -> None:
        """Have the process die when it makes call `n`; the call has no effect."""
        self._faults[n] = Fault(Crash(), is_done=False)

    def die_after(self, n: int) -> None:
        """Have the process die when call `n` has taken effect."""
        self._faults[n] = Fault(Crash(), is_done=True)

    def fail_before(self, n: int, error: Exception) -> None:
        """Have call `n` raise an error and do nothing."""
        self._faults[n] = Fault(error, is_done=False)

    def fail_after(self, n: int, error: Exception) -> None:
        """Have call `n` take effect and raise an error all the same."""
        self._faults[n] = Fault(error, is_done=True)

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object."""
        return self._call("get", key, lambda: self.store.get(key, unless=unless))

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object."""
        return self._call(
            "put",
            key,
            lambda: self.store.put(key, body, if_match=if_match, if_absent=if_absent),
        )

    def commit(self, change: Change) -> str | Conflict:
        """Commit in steps, each of them a call."""
        return commit_in_steps(self, change, self.delete)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        keys = list(keys)
        if keys:
            self._call("delete", keys[0], lambda: self.store.delete(keys))

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """List keys."""
        return self._call("list", prefix, lambda: self.store.list(prefix, after=after, limit=limit))

    def now(self) -> datetime:
        """Return the store's time."""
        self._crash_if_dead()
        return self.store.now()

    def latest(self) -> datetime:
        """Return the latest that the store's time may be."""
        self._crash_if_dead()
        return self.store.latest()

    def flush(self) -> None:
        """Flush the store, if the process lives."""
        self._crash_if_dead()
        self.store.flush()

    def close(self) -> None:
        """Close the store; one may do that after a crash, too."""
        self.store.close()

    def _call(self, op: str, key: str, act: Callable[[], T]) -> T:
        self._crash_if_dead()
        self.calls.append(Call(op, key))
        fault = self._faults.pop(len(self.calls), None)
        if fault is None:
            return act()
        if fault.is_done:
            act()
        self.is_dead = isinstance(fault.error, Crash)
        raise fault.error

    def _crash_if_dead(self) -> None:
        if self.is_dead:
            raise Crash
