"""The rules that every store must keep, as tests.

Subclass `StoreConformance` where pytest finds it, and give it a `store` fixture:

```python
class TestMyStore(StoreConformance):
    @pytest.fixture
    def store(self):
        return MyStore()
```

The store may hold other keys; the tests use only those under a random prefix.
"""

# ruff: noqa: D102, S101 -- these are tests: their names say it, and they assert

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from buquet.store import Change, Conflict, Store, check_store
from buquet.store.base import COMMIT_TIME_LIMIT, PAGE

T = TypeVar("T")

THREADS = 4  # some servers make contenders for one key wait for seconds

ODD_KEYS = [
    "a b",
    "a%2Fb",
    "a+b",
    "a=b&c?d#e",
    "a'b\"c",
    "a:b;c,d@e",
    "a<b>c&amp;",
    "a~b!c*(d)$",
    "a|b^c`d",  # no backslash: some servers take it for a slash
    "[a]{b}",
    "ä/ß/€",
    "任务",
    "🧺",
]


class StoreConformance:
    """Tests that pass on every store."""

    def test_an_object_comes_back_as_it_was_written(self, store: Store) -> None:
        key = new_key()

        etag = store.put(key, b"\x00\xff body")

        stored = store.get(key)
        assert stored is not None
        assert (stored.body, stored.etag) == (b"\x00\xff body", etag)

    def test_an_empty_body_is_an_object(self, store: Store) -> None:
        key = new_key()

        store.put(key, b"")

        stored = store.get(key)
        assert stored is not None
        assert stored.body == b""

    def test_a_missing_object_is_none(self, store: Store) -> None:
        assert store.get(new_key()) is None
        assert store.get(new_key(), unless='"some-etag"') is None

    def test_an_object_is_not_read_again_while_it_has_the_etag_that_one_has(
        self, store: Store
    ) -> None:
        key = new_key()
        first = written(store.put(key, b"1"))

        assert store.get(key, unless=first) is None

        store.put(key, b"2")
        stored = store.get(key, unless=first)
        assert stored is not None
        assert stored.body == b"2"

    def test_creating_refuses_what_exists(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"mine", if_absent=True)

        outcome = store.put(key, b"theirs", if_absent=True)

        assert outcome == Conflict()
        assert body_of(store, key) == b"mine"

    def test_what_was_deleted_can_be_created(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"1", if_absent=True)
        store.delete([key])

        outcome = store.put(key, b"2", if_absent=True)

        assert isinstance(outcome, str)

    def test_updating_takes_the_etag_that_is_current(self, store: Store) -> None:
        key = new_key()
        first = written(store.put(key, b"1"))

        second = written(store.put(key, b"2", if_match=first))

        assert second != first
        assert body_of(store, key) == b"2"

    def test_updating_refuses_a_stale_etag(self, store: Store) -> None:
        key = new_key()
        first = written(store.put(key, b"1"))
        store.put(key, b"2", if_match=first)

        outcome = store.put(key, b"3", if_match=first)

        assert outcome == Conflict()
        assert body_of(store, key) == b"2"

    def test_updating_what_is_gone_is_a_lost_race(self, store: Store) -> None:
        key = new_key()
        etag = written(store.put(key, b"1"))
        store.delete([key])

        outcome = store.put(key, b"2", if_match=etag)

        assert outcome == Conflict()
        assert store.get(key) is None

    def test_writing_without_a_condition_replaces(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"1")

        store.put(key, b"2")

        assert body_of(store, key) == b"2"

    def test_of_many_who_create_one_wins(self, store: Store) -> None:
        key = new_key()

        outcomes = at_once(lambda n: store.put(key, str(n).encode(), if_absent=True))

        winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, str)]
        assert len(winners) == 1
        assert body_of(store, key) == str(winners[0]).encode()

    def test_of_many_who_update_one_wins(self, store: Store) -> None:
        key = new_key()
        etag = written(store.put(key, b"start"))

        outcomes = at_once(lambda n: store.put(key, str(n).encode(), if_match=etag))

        winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, str)]
        assert len(winners) == 1
        assert body_of(store, key) == str(winners[0]).encode()

    def test_no_update_is_lost_under_contention(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"0")

        at_once(lambda _: increment(store, key))

        assert body_of(store, key) == str(THREADS).encode()

    def test_deleting_what_is_missing_is_fine(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"")

        store.delete([new_key(), key])
        store.delete([])

        assert store.get(key) is None

    def test_a_listing_has_the_keys_under_a_prefix_in_order(self, store: Store) -> None:
        prefix = new_key()
        # No "a-" beside "a/1": some servers sort part by part. Keys of buquet sort alike both ways.
        for name in ("b", "a/2", "a/1", "a0", "B"):
            store.put(f"{prefix}/{name}", b"")
        store.put(f"{prefix}0", b"")

        keys = [listed.key for listed in store.list(f"{prefix}/")]

        assert keys == [f"{prefix}/{name}" for name in ("B", "a/1", "a/2", "a0", "b")]

    def test_a_listing_goes_on_after_a_key(self, store: Store) -> None:
        prefix = new_key()
        for name in "abcd":
            store.put(f"{prefix}/{name}", b"")

        keys = [listed.key for listed in store.list(prefix, after=f"{prefix}/b", limit=1)]

        assert keys == [f"{prefix}/c"]

    def test_a_listing_may_start_after_a_key_that_is_not_there(self, store: Store) -> None:
        prefix = new_key()
        store.put(f"{prefix}/b", b"")

        assert [each.key for each in store.list(prefix, after=f"{prefix}/a")] == [f"{prefix}/b"]
        assert store.list(prefix, after=f"{prefix}/c") == []
        assert [each.key for each in store.list(prefix, after="!")] == [f"{prefix}/b"]

    def test_a_listing_tells_when_an_object_was_written(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"")

        [listed] = store.list(key)

        assert abs(listed.modified - store.now()) < timedelta(minutes=1)

    def test_more_than_a_page_can_be_listed_in_order_and_deleted(self, store: Store) -> None:
        prefix = new_key()
        keys = [f"{prefix}/{n:04}" for n in range(PAGE + 5)]
        put_all(store, keys)

        first = [listed.key for listed in store.list(prefix)]
        second = [listed.key for listed in store.list(prefix, after=first[-1])]
        store.delete(keys)

        assert first + second == keys
        assert len(first) == PAGE
        assert store.list(prefix) == []

    def test_keys_may_have_odd_characters(self, store: Store) -> None:
        prefix = new_key()
        keys = sorted((f"{prefix}/{odd}" for odd in ODD_KEYS), key=str.encode)
        for key in keys:
            store.put(key, key.encode())

        listed = [each.key for each in store.list(f"{prefix}/")]
        bodies = [body_of(store, key) for key in keys]
        after_the_first = [each.key for each in store.list(f"{prefix}/", after=keys[0])]
        store.delete(keys)

        assert listed == keys
        assert bodies == [key.encode() for key in keys]
        assert after_the_first == keys[1:]
        assert store.list(f"{prefix}/") == []

    def test_a_commit_writes_adds_and_drops(self, store: Store) -> None:
        prefix = new_key()
        store.put(f"{prefix}/ready/old", b"")
        change = new_change(
            store, f"{prefix}/batch", add=(f"{prefix}/ready/new",), drop=(f"{prefix}/ready/old",)
        )

        etag = store.commit(change)
        store.flush()

        stored = store.get(change.key)
        assert stored is not None
        assert (stored.body, stored.etag) == (change.body, etag)
        assert [each.key for each in store.list(f"{prefix}/ready")] == [f"{prefix}/ready/new"]

    def test_a_commit_updates_what_is_unchanged(self, store: Store) -> None:
        key = new_key()
        first = written(store.commit(new_change(store, key, body=b"1")))

        second = store.commit(new_change(store, key, body=b"2", if_match=first))

        assert isinstance(second, str)
        assert body_of(store, key) == b"2"

    def test_a_commit_that_meets_a_conflict_writes_nothing_and_drops_nothing(
        self, store: Store
    ) -> None:
        prefix = new_key()
        store.put(f"{prefix}/batch", b"theirs")
        store.put(f"{prefix}/ready/old", b"")

        outcome = store.commit(
            new_change(store, f"{prefix}/batch", drop=(f"{prefix}/ready/old",), body=b"mine")
        )
        store.flush()

        assert outcome == Conflict()
        assert body_of(store, f"{prefix}/batch") == b"theirs"
        assert [each.key for each in store.list(f"{prefix}/ready")] == [f"{prefix}/ready/old"]

    def test_a_commit_may_add_more_than_one_entry(self, store: Store) -> None:
        prefix = new_key()
        entries = (f"{prefix}/ready/1", f"{prefix}/ended/2")

        store.commit(new_change(store, f"{prefix}/batch", add=entries))

        assert all(store.get(key) for key in entries)

    def test_a_commit_that_took_too_long_is_given_up(self, store: Store) -> None:
        key = new_key()
        begun = store.clock.monotonic() - COMMIT_TIME_LIMIT - 1

        outcome = store.commit(Change(key, b"late", None, begun=begun))

        assert outcome == Conflict()
        assert store.get(key) is None

    def test_the_time_is_aware_and_close_to_the_clock(self, store: Store) -> None:
        store.put(new_key(), b"")

        now = store.now()

        assert now.utcoffset() == timedelta(0)
        assert abs(now - store.clock.now()) < timedelta(seconds=30)

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        key = new_key()
        store.put(key, b"1")

        store.close()

        assert body_of(store, key) == b"1"

    def test_the_store_proves_itself(self, store: Store) -> None:
        check_store(store)


