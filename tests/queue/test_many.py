"""Replaying, archiving and resubmitting many: one write for all of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from buquet import InvalidOptions, Queue, StoreUnavailable, Task, TaskStatus, Worker
from buquet.core.keys import BATCHES, batch_key
from buquet.testing import FaultyStore
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def failed(world: World, count: int) -> list[Task]:
    """So many tasks that have failed, a hundred to a batch."""
    tasks = world.queue().submit_many([("bad", number) for number in range(count)], max_retries=0)
    worker = Worker(world.queue(seed=2), check=False)

    @worker.task("bad")
    def fail(input: int) -> None:
        raise ValueError

    worker.drain()
    return tasks


def counted(world: World) -> tuple[FaultyStore, Queue]:
    store = FaultyStore(world.store)
    return store, world.queue(store, seed=4)


def calls(store: FaultyStore) -> Counter[str]:
    return Counter(call.op for call in store.calls if call.key.startswith(BATCHES))


ACTS: dict[str, tuple[Callable[[Queue, list[str]], Any], TaskStatus]] = {
    "replay": (lambda queue, ids: queue.replay_many(ids, by="ann"), TaskStatus.PENDING),
    "archive": (lambda queue, ids: queue.archive_many(ids, by="ann"), TaskStatus.ARCHIVED),
}


@pytest.mark.parametrize("act", ACTS)
def test_all_of_a_batch_are_changed_with_one_read_and_one_write(world: World, act: str) -> None:
    tasks = failed(world, 250)
    store, queue = counted(world)
    change, status = ACTS[act]

    report = change(queue, [task.id for task in tasks])

    assert [task.id for task in report.changed] == [task.id for task in tasks]
    assert {task.status for task in report.changed} == {status}
    assert {task.history[-1].by for task in report.changed} == {"ann"}
    assert calls(store) == {"get": 3, "put": 3}
    assert set(world.statuses().values()) == {status}
    assert world.missing_entries() == set()


@pytest.mark.parametrize("act", ACTS)
def test_what_can_not_be_changed_is_told_of_and_costs_the_others_nothing(
    world: World, act: str
) -> None:
    (good,) = failed(world, 1)
    pending = world.queue(seed=7).submit("ok")
    damaged = world.queue(seed=8).submit("ok")
    world.store.put(batch_key(damaged.batch_id), b"{")
    change, _ = ACTS[act]

    report = change(world.queue(), [good.id, pending.id, "nonsense", damaged.id])

    assert [task.id for task in report.changed] == [good.id]
    assert report.refused.keys() == {pending.id}
    assert report.not_found == ("nonsense",)
    assert report.errors.keys() == {damaged.batch_id}


def test_replayed_tasks_run_again_with_the_new_deadline(world: World) -> None:
    tasks = failed(world, 3)

    report = world.queue().replay_many([task.id for task in tasks], ttl_seconds=60)

    assert {task.expires_at for task in report.changed} == {
        world.queue().now() + timedelta(seconds=60)
    }
    with pytest.raises(InvalidOptions):
        world.queue().replay_many([task.id for task in tasks], ttl_seconds=-1)


def test_new_tasks_like_many_that_have_ended_share_batches(world: World) -> None:
    tasks = failed(world, 250)
    (other,) = world.queue(seed=5).submit_many([("ok", 1)], priority=7)
    world.worker().drain()
    running = world.queue(seed=6).submit("ok")
    store, queue = counted(world)

    report = queue.resubmit_many(
        [*(task.id for task in tasks), other.id, running.id], ttl_seconds=9
    )

    assert [task.input for task in report.changed] == [*range(250), 1]
    assert report.changed[-1].priority == 7
    assert {task.max_retries for task in report.changed[:250]} == {0}
    assert all(task.expires_at is not None for task in report.changed)
    assert report.refused.keys() == {running.id}
    assert calls(store)["put"] == 4


# --- breaking off


class Interrupts(FaultyStore):
    """Has Ctrl-C pressed at a write of a batch, and counts those that follow."""

    def __init__(self, world: World, after: int, error: type[BaseException]) -> None:
        super().__init__(world.store)
        self.writes = 0
        self._after = after
        self._error = error

    def put(self, key: str, body: bytes, **condition: Any) -> Any:
        if key.startswith(BATCHES):
            self.writes += 1
            if self.writes == self._after:
                raise self._error
        return super().put(key, body, **condition)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreUnavailable])
@pytest.mark.parametrize("act", [*ACTS, "cancel"])
def test_what_has_not_begun_when_it_breaks_off_is_not_done(
    world: World, act: str, error: type[BaseException]
) -> None:
    tasks = [world.queue(seed=seed).submit("ok") for seed in range(100, 200)]
    if act == "cancel":
        change: Any = lambda queue, ids: queue.cancel_many(ids)  # noqa: E731
    else:
        world.worker().drain()
        change, _ = ACTS["archive"]
    store = Interrupts(world, 3, error)

    with pytest.raises(error) as caught:
        change(world.queue(store, seed=9), [task.id for task in tasks])

    changed = {TaskStatus.CANCELLED, TaskStatus.ARCHIVED} & set(world.statuses().values())
    done = sum(status in changed for status in world.statuses().values())
    assert store.writes < 40
    assert caught.value.__notes__ == [f"{done} tasks in {done} of 100 batches were done."]


def test_an_interrupted_submit_says_how_many_tasks_are_stored(world: World) -> None:
    store = Interrupts(world, 3, KeyboardInterrupt)

    with pytest.raises(KeyboardInterrupt) as caught:
        world.queue(store).submit_many([("ok", number) for number in range(1000)], batch_size=10)

    stored = len(world.statuses())
    assert stored < 400
    assert caught.value.__notes__ == [f"Of 1,000 tasks, {stored} were stored by then."]


# --- statuses, and objects that the store refuses


def test_tasks_of_several_statuses_are_listed(world: World) -> None:
    failed(world, 2)
    pending = world.queue(seed=5).submit("ok")
    late = world.queue(seed=6).submit("ok", ttl_seconds=0)
    world.sweeper().sweep_once()
    world.queue(seed=7).cancel(world.queue(seed=7).submit("ok").id)
    queue = world.queue()

    assert {task.status for task in queue.list(["failed", "expired"])} == {
        TaskStatus.FAILED,
        TaskStatus.EXPIRED,
    }
    assert [task.id for task in queue.list({"pending", "expired"})] == [pending.id, late.id]
    assert len(list(queue.list(list(TaskStatus)))) == len(world.statuses())
    with pytest.raises(InvalidOptions, match="'lost'"):
        queue.list(["failed", "lost"])


def test_lists_of_several_statuses_come_in_the_order_in_which_tasks_ended(world: World) -> None:
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
