"""Tasks that run for long: what they cost, how they are told, and that they lie in nobody's way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from buquet import Queue, RetryPolicy, TaskContext, TaskStatus, Worker
from buquet.core import transitions
from buquet.core.index import PARKED_AFTER, PARKED_FOR
from buquet.core.keys import batch_key, minute_of
from buquet.core.model import Batch, Task
from buquet.testing import FakeClock, FaultyStore
from buquet.worker.jobs import Claim, Outcome
from buquet.worker.run import Run
from tests.helpers import World

LOOPS = 3
"""The threads of a worker that wait for a time: poller, heartbeat, watchdog."""

BEAT = timedelta(seconds=20)


class LongWork:
    """A worker on threads, in the midst of so many long tasks in batches of a hundred."""

    def __init__(self, number: int) -> None:
        self.world = World(FakeClock(sleeping_advances=False))
        self.store = FaultyStore(self.world.store)
        self.contexts: dict[str, TaskContext] = {}
        self._number = number
        self._over = threading.Event()
        self._begun = threading.Semaphore(0)
        self._worker = Worker(
            self.world.queue(self.store), check=False, threads=number, sweep_interval=None
        )
        self._worker.task("job")(self._work)
        self._thread = threading.Thread(target=self._worker.run)

    def _work(self, input: int, context: TaskContext) -> None:
        self.contexts[context.task.id] = context
        self._begun.release()
        self._over.wait(60)

    def __enter__(self) -> LongWork:
        self.world.queue().submit_many(
            [("job", each) for each in range(self._number)], timeout_seconds=10**6
        )
        self._thread.start()
        left = self._number
        while left:
            while left and self._begun.acquire(timeout=0.2):
                left -= 1
            self.pass_time(seconds=1)
        self.pass_time(seconds=2 * BEAT.total_seconds())
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._worker.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def pass_time(self, *, seconds: float) -> Counter[str]:
        """Let the clock go; return the calls that were made meanwhile."""
        before = len(self.store.calls)
        while seconds > 0:
            self.world.clock.await_waiters(LOOPS)
            self.world.clock.advance(seconds=min(seconds, 1))
            seconds -= 1
        self.world.clock.await_waiters(LOOPS)
        return Counter(call.op for call in self.store.calls[before:])


def test_a_thousand_long_tasks_take_no_more_puts_than_one_task() -> None:
    with LongWork(1) as one, LongWork(1000) as many:
        minutes = 3
        alone, crowd = (work.pass_time(seconds=60 * minutes) for work in (one, many))

        assert alone["put"] == crowd["put"] == 3 * minutes
        assert abs(alone["list"] - crowd["list"]) <= 1
        # Each batch is asked for once with each heartbeat, and not sent again if unchanged.
        assert alone["get"] == 3 * minutes
        assert crowd["get"] == 3 * minutes * 10


def test_a_cancel_request_is_seen_within_a_heartbeat_among_a_thousand() -> None:
    with LongWork(1000) as work:
        chosen = sorted(work.contexts)[567]
        work.world.queue(seed=9).cancel(chosen)
        assert not work.contexts[chosen].is_cancellation_requested()

        work.pass_time(seconds=BEAT.total_seconds())

        told = [
            each for each, context in work.contexts.items() if context.is_cancellation_requested()
        ]
        assert told == [chosen]


def test_parking_takes_two_puts_a_batch_every_nine_minutes() -> None:
    with LongWork(200) as work:
        work.pass_time(seconds=PARKED_AFTER.total_seconds())
        minutes = 27

        spent = work.pass_time(seconds=60 * minutes)

        assert spent["put"] == 3 * minutes + 2 * 2 * minutes / 9


# --- in one thread


@pytest.fixture
def world() -> World:
    return World()


def hold(queue: Queue, tasks: int = 1, **settings: Any) -> Run:
    """A worker that has claimed so many tasks of a batch and runs none of them yet."""
    worker = Worker(queue, check=False, **settings)
    worker.task("job")(lambda input: input)
    if tasks > 1:
        worker._registry.note_duration("job", 0.001)  # or it would claim no more than it can run
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    look_into_next(run)
    assert len(run.claims.all()) == tasks
    return run


def look_into_next(run: Run) -> None:
    """Poll, and look into the first batch that was found."""
    run.poller.poll_once()
    claimed = run.dispatcher._claimed.copy()
    run.dispatcher._claimed.clear()
    candidate = run.dispatcher.next(block=False)
    assert candidate is not None
    run.do(candidate)
    run.dispatcher._claimed.extendleft(reversed(claimed))


def live(world: World, run: Run, span: timedelta) -> None:
    """Let time pass for a worker that has nothing to do but its heartbeats."""
    for _ in range(span // BEAT):
        world.clock.advance(seconds=BEAT.total_seconds())
        run.heartbeat.beat()
        run.claims.refresh()


def finish_one(run: Run) -> None:
    job = run.dispatcher.next(block=False)
    assert isinstance(job, Claim)
    run.do(job)


def submit(world: World, tasks: int, **options: Any) -> list[Task]:
    # Each queue draws its ids from a seed: two of the same seed would draw the same.
    queue = world.queue(seed=random.getrandbits(32))
    return queue.submit_many([("job", each) for each in range(tasks)], **options)


def only_batch(world: World) -> Batch:
    (batch,) = world.batches()
    assert world.missing_entries() == set()
    return batch


def is_ahead(world: World) -> bool:
    return only_batch(world).due > minute_of(world.clock.now())


def parked(world: World, tasks: int = 1, **options: Any) -> tuple[Run, FaultyStore]:
    """A worker whose long work has just been parked, and its store."""
    submit(world, tasks, **options)
    store = FaultyStore(world.store)
    run = hold(world.queue(store, seed=2), tasks)
    live(world, run, PARKED_AFTER)
    assert is_ahead(world)
    return run, store


def test_a_damaged_batch_does_not_keep_requests_from_the_tasks_of_others(world: World) -> None:
    tasks = submit(world, 1) + submit(world, 1)
    run = hold(world.queue(seed=2))
    look_into_next(run)
    claims = {each.task.id: each for each in run.dispatcher._claimed}
    for damaged, other in (tasks, reversed(tasks)):
        world.queue().cancel(other.id)
        stored = world.store.get(batch_key(damaged.batch_id))
        assert stored is not None
        world.store.put(batch_key(damaged.batch_id), b"{")

        run.claims.refresh()

        assert claims[other.id].cancel_requested
        world.store.put(batch_key(damaged.batch_id), stored.body)


def test_a_refresh_stops_when_the_lease_must_be_renewed_and_goes_on_there(world: World) -> None:
    for _ in range(3):
        submit(world, 1)
    store = FaultyStore(world.store)
    run = hold(world.queue(store, seed=2))
    look_into_next(run)
    look_into_next(run)
    load = run._ledger.load
    read: list[str] = []

    def slow_load(batch_id: str, *, unless: str | None = None) -> Any:
        world.clock.advance(seconds=25)
        read.append(batch_id)
        return load(batch_id, unless=unless)

    run._ledger.load = slow_load  # type: ignore[method-assign]  # a slow store
    run.claims.refresh()
    run.heartbeat.beat()
    run.claims.refresh()

    assert len(read) == 4
    assert len(set(read[:3])) == 3


def test_what_is_due_in_a_batch_that_is_held_is_no_reason_to_poll_again_soon(world: World) -> None:
    submit(world, 5)
    run = hold(world.queue(seed=2), threads=1)

    scans = [run.poller.poll_once() for _ in range(3)]

    assert [scan.is_new for scan in scans] == [False, False, False]
    assert scans[0].is_held


def test_long_work_lies_in_nobodys_way_for_as_long_as_it_runs(world: World) -> None:
    run, _ = parked(world)
    for _ in range(40):
        live(world, run, timedelta(minutes=1))
        assert is_ahead(world)
        assert len(world.ready()) == 1
    store = FaultyStore(world.store)

    world.worker(world.queue(store, seed=3)).drain()
    world.sweeper(world.queue(store, seed=4)).sweep_once()

    assert not [call for call in store.calls if call.op == "get"]
    finish_one(run)
    assert set(world.statuses().values()) == {TaskStatus.COMPLETED}
    assert world.ready() == []


def test_a_batch_with_tasks_of_two_workers_is_not_parked(world: World) -> None:
    submit(world, 2)
    shifts = [hold(world.queue(seed=seed)) for seed in (2, 3)]
    assert len({task.worker_id for task in only_batch(world).tasks}) == 2

    for _ in range(30):
        world.clock.advance(seconds=BEAT.total_seconds())
        for run in shifts:
            run.heartbeat.beat()
            run.claims.refresh()

    assert only_batch(world).generation == 1
    finish_one(shifts[0])
    live(world, shifts[1], BEAT)
    assert is_ahead(world)


def test_a_batch_with_a_task_that_is_still_to_come_is_not_parked(world: World) -> None:
    submit(world, 2)
    run = hold(world.queue(seed=2))

    live(world, run, 2 * PARKED_AFTER)

    assert only_batch(world).generation == 1


def test_a_retry_in_a_parked_batch_is_found_by_others_in_time(world: World) -> None:
    run, _ = parked(world, 3, retry_policy=RetryPolicy(initial_seconds=30, jitter=0))
    failing, *_ = (run.dispatcher.next(block=False) for _ in range(3))  # each has a thread
    assert isinstance(failing, Claim)

    run.claims.finish(Outcome(failing, partial(transitions.retry, error="no")))

    other = world.worker(world.queue(seed=3))
    other.task("job")(world.run)
    other.drain()
    assert world.runs == []
    world.clock.advance(seconds=30)
    other.drain()
    assert world.runs == [failing.task.id]
    assert Counter(world.statuses().values()) == {TaskStatus.RUNNING: 2, TaskStatus.COMPLETED: 1}


def test_a_task_that_is_given_back_is_found_by_others_at_once(world: World) -> None:
    run, _ = parked(world, 2)
    left = run.dispatcher.close()

    run.claims.give_back(left)

    other = world.worker(world.queue(seed=3))
    other.task("job")(world.run)
    other.drain()
    assert sorted(world.runs) == sorted(each.task.id for each in left)


def test_the_parked_tasks_of_a_dead_worker_are_taken_back_by_the_next_sweep(world: World) -> None:
    parked(world, 2)
    sweeper = world.sweeper()
    world.clock.advance(seconds=59)
    assert sweeper.sweep_once().recovered == 0

    world.clock.advance(seconds=1)
    assert sweeper.sweep_once().recovered == 2

    assert not is_ahead(world)
    other = world.worker(world.queue(seed=3))
    other.task("job")(world.run)
    world.clock.advance(seconds=2)
    other.drain()
    assert set(world.statuses().values()) == {TaskStatus.COMPLETED}


def test_the_batches_of_a_dead_worker_are_looked_up_by_one_sweep_and_not_by_all(
    world: World,
) -> None:
    parked(world, 2)
    store = FaultyStore(world.store)
    sweeper = world.sweeper(world.queue(store, seed=5))
    world.clock.advance(seconds=60)
    sweeper.sweep_once()
    world.queue().cancel_by_type("job")
    before = len(store.calls)

    world.clock.advance(minutes=1)
    sweeper.sweep_once()

    tasks = batch_key(only_batch(world).id)
    assert [call.key for call in store.calls[:before]].count(tasks) > 0
    assert [call.key for call in store.calls[before:]].count(tasks) == 0


def test_a_worker_that_comes_back_and_dies_again_is_found_out_again(world: World) -> None:
    run, _ = parked(world, 1)
    sweeper = world.sweeper()
    world.clock.advance(seconds=60)
    assert sweeper.sweep_once().recovered == 1
    run.heartbeat.beat()
    run.claims.refresh()
    assert run.claims.all() == []
    world.clock.advance(seconds=5)
    look_into_next(run)
    live(world, run, PARKED_AFTER)
    assert is_ahead(world)

    world.clock.advance(seconds=60)

    assert sweeper.sweep_once().recovered == 1


def test_without_a_sweeper_the_parked_tasks_of_a_dead_worker_wait_for_ten_minutes_at_the_most(
    world: World,
) -> None:
    parked(world, 2)
    other = world.worker(world.queue(seed=3))
    other.task("job")(world.run)

    world.clock.advance(seconds=PARKED_FOR.total_seconds())
    other.drain()
    world.clock.advance(seconds=2)
    other.drain()

    assert set(world.statuses().values()) == {TaskStatus.COMPLETED}


def test_the_parked_task_of_a_dead_worker_expires_in_time(world: World) -> None:
    parked(world, 1, ttl_seconds=PARKED_AFTER.total_seconds())

    world.clock.advance(seconds=60)

    assert world.sweeper().sweep_once().expired == 1
    assert world.ready() == []


def test_a_parked_task_can_be_cancelled_and_the_handler_is_told(world: World) -> None:
    run, _ = parked(world, 1)
    (claim,) = run.dispatcher._claimed
    world.queue().cancel(claim.task.id)

    live(world, run, BEAT)

    assert claim.cancel_requested


def test_long_work_counts_as_running_in_the_stats(world: World) -> None:
    parked(world, 3)
    submit(world, 2, delay=timedelta(hours=1))

    found = world.queue().stats()

    assert (found.unfinished["job"].ready, found.unfinished["job"].scheduled) == (0, 2)
    assert found.running == 3
