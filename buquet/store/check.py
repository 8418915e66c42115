"""Having a store prove that it has what buquet's safety rests on."""

from __future__ import annotations

import secrets
from contextlib import suppress

from buquet.errors import StoreError, StoreUnsuitable
from buquet.store.base import Conflict, Store

PREFIX = "locks/check-"

CREATING = "creating only what does not exist (If-None-Match: *)"
UPDATING = "updating only what is unchanged (If-Match)"


def check_store(store: Store) -> None:
    """Write, list and delete one object, and see that the store keeps to its conditions.

    Some stores take the conditional headers and ignore them; two workers would own one task there.

    Raises:
        StoreUnsuitable: if it does not; names the feature that is missing.
        StoreError: if the store can't be used at all.
    """
    key = f"{PREFIX}{secrets.token_hex(8)}"
    try:
        _check_key(store, key)
    except BaseException:
        with suppress(StoreError):  # what was found first matters more
            store.delete([key])
        raise
    store.delete([key])


def _check_key(store: Store, key: str) -> None:
    first = store.put(key, b"1", if_absent=True)
    _require(
        isinstance(first, str),
        CREATING,
        f"It refused to create {key!r}, where there was nothing.",
    )
    _require(
        isinstance(store.put(key, b"2", if_absent=True), Conflict),
        CREATING,
        "It wrote over an object that was to be created only if it did not exist.",
    )
    second = store.put(key, b"3", if_match=str(first))
    _require(
        isinstance(second, str),
        UPDATING,
        f"It refused to update an object on the etag that it had just given it, {first}.",
    )
    _require(
        isinstance(store.put(key, b"4", if_match=str(first)), Conflict),
        UPDATING,
        f"It updated an object on the etag {first}, which was no longer that of the object.",
    )
    stored = store.get(key)
    _require(
        stored is not None and (stored.body, stored.etag) == (b"3", second),
        "reading what was just written",
        "It gave another object than the one that it had just stored.",
    )
    _require(
        [listed.key for listed in store.list(key)] == [key],
        "listing what was just written",
        "Its listing did not show an object that it had just stored.",
    )


def _require(is_so: bool, feature: str, detail: str) -> None:
    if not is_so:
        raise StoreUnsuitable(feature, f"{detail} Use another store, or a newer version of it.")
