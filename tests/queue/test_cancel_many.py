"""Cancelling many tasks at once, by their ids and by their type."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from buquet import CancelReport, InvalidOptions, Queue, StoreUnavailable, TaskStatus, Worker
from buquet.core.keys import batch_key, new_batch_id
from buquet.core.model import Task
from buquet.testing import Crash, FaultyStore
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def running(world: World, number: int) -> Iterator[list[Task]]:
    """So many tasks of type `slow`; the first is running while the block is."""
    tasks = world.queue(seed=8).submit_many([("slow", each) for each in range(number)])
    worker = Worker(world.queue(seed=9), check=False, threads=1)
    run = worker._new_run() if worker.task("slow")(world.run) else None
    assert run is not None
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    candidate = run.dispatcher.next(block=False)
    assert candidate is not None
    run.do(candidate)
    yield tasks
    job = run.dispatcher.next(block=False)
    assert job is not None
    run.do(job)


def counted(world: World) -> tuple[FaultyStore, Queue]:
    store = FaultyStore(world.store)
    return store, world.queue(store, seed=4)


def writes(store: FaultyStore) -> Counter[str]:
    return Counter(call.key for call in store.calls if call.op == "put" and "tasks/" in call.key)


def test_each_task_is_cancelled_asked_left_alone_or_not_found(world: World) -> None:
    queue = world.queue()
    done = queue.submit("ok", 1)
    world.worker().drain()
    waiting = queue.submit("ok", 2)
    stranger = new_batch_id(random.getrandbits(128))
    with running(world, 2) as (first, second):
        report = queue.cancel_many(
            [first.id, done.id, "nonsense", second.id, stranger, waiting.id.upper()], by="ann"
        )

        assert report == CancelReport(
            cancelled=(second.id, waiting.id),
            requested=(first.id,),
            ended=(done.id,),
            not_found=("nonsense", stranger),
        )
        assert queue.get(first.id).cancel_requested
    assert queue.get(second.id).cancelled_by == "ann"
    assert queue.get(waiting.id).history[-1].by == "ann"
    assert queue.get(done.id).status is TaskStatus.COMPLETED


def test_all_of_a_batch_are_cancelled_with_one_write(world: World) -> None:
    store, queue = counted(world)
    tasks = world.queue().submit_many([("ok", number) for number in range(250)])

    report = queue.cancel_many(task.id for task in tasks)

    assert report.cancelled == tuple(task.id for task in tasks)
    assert set(world.statuses().values()) == {TaskStatus.CANCELLED}
    assert writes(store) == {batch_key(task.batch_id): 1 for task in tasks}
    assert world.missing_entries() == set()
    assert world.ready() == []


def test_cancelling_many_twice_is_fine_and_writes_nothing(world: World) -> None:
    store, queue = counted(world)
    ids = [task.id for task in queue.submit_many([("ok", 1), ("ok", 2)])]
    first = queue.cancel_many(ids)
    before = len(store.calls)

    assert queue.cancel_many(ids + ids) == first
    assert [call.op for call in store.calls[before:]] == ["get"]


def test_what_is_too_late_expires_and_is_not_cancelled(world: World) -> None:
    queue = world.queue()
    late = queue.submit("ok", 1, ttl_seconds=5)
    world.clock.advance(seconds=5)

    assert queue.cancel_many([late.id]).ended == (late.id,)
    assert queue.get(late.id).status is TaskStatus.EXPIRED


def test_a_single_id_is_taken_for_what_it_is(world: World) -> None:
    task = world.queue().submit("ok", 1)

    assert world.queue().cancel_many(task.id).cancelled == (task.id,)


def test_a_type_is_cancelled_whether_due_scheduled_or_running_and_no_other(world: World) -> None:
    queue = world.queue()
    later = queue.submit("slow", "later", delay=timedelta(days=1))
    other = queue.submit("ok", 1)
    with running(world, 3) as tasks:
        report = queue.cancel_by_type("slow", by="ann")

        assert set(report.cancelled) == {later.id, tasks[1].id, tasks[2].id}
        assert report.requested == (tasks[0].id,)
        assert (report.ended, report.not_found, report.errors) == ((), (), {})
    assert queue.get(other.id).status is TaskStatus.PENDING


def test_what_had_ended_is_no_part_of_the_report_on_a_type(world: World) -> None:
    queue = world.queue()
    first, second = queue.submit_many([("ok", 1), ("ok", 2)])
    queue.cancel(first.id)

    assert queue.cancel_by_type("ok") == CancelReport(cancelled=(second.id,))


def test_a_type_is_found_by_the_keys_alone(world: World) -> None:
    queue = world.queue()
    queue.submit_many([("email", number) for number in range(500)], batch_size=1)
    queue.submit_many([("ok", number) for number in range(200)])
    store, counting = counted(world)

    counting.cancel_by_type("ok")

    calls = Counter(call.op for call in store.calls)
    assert calls["list"] == 1
    assert calls["get"] == 2
    # The cancelled tasks of each batch are entered in the list of cancelled ones.
    assert calls["put"] == 2 * 2


def test_a_dry_run_tells_the_same_and_changes_nothing(world: World) -> None:
    queue = world.queue()
    with running(world, 3):
        before = world.batches(), world.index()
        store, counting = counted(world)

        dry = counting.cancel_by_type("slow", dry_run=True)

        assert {call.op for call in store.calls} == {"list", "get"}
        assert (world.batches(), world.index()) == before
        assert queue.cancel_by_type("slow") == dry


def test_what_is_no_type_is_refused(world: World) -> None:
    with pytest.raises(InvalidOptions, match="not a task type"):
        world.queue().cancel_by_type("no type")
    assert world.queue().cancel_by_type("unheard-of") == CancelReport()


def test_a_batch_that_cannot_be_read_does_not_keep_others_from_being_cancelled(
    world: World,
) -> None:
    queue = world.queue()
    broken, sound = queue.submit("ok", 1), queue.submit("ok", 2)
    world.store.put(batch_key(broken.batch_id), b"{")

    report = queue.cancel_by_type("ok")

    assert report.cancelled == (sound.id,)
    assert list(report.errors) == [broken.batch_id]
    assert queue.cancel_many([broken.id]).errors == report.errors


def test_a_store_that_is_away_is_told_of_and_what_is_left_can_be_cancelled_later(
    world: World,
) -> None:
    store, queue = counted(world)
    tasks = world.queue().submit_many([("ok", number) for number in range(5)], batch_size=1)
    store.fail_before(4, StoreUnavailable("No route."))

    with pytest.raises(StoreUnavailable):
        queue.cancel_many(task.id for task in tasks)

    assert len(queue.cancel_many(task.id for task in tasks).cancelled) == 5


def test_others_who_change_the_same_batch_are_no_hindrance(world: World) -> None:
    tasks = world.queue().submit_many([("ok", number) for number in range(4)])
    store = Meddler(world.store, lambda: world.queue(seed=7).mark_expired(tasks[0].id))

    report = world.queue(store, seed=4).cancel_many(task.id for task in tasks)

    assert report.ended == (tasks[0].id,)
    assert report.cancelled == tuple(task.id for task in tasks[1:])


class Meddler(FaultyStore):
    """A store in which somebody else is a bit faster, once."""

    def __init__(self, store: Any, act: Callable[[], Any]) -> None:
        super().__init__(store)
        self._act: Callable[[], Any] | None = act

    def commit(self, change: Any) -> Any:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().commit(change)


def test_a_crash_in_the_midst_leaves_no_task_out_of_sight() -> None:
    number = 0
    while True:
        number += 1
        world = World()
        tasks = world.queue().submit_many([("ok", each) for each in range(3)], batch_size=2)
        store, queue = counted(world)
        store.die_after(number)
        with suppress(Crash):
            queue.cancel_by_type("ok")
        if not store.is_dead:
            break
        assert world.missing_entries() == set()
        world.finish_all()
        assert all(world.statuses()[task.id].is_final for task in tasks)
    assert number > 5
