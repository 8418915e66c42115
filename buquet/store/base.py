"""What a store is: bytes under keys, with etags and conditions. It has never heard of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from attrs import field, frozen

from buquet.clock import Clock
from buquet.shield import shielded

COMMIT_TIME_LIMIT = 300.0
"""Seconds after which a writer gives up a commit: pollers rely on it (docs/protocol.md)."""

PAGE = 1000
"""How many keys a LIST gives at the most."""


@frozen
class Stored:
    """An object: its bytes, and the etag that says which version of it this is."""

    body: bytes
    etag: str


@frozen
class Listed:
    """A key in a listing, and when its object was last written (store's clock)."""

    key: str
    modified: datetime


@frozen
class Conflict:
    """A conditional write that was refused: the object is not as the writer thought."""


@frozen
class Change:
    """One commit: entries to add, one conditional put, entries to drop."""

    key: str
    body: bytes
    if_match: str | None
    """The etag of what is to be replaced; None to create what must not exist."""
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    begun: float = field(kw_only=True)
    """When the change was worked out, on the store's `clock.monotonic`."""


class Store(Protocol):
    """Where objects are kept.

    Every method raises `StoreUnavailable` when the store does not answer, `StoreAccessDenied` when
    it refuses, `StoreUnsuitable` when it lacks a feature; a conditional write whose fate is not
    known raises `StoreUnclear`. No exception of another library gets out.
    """

    clock: Clock
    """The local clock: for waiting, never for deciding."""

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object; None if there is none, or if its etag is `unless`."""

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object, on a condition if one is given; return its new etag."""

    def commit(self, change: Change) -> str | Conflict:
        """Add the entries, put the object on its condition, drop the entries: in that order, or at once.

        A crash in between, or a conflict, may leave too many entries, never too few.
        """  # noqa: E501 -- one sentence

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects in bulk; missing ones are fine."""

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """Return the keys that start with `prefix` and sort after `after`, in order of their UTF-8 bytes.

        Fewer than `limit` means that there are no more. `limit` is at most 1,000.
        """  # noqa: E501 -- one sentence

    def now(self) -> datetime:
        """Return the store's time."""

    def latest(self) -> datetime:
        """Return the latest that the store's time may be: at least `now()`."""

    def flush(self) -> None:
        """Delete what commits have dropped and has not been deleted yet."""

    def close(self) -> None:
        """Flush, and let go of connections; the store can be used again."""


def commit_in_steps(
    store: Store, change: Change, drop: Callable[[Sequence[str]], None]
) -> str | Conflict:
    """Commit on a store that has no transactions.

    Index first, so that what is decided can be found; tidy last, so that it can be found till then.
    """
    for key in change.add:
        store.put(key, b"")
    if store.clock.monotonic() - change.begun > COMMIT_TIME_LIMIT:
        return Conflict()
    etag = store.put(
        change.key, change.body, if_match=change.if_match, if_absent=change.if_match is None
    )
    if isinstance(etag, str) and change.drop:
        drop(change.drop)
    return etag


def walk(store: Store, prefix: str, *, after: str = "") -> Iterator[Listed]:
    """Walk all keys under a prefix, page by page."""
    while True:
        with shielded():
            page = store.list(prefix, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key
