from __future__ import annotations

from typing import Any

import pytest

from buquet.errors import StoreAccessDenied, StoreUnsuitable
from buquet.store import Conflict, Listed, MemoryStore, Store, Stored, check_store
from tests.stores.stub import Stub, error


class CreatesOverWhatExists(MemoryStore):
    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        return super().put(key, body, **condition | {"if_absent": False})


class UpdatesOverWhatChanged(MemoryStore):
    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        return super().put(key, body, **condition | {"if_match": None})


class RefusesEveryCondition(MemoryStore):
    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        return Conflict() if any(condition.values()) else super().put(key, body)


class RefusesTheEtagsThatItGives(MemoryStore):
    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        return Conflict() if condition.get("if_match") else super().put(key, body, **condition)


class InvertsIfNoneMatch(MemoryStore):
    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        if condition.get("if_absent") and self.get(key) is None:
            return Conflict()
        return super().put(key, body, **condition | {"if_absent": False})


@pytest.mark.parametrize(
    ("store", "what_came"),
    [
        (RefusesTheEtagsThatItGives(), "refused to update an object on the etag"),
        (InvertsIfNoneMatch(), "refused to create"),
        (CreatesOverWhatExists(), "wrote over an object that was to be created only"),
        (UpdatesOverWhatChanged(), "which was no longer that of the object"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_check_says_what_came(store: Store, what_came: str) -> None:
    with pytest.raises(StoreUnsuitable, match=what_came):
        check_store(store)


class ReadsWhatWas(MemoryStore):
    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        stored = super().get(key, unless=unless)
        return stored and Stored(b"1", stored.etag)


class ReadsNothing(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.is_checking = False

    def put(self, key: str, body: bytes, **condition: Any) -> str | Conflict:
        self.is_checking = False
        outcome = super().put(key, body, **condition)
        self.is_checking = True
        return outcome

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        return None if self.is_checking else super().get(key, unless=unless)


class ListsLate(MemoryStore):
    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[Listed]:
        return []


@pytest.mark.parametrize(
    ("store", "feature"),
    [
        (CreatesOverWhatExists(), "If-None-Match"),
        (UpdatesOverWhatChanged(), "If-Match"),
        (RefusesEveryCondition(), "If-None-Match"),
        (ReadsWhatWas(), "reading"),
        (ReadsNothing(), "reading"),
        (ListsLate(), "listing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else value,
)
def test_a_store_that_does_not_keep_to_the_rules_is_refused(
    store: MemoryStore, feature: str
) -> None:
    with pytest.raises(StoreUnsuitable) as caught:
        check_store(store)

    assert feature in caught.value.feature
    assert MemoryStore.list(store, "") == []


def test_a_good_store_is_left_as_it_was(store: Store) -> None:
    check_store(store)

    assert store.list("") == []


def test_a_store_without_conditional_writes_is_refused() -> None:
    with pytest.raises(StoreUnsuitable, match="conditional writes"):
        check_store(Stub(error(501, "NotImplemented")).store())


def test_a_store_that_denies_access_says_so() -> None:
    with pytest.raises(StoreAccessDenied):
        check_store(Stub(error(403, "AccessDenied")).store())