def new_key() -> str:
    """Return a key that no other test uses."""
    return f"conformance/{secrets.token_hex(8)}"


def new_change(
    store: Store,
    key: str,
    *,
    body: bytes = b"{}",
    if_match: str | None = None,
    add: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
) -> Change:
    """Return a change that begins now."""
    return Change(key, body, if_match, add, drop, begun=store.clock.monotonic())


def written(outcome: str | Conflict) -> str:
    """Return the etag of a write that must have been done."""
    assert isinstance(outcome, str), "The write was refused."
    return outcome


def body_of(store: Store, key: str) -> bytes:
    """Return the body of an object that must exist."""
    stored = store.get(key)
    assert stored is not None, f"There is no object {key!r}."
    return stored.body


def increment(store: Store, key: str) -> None:
    """Add one to a number, however often others come in between."""
    outcome: str | Conflict = Conflict()
    while isinstance(outcome, Conflict):
        stored = store.get(key)
        assert stored is not None
        outcome = store.put(key, str(int(stored.body) + 1).encode(), if_match=stored.etag)


def put_all(store: Store, keys: list[str]) -> None:
    """Write many empty objects, some at a time."""
    at_once(lambda n: [store.put(key, b"") for key in keys[n::THREADS]])


def at_once(act: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Do something in several threads that start together; return what each returned.

    Raises:
        BaseException: the first that was raised in a thread.
    """
    barrier = threading.Barrier(threads)
    outcomes: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(n: int) -> None:
        barrier.wait()
        try:
            outcomes[n] = act(n)
        except BaseException as error:  # noqa: BLE001 -- raised again in the thread of the test
            errors.append(error)

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return [outcomes[n] for n in range(threads)]
