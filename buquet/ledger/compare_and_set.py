"""Compare-and-set: a write on the condition that the object is still as it was read.

The store may say no, or give no clear answer. Then the object shows what became of the write:

- it holds what was written: the write took effect, whatever the answer was;
- it has changed otherwise, or is gone: others were faster, and the race is lost;
- it is as it was: the store refuses the write. The same write is sent again a few times, which is
  harmless, since at most one copy of it meets its condition. Then the store's error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from attrs import frozen

from buquet.errors import BuquetError, DamagedObject, StoreError, StoreUnclear
from buquet.store import Conflict, Store, Stored


class Versioned(Protocol):
    """What is in the store, and the etag that says which version of it this is."""

    @property
    def etag(self) -> str:
        """Changes with each write."""


class Tries(Protocol):
    """Counts tries from 0, with waits in between that grow and are left to chance."""

    def __call__(self, most: int, *, within: float = ...) -> Iterable[int]:
        """Give up after so many tries, or so many seconds."""


SENDS = 5
"""How often a write is sent that the store refuses although nobody else has written."""

SEND_WITHIN = 5.0
"""Seconds after which it is not sent again: the store has waited and tried again by itself."""

T = TypeVar("T", bound=Versioned)


@frozen
class Lost(Generic[T]):
    """A write that did not take effect, since others were faster."""

    current: T | None
    """What is there instead; None if there is nothing."""


def compare_and_set(
    key: str,
    send: Callable[[], str | Conflict],
    look: Callable[[], T | None],
    *,
    expected: str | None,
    is_mine: Callable[[T], bool],
    tries: Tries,
) -> str | T | Lost[T]:
    """Write, if the object is as expected.

    Args:
        key: names the object, for messages.
        send: sends the write, on its condition.
        look: reads the object.
        expected: the etag that the object must have; None if there must be none.
        is_mine: returns whether an object holds what was written.
        tries: counts tries.

    Returns:
        The new etag; or the object, if it had to be read to see that the write took effect; or
        `Lost`.

    Raises:
        StoreUnclear: if nobody can tell whether it took effect, or will.
        StoreError: if it did not: the store refuses it.
    """
    refusal: StoreUnclear | None = None
    for _ in tries(SENDS, within=SEND_WITHIN):
        try:
            answer = send()
        except StoreUnclear as error:
            refusal = error
        except StoreError as error:
            if refusal is None:
                raise
            raise StoreUnclear(f"{refusal} Then: {error}") from error
        else:
            if isinstance(answer, str):
                return answer
            refusal = StoreUnclear(
                f"The store refused to write {key!r} because it has changed, and it has not."
            )
        current = _seen(look)
        if current is not None and is_mine(current):
            return current
        if (current and current.etag) != expected:
            return Lost(current)
    assert refusal is not None  # noqa: S101 -- it is sent at least once
    raise refusal


def put_if_unchanged(
    store: Store, key: str, body: bytes, *, expected: str | None, tries: Tries
) -> str | Lost[Stored]:
    """Put an object in the place of one with the etag `expected`, or where there must be none.

    Returns:
        The new etag, or `Lost`.

    Raises:
        StoreUnclear: if nobody can tell whether it took effect, or will.
        StoreError: if it did not: the store refuses it.
    """
    result = compare_and_set(
        key,
        lambda: store.put(key, body, if_match=expected, if_absent=expected is None),
        lambda: store.get(key),
        expected=expected,
        is_mine=lambda stored: stored.body == body,
        tries=tries,
    )
    return result.etag if isinstance(result, Stored) else result


def _seen(look: Callable[[], T | None]) -> T | None:
    try:
        return look()
    except DamagedObject:
        raise
    except BuquetError as error:  # a producer may have no right to read, for example
        raise StoreUnclear(f"A write got no clear answer, and then: {error}") from error
