from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from buquet import Queue, TaskExpired, TaskNotFound, TaskStatus, WaitTimeout
from buquet.core.keys import new_batch_id, task_id
from buquet.store import MemoryStore
from buquet.testing import FakeClock, FaultyStore
from tests.helpers import World

DEADLINE = 20


@contextmanager
def in_a_thread(act: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do something in a thread; what it returns or raises is in the list once the block ends."""
    found: list[Any] = []

    def perform() -> None:
        try:
            found.append(act())
        except Exception as error:  # noqa: BLE001 -- what the test looks at
            found.append(error)

    thread = threading.Thread(target=perform, daemon=True)
    thread.start()
    yield found
    thread.join(DEADLINE)
    assert not thread.is_alive()


def pass_time(world: World, found: list[Any], *, step: float, most: int) -> None:
    """Move the clock each time that the thread waits for it, until it has come to an end."""
    for _ in range(most):
        with suppress(TimeoutError):
            world.clock.await_waiters(1, within=0.5)
        if found:
            return
        world.clock.advance(seconds=step)


@pytest.fixture
def world() -> World:
    return World(FakeClock(sleeping_advances=False))


def test_what_has_ended_is_not_waited_for(world: World) -> None:
    queue = world.queue()
    done, other = queue.submit_many([("ok", 1), ("ok", 2)])
    world.worker(queue).drain()

    assert queue.wait(done.id).output == 1
    assert [task.output for task in queue.wait([other.id, done.id])] == [2, 1]
    assert queue.wait([]) == ()


def test_a_change_through_the_same_queue_ends_the_wait_at_once(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    with in_a_thread(lambda: queue.wait(task.id)) as found:
        world.clock.await_waiters(1)
        queue.cancel(task.id)

    assert found[0].status is TaskStatus.CANCELLED


def test_a_change_by_another_process_is_seen_at_the_next_look(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    with in_a_thread(lambda: queue.wait(task.id, timeout=10)) as found:
        world.clock.await_waiters(1)
        world.queue(seed=2).cancel(task.id)
        world.clock.advance(seconds=2)

    assert found[0].status is TaskStatus.CANCELLED


def test_many_are_waited_for_until_the_last_has_ended(world: World) -> None:
    queue = world.queue()
    one, two = queue.submit("ok", 1), queue.submit("email", 2)

    with in_a_thread(lambda: queue.wait([two.id, one.id])) as found:
        world.clock.await_waiters(1)
        queue.cancel(one.id)
        world.clock.await_waiters(1)
        assert found == []
        queue.mark_expired(two.id)

    assert [task.status for task in found[0]] == [TaskStatus.EXPIRED, TaskStatus.CANCELLED]


@pytest.mark.parametrize("timeout", [30, timedelta(seconds=30), 30.0])
def test_when_time_is_up_the_error_says_what_has_not_ended(
    world: World, timeout: float | timedelta
) -> None:
    queue = world.queue()
    done, open_ = queue.submit_many([("ok", 1), ("email", 2)])
    queue.cancel(done.id)

    with in_a_thread(lambda: queue.wait([done.id, open_.id], timeout=timeout)) as found:
        pass_time(world, found, step=1, most=40)

    [error] = found
    assert isinstance(error, WaitTimeout)
    assert isinstance(error, TimeoutError)
    assert error.unfinished == (open_.id,)
    assert error.timeout == timedelta(seconds=30)
    assert "not ended within 30 seconds" in str(error)


@pytest.mark.parametrize("timeout", [0, timedelta(0), -5])
def test_no_time_at_all_means_one_look(world: World, timeout: float | timedelta) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    with pytest.raises(WaitTimeout):
        queue.wait(task.id, timeout=timeout)
    queue.cancel(task.id)
    assert queue.wait(task.id, timeout=timeout).status is TaskStatus.CANCELLED


def test_what_does_not_exist_is_not_waited_for(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    for wrong in (new_batch_id(99 << 64), task_id(task.batch_id, 5), "nonsense"):
        with in_a_thread(lambda wrong=wrong: queue.wait([task.id, wrong])) as found:  # type: ignore[misc]
            pass
        assert isinstance(found[0], TaskNotFound)
        assert found[0].task_id == wrong


def test_a_long_wait_looks_ever_less_often_and_reads_only_what_changed(world: World) -> None:
    store = FaultyStore(world.store)
    queue = world.queue(store)
    tasks = queue.submit_many([("ok", number) for number in range(50)])
    store.calls.clear()

    with in_a_thread(lambda: queue.wait([task.id for task in tasks], timeout=60)) as found:
        pass_time(world, found, step=0.05, most=2000)

    assert isinstance(found[0], WaitTimeout)
    assert {call.op for call in store.calls} == {"get"}
    assert 30 <= len(store.calls) <= 50


def test_an_expired_task_gives_the_same_error_on_every_read(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1, ttl_seconds=1)
    world.clock.advance(seconds=3)
    world.sweeper().sweep_once()

    errors = []
    for reader in (queue, queue, world.queue(seed=5)):
        with pytest.raises(TaskExpired) as expired:
            reader.wait(task.id, timeout=5).result()
        errors.append(expired.value)
    world.clock.advance(days=9)
    world.sweeper().sweep_once(full=True)
    with pytest.raises(TaskExpired) as expired:
        queue.get(task.id).result()

    assert {error.expired_at for error in [*errors, expired.value]} == {
        task.created_at + timedelta(seconds=3)
    }


def test_a_wait_leaves_nothing_behind_in_its_queue(world: World) -> None:
    queue = Queue(MemoryStore(world.clock))
    before = list(queue.ledger.observers)
    task = queue.submit("ok", 1)

    with pytest.raises(WaitTimeout):
        queue.wait(task.id, timeout=0)

    assert queue.ledger.observers == before


@pytest.mark.parametrize("write", [str.upper, uuid.UUID, "  {} ".format])
def test_an_id_is_known_however_it_is_written_and_a_change_ends_the_wait_at_once(
    world: World, write: Callable[[str], Any]
) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    with in_a_thread(lambda: queue.wait([write(task.id)])) as found:
        world.clock.await_waiters(1)
        queue.cancel(task.id)

    assert found[0][0].id == task.id
