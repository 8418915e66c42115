"""G3, G5: of several who want the same task at the same instant, one gets it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from buquet import CannotCancel, Queue, Sweeper, TaskStatus, Worker, connect
from buquet.clock import SystemClock
from buquet.core import transitions
from buquet.core.model import Batch
from buquet.core.transitions import Facts
from buquet.store import Store
from buquet.testing import FaultyStore
from tests.helpers import World
from tests.s3_servers import S3Server

ROUNDS = 200


class SeenFrom(FaultyStore):
    """A store as seen by a process to which it seems a little earlier."""

    earlier = timedelta(0)
    unsure = timedelta(0)

    def now(self) -> datetime:
        return super().now() - self.earlier

    def latest(self) -> datetime:
        return self.now() + self.unsure


def at_once(*acts: Callable[[], object]) -> None:
    """Start all acts at the same moment, each in a thread, and wait for them."""
    barrier = threading.Barrier(len(acts))
    errors: list[BaseException] = []

    def perform(act: Callable[[], object]) -> None:
        barrier.wait(10)
        try:
            act()
        except BaseException as error:  # noqa: BLE001 -- raised again in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=perform, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_a_task_is_never_both_run_and_expired() -> None:
    ended: set[TaskStatus] = set()
    for _ in range(ROUNDS):
        world = World()
        task = world.queue().submit("ok", 1, ttl_seconds=10)
        world.clock.advance(seconds=10)
        # To the worker it is still a moment before the deadline; to the sweeper it has come.
        store = SeenFrom(world.store)
        store.earlier = timedelta(milliseconds=1)
        worker, sweeper = world.worker(world.queue(store)), world.sweeper()

        at_once(worker.drain, sweeper.sweep_once)

        status = world.statuses()[task.id]
        assert (status, world.runs) in (
            (TaskStatus.COMPLETED, [task.id]),
            (TaskStatus.EXPIRED, []),
        )
        ended.add(status)
    assert ended, "no round ended"


def test_what_is_not_known_of_the_stores_clock_starts_no_task_late() -> None:
    world = World()
    task = world.queue().submit("ok", 1, ttl_seconds=10)
    world.clock.advance(seconds=10)
    store = SeenFrom(world.store)
    store.earlier = timedelta(seconds=0.4)  # a first answer tells the time to within a second
    store.unsure = timedelta(seconds=0.5)

    world.worker(world.queue(store)).drain()

    assert world.runs == []
    assert world.statuses()[task.id] is TaskStatus.EXPIRED


def test_at_the_very_instant_of_the_deadline_nobody_starts_a_task() -> None:
    world = World()
    task = world.queue().submit("ok", 1, ttl_seconds=10)
    world.clock.advance(seconds=10)

    world.worker().drain()

    assert world.runs == []
    assert world.statuses()[task.id] is TaskStatus.EXPIRED


def test_a_moment_before_the_deadline_a_task_is_started() -> None:
    world = World()
    task = world.queue().submit("ok", 1, ttl_seconds=10)
    world.clock.advance(seconds=9.999)

    world.worker().drain()

    assert world.statuses()[task.id] is TaskStatus.COMPLETED


def test_a_task_is_never_both_cancelled_and_run() -> None:
    for _ in range(ROUNDS):
        world = World()
        task = world.queue().submit("ok", 1)
        worker, operator = world.worker(), world.queue(seed=9)
        refused: list[CannotCancel] = []

        def cancel(operator: Queue = operator, refused: list[CannotCancel] = refused) -> None:
            try:
                operator.cancel(task.id)  # noqa: B023 -- called within the round
            except CannotCancel as error:
                refused.append(error)

        at_once(worker.drain, cancel)

        found = world.queue().get(task.id)
        assert found.status in (TaskStatus.CANCELLED, TaskStatus.COMPLETED)
        assert (found.status is TaskStatus.CANCELLED) == (world.runs == [])
        assert not (refused and found.status is TaskStatus.CANCELLED)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "moto"])
def test_eight_workers_on_one_batch_run_each_task_once(
    kind: str, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(f"{kind}_store")
    tasks = Queue(store).submit_many([("count", number) for number in range(100)])
    runs: list[int] = []
    workers = []
    for _ in range(8):
        worker = Worker(Queue(store), threads=2, check=False)
        worker.task("count")(runs.append)
        workers.append(worker)

    at_once(*(worker.drain for worker in workers))

    assert sorted(runs) == list(range(100))
    found = Queue(store).wait([task.id for task in tasks], timeout=10)
    assert {task.status for task in found} == {TaskStatus.COMPLETED}


def test_a_paused_worker_that_comes_back_does_not_overwrite(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    task = world.queue().submit("nap", 1)
    paused = Worker(world.queue(seed=2), check=False)
    other = Worker(world.queue(seed=3), check=False)
    other.task("nap")(lambda input: "the other's")

    @paused.task("nap")
    def nap(input: Any, context: Any) -> str:
        world.clock.advance(minutes=5)  # the process is stopped, for longer than its lease
        other.drain()
        world.clock.advance(minutes=5)  # … the retry is due
        other.drain()
        return "mine"

    with caplog.at_level(logging.WARNING):
        paused.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.output) == (TaskStatus.COMPLETED, "the other's")
    assert found.attempt == 2
    assert sum("no longer this worker's" in each.message for each in caplog.records) == 1


def test_a_paused_worker_does_not_end_a_task_that_another_is_running() -> None:
    world = World()
    task = world.queue().submit("nap", 1)
    paused = Worker(world.queue(seed=2), check=False)
    operator = world.queue(seed=3)

    def claim(batch: Batch, facts: Facts) -> Batch:
        return transitions.change_task(
            batch,
            task.id,
            facts,
            lambda task: transitions.claim(
                task, facts, lease_id="other/1", lease_expires_at=facts.now + timedelta(minutes=1)
            ),
        )

    @paused.task("nap")
    def nap(input: Any) -> str:
        world.clock.advance(minutes=5)  # the process is stopped, for longer than its lease
        world.sweeper().sweep_once()
        world.clock.advance(minutes=5)  # … the retry is due, and another worker has it
        operator.ledger.change(task.batch_id, claim)
        return "mine"

    paused.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.lease_id, found.output) == (TaskStatus.RUNNING, "other/1", None)


def test_a_worker_whose_record_is_fresh_keeps_tasks_that_run_longer_than_their_claim() -> None:
    world = World()
    task = world.queue().submit("long", 1)
    worker = Worker(world.queue(seed=2), check=False)

    @worker.task("long")
    def long(input: Any) -> str:
        for _ in range(6):
            world.clock.advance(seconds=30)
            assert worker._run is not None
            worker._run.heartbeat.beat()
            world.sweeper().sweep_once()
        return "done"

    worker.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.COMPLETED, 1)


class HourOff(SystemClock):
    """The clock of a machine that is an hour off."""

    def __init__(self, hours: int) -> None:
        self._skew = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._skew


@pytest.mark.parametrize("hours", [1, -1])
def test_a_machine_whose_clock_is_an_hour_off_is_like_any_other(
    hours: int, moto: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = moto.url()
    queue = connect(url, endpoint_url=moto.endpoint, clock=HourOff(hours))
    right = connect(url, endpoint_url=moto.endpoint)
    runs: list[str] = []
    worker = Worker(queue)
    worker.task("ok")(runs.append)

    with caplog.at_level(logging.WARNING):
        fresh = queue.submit("ok", "fresh", ttl_seconds=60)
        late = queue.submit("ok", "late", ttl_seconds=0)
        theirs = right.submit("ok", "theirs", ttl_seconds=60)
        for_later = right.submit("ok", "for later", delay=timedelta(minutes=30))
        thread = threading.Thread(target=worker.run)
        thread.start()
        right.wait([fresh.id, late.id, theirs.id], timeout=30)
        worker.stop()
        thread.join(30)

    assert abs((fresh.created_at - right.now()).total_seconds()) < 30
    assert sorted(runs) == ["fresh", "theirs"]
    assert right.get(late.id).status is TaskStatus.EXPIRED
    assert right.get(theirs.id).status is TaskStatus.COMPLETED
    assert right.get(for_later.id).status is TaskStatus.PENDING
    warnings = [each.getMessage() for each in caplog.records if "clock is" in each.getMessage()]
    assert len(warnings) == 1
    assert any(word in warnings[0] for word in ("3600", "3599", "3601"))
    for each in (queue, right):
        each.close()


def test_two_workers_and_a_sweeper_tell_once_of_a_task_that_expired() -> None:
    for _ in range(50):
        world = World()
        task = world.queue().submit("ok", 1, ttl_seconds=1)
        world.clock.advance(seconds=2)
        queues = [world.queue(seed=seed) for seed in (11, 12, 13)]
        told: list[str] = []
        for queue in queues:
            queue.on_expired(lambda task, told=told: told.append(task.id))

        at_once(
            world.worker(queues[0]).drain,
            world.worker(queues[1]).drain,
            Sweeper(queues[2], threads=1).sweep_once,
        )

        assert told == [task.id]
