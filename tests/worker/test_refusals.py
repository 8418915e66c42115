"""A store that answers reads and refuses what a worker writes, for now or for good."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from buquet import RetryPolicy, StoreError, StoreRefused, TaskStatus, Worker
from buquet.core.keys import BATCHES
from buquet.store import Conflict
from buquet.testing import FaultyStore
from buquet.testing.faults import Call
from tests.helpers import World

WORDS = "The store answered 507: InsufficientStorage"


class Refusing(FaultyStore):
    """A store that refuses to change a batch as long as it is asked to."""

    is_refusing = True
    largest: float = 0
    """Above so many bytes it refuses a batch for good."""

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if key.startswith(BATCHES) and if_match and self.is_refusing:
            self.calls.append(Call("put", key))
            raise StoreError(WORDS)
        if key.startswith(BATCHES) and if_match and 0 < self.largest < len(body):
            self.calls.append(Call("put", key))
            raise StoreRefused("The store answered 413: EntityTooLarge")
        return super().put(key, body, if_match=if_match, if_absent=if_absent)

    @property
    def writes(self) -> int:
        """How often a batch was written, or was to be."""
        return sum(call.op == "put" and call.key.startswith(BATCHES) for call in self.calls)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> Refusing:
    return Refusing(world.store)


def test_a_worker_whose_claims_are_refused_says_so_once_and_waits(
    world: World, store: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(40):
        world.queue(seed=seed).submit("ok")
    worker = world.worker(world.queue(store, seed=99), threads=2, sweep_interval=None)
    run = worker._new_run()
    run._begin(run.heartbeat.beat)

    for _ in range(60):
        run.poller.poll_once()
        while (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)
        world.clock.advance(seconds=0.5)
    run.heartbeat.beat()

    said = [each for each in caplog.messages if "takes no claims" in each]
    assert len(said) == 1
    assert WORDS in said[0]
    assert store.writes <= 8  # in 30 seconds, with 40 batches

    store.is_refusing = False
    world.clock.advance(seconds=11)
    run.poller.poll_once()
    while (job := run.dispatcher.next(block=False)) is not None:
        run.do(job)
    assert len(world.runs) == 40


def test_a_burst_whose_claims_are_refused_ends_with_the_words_of_the_store(
    world: World, store: Refusing
) -> None:
    world.queue().submit("ok")

    with pytest.raises(StoreError, match="507"):
        world.worker(world.queue(store, seed=2)).run(burst=True)

    assert set(world.statuses().values()) == {TaskStatus.PENDING}


def test_a_result_waits_for_as_long_as_the_store_refuses_it(world: World, store: Refusing) -> None:
    task = world.queue().submit("job")
    store.is_refusing = False
    calls: list[int] = []
    worker = Worker(world.queue(store, seed=2), check=False)

    @worker.task("job")
    def handler(input: object) -> str:
        calls.append(1)
        store.is_refusing = True
        return "kept"

    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    while (job := run.dispatcher.next(block=False)) is not None:
        run.do(job)
    for _ in range(600):  # for ten minutes
        world.clock.advance(seconds=1)
        run.claims.write_what_waits()
        if run.lease.expires_at - world.clock.now() < run.lease.span / 2:
            run.heartbeat.beat()
    assert run.claims.count_unwritten() == 1

    store.is_refusing = False
    world.clock.advance(seconds=11)
    run.claims.write_what_waits()

    assert world.queue().get(task.id).output == "kept"
    assert len(calls) == 1


SOON = RetryPolicy(initial_seconds=1, jitter=0)


def test_results_that_are_too_large_together_cost_only_those_that_do_not_fit(
    world: World, store: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    store.is_refusing, store.largest = False, 600_000
    tasks = world.queue().submit_many(
        [("job", number) for number in range(10)], max_retries=1, retry_policy=SOON
    )
    worker = Worker(world.queue(store, seed=2), check=False)
    worker.task("job")(lambda input: "x" * 100_000)

    for _ in range(5):
        worker.drain()
        world.clock.advance(seconds=5)

    found = [world.queue().get(task.id) for task in tasks]
    completed = [task for task in found if task.status is TaskStatus.COMPLETED]
    failed = [task for task in found if task.status is TaskStatus.FAILED]
    assert (len(completed), len(failed)) == (5, 5)
    assert {task.attempt for task in failed} == {2}
    assert all("413: EntityTooLarge" in task.last_error for task in failed)
    assert sum(each.levelno == logging.ERROR for each in caplog.records) == 10


def test_a_drain_whose_results_are_refused_for_long_raises_and_does_not_go_on_for_ever(
    world: World, store: Refusing
) -> None:
    world.queue().submit("job")
    store.is_refusing = False
    worker = Worker(world.queue(store, seed=2), check=False)

    def handler(input: Any) -> None:
        store.is_refusing = True

    worker.task("job")(handler)
    begun = world.clock.monotonic()

    with pytest.raises(StoreError, match="507"):
        worker.drain()

    assert 30 < world.clock.monotonic() - begun < 120
