"""A store that answers reads and refuses writes: that is its error, not a race that was lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from buquet import Contention, Queue, StoreUnclear, SubmitUnclear, Task
from buquet.core.keys import BATCHES, WORKERS
from buquet.ledger.lock import Lock
from buquet.store import Conflict
from buquet.testing.faults import Call, FaultyStore
from tests.helpers import World

WORDS = "An error occurred (InternalError): 500"


class Refusing(FaultyStore):
    """A store that refuses each conditional write under a prefix."""

    prefix = BATCHES
    answer: StoreUnclear | Conflict = StoreUnclear(WORDS)

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if not (key.startswith(self.prefix) and (if_match or if_absent)):
            return super().put(key, body, if_match=if_match, if_absent=if_absent)
        self.calls.append(Call("put", key))
        if isinstance(self.answer, Conflict):
            return self.answer
        raise self.answer


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> Refusing:
    return Refusing(world.store)


ACTS: dict[str, Callable[[Queue, Task], object]] = {
    "cancel": lambda queue, task: queue.cancel(task.id),
    "cancel_many": lambda queue, task: queue.cancel_many([task.id]),
    "cancel_by_type": lambda queue, task: queue.cancel_by_type("ok"),
    "mark_expired": lambda queue, task: queue.mark_expired(task.id),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_act_that_the_store_refuses_raises_the_error_of_the_store(
    act: str, world: World, store: Refusing
) -> None:
    task = world.queue().submit("ok", 1)
    begun = world.clock.monotonic()

    with pytest.raises(StoreUnclear, match="InternalError"):
        ACTS[act](world.queue(store), task)

    assert world.clock.monotonic() - begun < 10
    assert world.statuses() == {task.id: "pending"}


def test_a_conflict_that_is_none_is_no_lost_race(world: World, store: Refusing) -> None:
    task = world.queue().submit("ok", 1)
    store.answer = Conflict()

    with pytest.raises(StoreUnclear, match="because it has changed, and it has not"):
        world.queue(store).cancel(task.id)


def test_a_write_that_is_refused_for_a_moment_gets_through(world: World) -> None:
    task = world.queue().submit("ok", 1)
    store = FaultyStore(world.store)
    store.fail_before(2, StoreUnclear(WORDS))

    assert world.queue(store).cancel(task.id).status == "cancelled"


def test_a_race_that_is_lost_each_time_is_contention(world: World) -> None:
    task = world.queue().submit("ok", 1)

    class Overtaken(FaultyStore):
        def put(
            self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
        ) -> str | Conflict:
            if if_match:
                stored = world.store.get(key)
                assert stored is not None
                world.store.put(key, stored.body)
            return super().put(key, body, if_match=if_match, if_absent=if_absent)

    with pytest.raises(Contention):
        world.queue(Overtaken(world.store)).cancel(task.id)


def test_a_submit_that_the_store_refuses_says_what_the_store_said(store: Refusing) -> None:
    with pytest.raises(SubmitUnclear, match="InternalError"):
        World().queue(store).submit("ok", 1)


def test_a_heartbeat_that_the_store_refuses_fails_with_its_error(
    world: World, store: Refusing
) -> None:
    store.prefix = WORKERS
    worker = world.worker(world.queue(store))

    with pytest.raises(StoreUnclear, match="InternalError"):
        worker.drain()


def test_a_lock_that_the_store_refuses_to_write_is_not_taken_for_somebody_else_s(
    world: World, store: Refusing
) -> None:
    store.prefix = "locks/"

    with pytest.raises(StoreUnclear, match="InternalError"):
        Lock(world.queue(store).ledger, "sweep").try_acquire(timedelta(minutes=1))


def test_a_sweep_counts_the_batches_that_it_could_not_write(
    world: World, store: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    world.queue().submit("ok", 1, ttl_seconds=10)
    world.clock.advance(minutes=1)

    report = world.sweeper(world.queue(store)).sweep_once()

    assert (report.expired, report.errors) == (0, 1)
    assert "InternalError" in caplog.text


def test_a_lock_that_the_store_will_not_write_although_nobody_holds_it_is_an_error(
    world: World, store: Refusing
) -> None:
    store.prefix, store.answer = "locks/", Conflict()

    with pytest.raises(StoreUnclear, match=r"refused to write 'locks/sweep\.json'"):
        Lock(world.queue(store).ledger, "sweep").try_acquire(timedelta(minutes=1))


def test_a_lock_whose_answer_was_lost_is_held_all_the_same(world: World) -> None:
    store = FaultyStore(world.store)
    store.fail_after(1, StoreUnclear(WORDS))

    assert Lock(world.queue(store).ledger, "sweep").try_acquire(timedelta(minutes=1))


def test_a_refused_heartbeat_takes_no_longer_than_a_few_seconds(
    world: World, store: Refusing
) -> None:
    store.prefix = WORKERS
    worker = world.worker(world.queue(store))
    begun = world.clock.monotonic()

    with pytest.raises(StoreUnclear, match="InternalError"):
        worker.drain()

    assert world.clock.monotonic() - begun < 10


def test_a_change_that_others_overtake_slowly_gives_up_after_half_a_minute(world: World) -> None:
    task = world.queue().submit("ok", 1)

    class Slow(FaultyStore):
        def put(
            self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
        ) -> str | Conflict:
            if if_match:
                world.clock.advance(seconds=12)
                stored = world.store.get(key)
                assert stored is not None
                world.store.put(key, stored.body)
            return super().put(key, body, if_match=if_match, if_absent=if_absent)

    with pytest.raises(Contention) as caught:
        world.queue(Slow(world.store)).cancel(task.id)

    assert caught.value.tries == 3
