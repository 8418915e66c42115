"""A store that is away when a worker starts: waited for, but not for ever, and not in vain."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from buquet import StoreNotFound, StoreUnavailable, TaskStatus, Worker
from buquet.testing import FaultyStore
from buquet.worker.run import STORE_THERE_WITHIN
from tests.helpers import World

AWAY = StoreUnavailable("queue.db is locked by others.")
TOLD = "The worker can't start yet, and tries again: queue.db is locked by others."


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> FaultyStore:
    return FaultyStore(world.store)


def worker_on(world: World, store: FaultyStore, *, check: bool = False) -> Worker:
    worker = Worker(world.queue(store, seed=2), check=check)
    worker.task("job")(world.run)
    return worker


@contextmanager
def running(worker: Worker) -> Iterator[Future[None]]:
    """Run a worker in a burst, in a thread."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(worker.run, burst=True)
        try:
            yield run
        finally:
            worker.stop()


def let_it_wait(world: World, seconds: int) -> None:
    """Let time pass second by second, each time the worker waits for it."""
    for _ in range(seconds):
        world.clock.await_waiters(1)
        world.clock.advance(seconds=1)


@pytest.mark.parametrize("check", [True, False], ids=["the check", "the first heartbeat"])
def test_a_worker_waits_for_a_store_that_is_away_and_says_so_each_time(
    world: World, store: FaultyStore, check: bool, caplog: pytest.LogCaptureFixture
) -> None:
    task = world.queue().submit("job", 1)
    calls = 2 if check else 1  # the check also deletes what it may have written
    for number in range(3 * calls):
        store.fail_before(number + 1, AWAY)
    worker = worker_on(world, store, check=check)
    opened: list[str] = []
    worker.on_startup(lambda: opened.append("once"))

    with caplog.at_level(logging.WARNING), running(worker) as run:
        let_it_wait(world, 3)
        run.result(10)

    assert world.statuses() == {task.id: TaskStatus.COMPLETED}
    assert [record.getMessage() for record in caplog.records].count(TOLD) == 3
    assert opened == ["once"]


def test_a_store_that_stays_away_is_an_error_after_half_a_minute(
    world: World, store: FaultyStore
) -> None:
    for number in range(1, 100):
        store.fail_before(number, AWAY)

    with running(worker_on(world, store)) as run:
        let_it_wait(world, int(STORE_THERE_WITHIN))
        with pytest.raises(StoreUnavailable, match="locked by others"):
            run.result(10)

    assert len(store.calls) == STORE_THERE_WITHIN + 1


def test_a_bucket_that_is_not_there_is_not_waited_for(world: World, store: FaultyStore) -> None:
    store.fail_before(1, StoreNotFound("There is no bucket 'typo'."))

    with running(worker_on(world, store, check=True)) as run, pytest.raises(StoreNotFound):
        run.result(10)


def test_a_worker_that_waits_for_its_store_leaves_when_it_is_told_to_stop(
    world: World, store: FaultyStore
) -> None:
    for number in range(1, 100):
        store.fail_before(number, AWAY)
    worker = worker_on(world, store, check=True)

    with running(worker) as run:
        world.clock.await_waiters(1)
        worker.stop()
        run.result(10)

    assert {call.op for call in store.calls} == {"put", "delete"}  # of the check: nothing was begun


def test_a_drain_does_not_wait(world: World, store: FaultyStore) -> None:
    store.fail_before(1, AWAY)

    with pytest.raises(StoreUnavailable):
        worker_on(world, store).drain()
