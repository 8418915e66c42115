from __future__ import annotations

import pytest

from buquet.errors import StoreUnclear
from buquet.store import Change, MemoryStore
from buquet.testing.conformance import StoreConformance
from buquet.testing.faults import Call, Crash, FaultyStore


class TestWithoutFaults(StoreConformance):
    @pytest.fixture
    def store(self) -> FaultyStore:
        return FaultyStore(MemoryStore())


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


def change(store: FaultyStore) -> Change:
    begun = store.clock.monotonic()
    return Change("batch", b"{}", None, add=("new",), drop=("old", "older"), begun=begun)


def test_every_step_of_a_commit_is_a_call(store: FaultyStore) -> None:
    store.commit(change(store))

    assert store.calls == [Call("put", "new"), Call("put", "batch"), Call("delete", "old")]


@pytest.mark.parametrize(
    ("n", "left"), [(1, ["old"]), (2, ["new", "old"]), (3, ["batch", "new", "old"])]
)
def test_dying_before_a_call_leaves_what_was_done_until_then(
    store: FaultyStore, n: int, left: list[str]
) -> None:
    store.store.put("old", b"")
    store.die_before(n)

    with pytest.raises(Crash):
        store.commit(change(store))

    assert [listed.key for listed in store.store.list("")] == left


@pytest.mark.parametrize(
    ("n", "left"), [(1, ["new", "old"]), (2, ["batch", "new", "old"]), (3, ["batch", "new"])]
)
def test_dying_after_a_call_leaves_its_effect_too(
    store: FaultyStore, n: int, left: list[str]
) -> None:
    store.store.put("old", b"")
    store.die_after(n)

    with pytest.raises(Crash):
        store.commit(change(store))

    assert [listed.key for listed in store.store.list("")] == left


def test_a_dead_process_does_nothing_more(store: FaultyStore) -> None:
    store.die_before(1)
    with pytest.raises(Crash):
        store.get("key")

    for act in (store.now, store.flush, lambda: store.put("key", b""), lambda: store.list("")):
        with pytest.raises(Crash):
            act()

    assert store.store.list("") == []


@pytest.mark.parametrize("is_done", [True, False])
def test_a_call_may_fail_before_or_after_it_takes_effect(store: FaultyStore, is_done: bool) -> None:
    fail = store.fail_after if is_done else store.fail_before
    fail(1, StoreUnclear("It broke off."))

    with pytest.raises(StoreUnclear):
        store.put("key", b"body")

    assert (store.get("key") is not None) == is_done
    assert store.calls == [Call("put", "key"), Call("get", "key")]


def test_handlers_of_errors_do_not_catch_a_crash() -> None:
    assert not issubclass(Crash, Exception)
