"""Replaying, archiving and resubmitting many tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from buquet import (
    CannotArchive,
    CannotReplay,
    CannotResubmit,
    InvalidOptions,
    Queue,
    StoreUnavailable,
    Task,
    TaskNotFound,
    TaskStatus,
)
from buquet.store import MemoryStore
from buquet.testing import FakeClock, FaultyStore
from tests.helpers import World

NOBODY = "00000000-0000-0000-0000-000000000000"


def cancelled(queue: Queue, number: int) -> list[Task]:
    tasks = queue.submit_many([("a", n) for n in range(number)])
    queue.cancel_many(task.id for task in tasks)
    return tasks


def test_replaying_many_tasks_takes_one_write_for_each_batch() -> None:
    world = World()
    queue = world.queue()
    tasks = cancelled(queue, 250)
    versions = {batch.id: len(batch.tasks) for batch in world.batches()}
    writes: list[str] = []
    queue.ledger.observers.append(lambda commit: writes.append(commit.new.id))

    report = queue.replay_many([task.id for task in reversed(tasks)], ttl_seconds=60)

    assert sorted(writes) == sorted(versions)
    assert [task.id for task in report.changed] == [task.id for task in reversed(tasks)]
    assert {task.status for task in report.changed} == {TaskStatus.PENDING}
    assert {task.expires_at for task in report.changed} == {queue.now() + timedelta(seconds=60)}
    assert report.errors == {}


def test_each_of_many_that_could_not_be_changed_has_its_error() -> None:
    queue = World().queue()
    good, pending = queue.submit_many([("a", 1), ("a", 2)])
    expired = queue.submit("b")
    queue.cancel(good.id)
    queue.mark_expired(expired.id)
    ids = [expired.id, NOBODY, pending.id, "not an id", good.id.upper()]

    replayed = queue.replay_many(ids)
    archived = queue.archive_many(ids)

    assert [task.id for task in replayed.changed] == [good.id]
    assert {task_id: type(error) for task_id, error in replayed.errors.items()} == {
        expired.id: CannotReplay,
        NOBODY: TaskNotFound,
        pending.id: CannotReplay,
        "not an id": TaskNotFound,
    }
    assert [task.id for task in archived.changed] == [expired.id]
    assert {type(error) for error in archived.errors.values()} == {CannotArchive, TaskNotFound}


def test_replayed_tasks_are_found_by_a_worker_at_once() -> None:
    world = World()
    queue = world.queue()
    tasks = queue.submit_many([("ok", n) for n in range(3)])
    queue.cancel_many(task.id for task in tasks)

    queue.replay_many(task.id for task in tasks)
    world.worker(queue).drain()

    assert sorted(world.runs) == sorted(task.id for task in tasks)


def test_resubmitting_many_tasks_keeps_the_options_of_each_and_shares_batches() -> None:
    world = World()
    queue = world.queue()
    tasks = queue.submit_many([("a", n) for n in range(150)], priority=5)
    tasks += queue.submit_many([("b", n) for n in range(3)], max_retries=0)
    queue.cancel_many(task.id for task in tasks)
    running = queue.submit("a")
    before = len(world.batches())

    report = queue.resubmit_many([*(task.id for task in tasks), running.id], ttl_seconds=60)

    assert [
        (each.task_type, each.input, each.priority, each.max_retries) for each in report.changed
    ] == [(each.task_type, each.input, each.priority, each.max_retries) for each in tasks]
    assert not {each.id for each in report.changed} & {each.id for each in tasks}
    assert {each.status for each in report.changed} == {TaskStatus.PENDING}
    assert len(world.batches()) == before + 3
    assert isinstance(report.errors[running.id], CannotResubmit)


@pytest.mark.parametrize("act", ["replay_many", "archive_many", "resubmit_many"])
def test_the_report_is_complete_when_the_store_goes_away(act: str) -> None:
    store = FaultyStore(MemoryStore(FakeClock()))
    queue = Queue(store)
    tasks = [queue.submit("a", n) for n in range(30)]
    queue.cancel_many(task.id for task in tasks)
    for number in range(len(store.calls) + 20, len(store.calls) + 5000):
        store.fail_before(number, StoreUnavailable("The store is away."))

    report = getattr(queue, act)([task.id for task in tasks])

    assert len(report.changed) + len(report.errors) == 30
    assert {type(error) for error in report.errors.values()} == {StoreUnavailable}
    assert act == "resubmit_many" or report.changed


@pytest.mark.parametrize("options", [{"ttl_seconds": -1}, {"ttl_seconds": 1, "ttl": timedelta(1)}])
def test_a_wrong_deadline_is_refused_before_anything_changes(options: dict[str, Any]) -> None:
    queue = World().queue()
    (task,) = cancelled(queue, 1)

    for act in (queue.replay_many, queue.resubmit_many):
        with pytest.raises(InvalidOptions):
            act([task.id], **options)
    assert queue.get(task.id).status is TaskStatus.CANCELLED


def test_no_ids_are_no_changes() -> None:
    queue = World().queue()

    assert queue.replay_many([]) == queue.resubmit_many([]) == queue.archive_many([])


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        (["failed", "expired", "cancelled"], "dcb"),
        (["pending", "running"], "ae"),
        (["pending", TaskStatus.EXPIRED], "aedc"),
        ([], ""),
    ],
    ids=str,
)
def test_a_list_takes_several_statuses(statuses: list[str], found: str) -> None:
    world = World()
    queue = world.queue()
    tasks = {name: queue.submit(name) for name in "eabcd"}
    for name in "bcd":
        world.clock.advance(seconds=1)
        act = queue.cancel if name == "b" else queue.mark_expired
        act(tasks[name].id)

    assert sorted(task.task_type for task in queue.list(statuses)) == sorted(found)
    if "pending" not in statuses:
        assert "".join(task.task_type for task in queue.list(statuses)) == found


def test_lists_of_several_statuses_come_in_the_order_in_which_tasks_ended() -> None:
    world = World()
    ended = []
    for number in range(4):
        queue = world.queue(seed=10 + number)
        task = queue.submit("ok", ttl_seconds=0 if number % 2 else None)
        if number % 2:
            world.sweeper().sweep_once()
        else:
            queue.cancel(task.id)
        ended.append(task.id)
        world.clock.advance(minutes=2)

    assert [task.id for task in world.queue().list(["cancelled", "expired"])] == ended[::-1]
