"""G5, G6: a task starts before its deadline or not at all, whatever happens to it on the way."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from buquet import InvalidOptions, RescheduleError, RetryPolicy, TaskExpired, TaskStatus, Worker
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def worker_with(world: World, handler: Any, task_type: str = "job", **settings: Any) -> Worker:
    worker = Worker(world.queue(seed=2), check=False, **settings)
    worker.task(task_type)(handler)
    return worker


def test_a_deadline_that_passes_while_another_task_has_the_thread_is_kept(world: World) -> None:
    ran: list[str] = []

    def handler(input: str) -> None:
        ran.append(input)
        world.clock.advance(seconds=5)

    queue = world.queue()
    queue.submit("job", "first", priority=1)
    behind = queue.submit("job", "behind", ttl_seconds=2)

    worker_with(world, handler, threads=1).drain()

    assert ran == ["first"]
    assert queue.get(behind.id).status is TaskStatus.EXPIRED


def test_a_claimed_task_whose_deadline_passes_before_it_has_a_thread_never_runs(
    world: World,
) -> None:
    ran: list[str] = []

    def handler(input: str) -> None:
        ran.append(input)
        world.clock.advance(seconds=5)

    tasks = world.queue().submit_many([("job", "first"), ("job", "claimed too")], ttl_seconds=2)
    worker = worker_with(world, handler)
    worker._registry.note_duration("job", 0.001)  # short tasks are claimed ahead

    worker.drain()

    assert ran == ["first"]
    found = world.queue().get(tasks[1].id)
    assert found.status is TaskStatus.EXPIRED
    assert [each.event for each in found.history] == ["created", "claimed", "expired"]
    assert "waited for a thread" in found.history[-1].details["reason"]


def test_a_retry_that_would_come_too_late_expires_the_task_there_and_then(world: World) -> None:
    calls: list[int] = []

    def handler(input: int) -> None:
        calls.append(input)
        raise ValueError("the printer is on fire")

    in_30_seconds = RetryPolicy(initial_seconds=30, jitter=0)
    task = world.queue().submit("job", 1, ttl_seconds=10, retry_policy=in_30_seconds)

    worker_with(world, handler).drain()

    found = world.queue().get(task.id)
    assert calls == [1]
    assert found.status is TaskStatus.EXPIRED
    assert "the printer is on fire" in (found.last_error or "")
    assert "not before its deadline" in found.history[-1].details["reason"]


def test_a_deadline_is_the_same_to_the_microsecond_after_every_retry(world: World) -> None:
    deadline = world.clock.now() + timedelta(days=1, microseconds=123457)
    task = world.queue().submit("job", 1, expires_at=deadline)

    def handler(input: int) -> None:
        raise ValueError("again")

    worker = worker_with(world, handler)
    for _ in range(3):
        worker.drain()
        world.clock.advance(minutes=10)
        assert world.queue().get(task.id).expires_at == deadline

    assert world.queue().get(task.id).retry_count == 3


def test_time_allowed_to_wait_and_time_allowed_to_run_are_two_things(world: World) -> None:
    task = world.queue().submit("job", 1, ttl_seconds=1, timeout_seconds=60)
    world.clock.advance(seconds=0.5)

    worker_with(world, lambda input: world.clock.advance(seconds=3)).drain()

    assert world.queue().get(task.id).status is TaskStatus.COMPLETED


def test_a_task_that_has_started_runs_on_though_sweepers_meet_its_deadline(world: World) -> None:
    task = world.queue().submit("job", 1, ttl_seconds=1)

    def handler(input: int, context: Any) -> str:
        for _ in range(10):
            world.clock.advance(seconds=0.2)
            assert world.sweeper().sweep_once(full=True).expired == 0
        assert context.remaining() < timedelta(0)
        return "late, but begun in time"

    worker_with(world, handler).drain()

    found = world.queue().get(task.id)
    assert (found.status, found.output) == (TaskStatus.COMPLETED, "late, but begun in time")


def test_a_window_is_kept_from_both_sides(world: World) -> None:
    queue, noon = world.queue(), world.clock.now()
    plain = queue.submit("ok", 1, schedule_at=noon + timedelta(minutes=5))
    window = queue.submit(
        "ok",
        2,
        schedule_at=noon + timedelta(minutes=5),
        expires_at=noon + timedelta(minutes=15),
    )
    world.worker().drain()
    assert world.runs == []

    world.clock.advance(minutes=30)
    world.worker().drain()

    assert world.runs == [plain.id]
    assert queue.get(window.id).status is TaskStatus.EXPIRED


def test_a_thousand_tasks_that_came_too_late_are_counted_and_not_called(world: World) -> None:
    queue = world.queue()
    queue.submit_many([("ok", number) for number in range(1000)], ttl_seconds=1)
    world.clock.advance(seconds=2)

    world.worker().drain()

    stats = queue.stats()
    assert world.runs == []
    assert stats.ended[TaskStatus.EXPIRED] == {"ok": 1000}
    assert stats.unfinished == {}


def test_putting_off_does_not_stretch_the_life_of_a_task(world: World) -> None:
    task = world.queue().submit("job", 1, ttl_seconds=60)

    def handler(input: int) -> None:
        raise RescheduleError(delay_seconds=25)

    worker = worker_with(world, handler)
    while not world.queue().get(task.id).status.is_final:
        worker.drain()
        world.clock.advance(seconds=25)

    found = world.queue().get(task.id)
    assert found.status is TaskStatus.EXPIRED
    assert found.expires_at == task.expires_at
    assert found.attempt == 0 or found.reschedule_count == 3


def test_a_handler_may_extend_the_deadline_when_it_puts_a_task_off(world: World) -> None:
    task = world.queue().submit("job", 1, ttl_seconds=60)
    calls: list[int] = []

    def handler(input: int) -> None:
        calls.append(input)
        if len(calls) == 1:
            raise RescheduleError(delay_seconds=90, extend_expiration_seconds=120)

    worker = worker_with(world, handler)
    worker.drain()
    world.clock.advance(seconds=90)
    worker.drain()

    found = world.queue().get(task.id)
    assert found.status is TaskStatus.COMPLETED
    assert task.expires_at is not None
    assert found.expires_at == task.expires_at + timedelta(seconds=120)
    assert found.attempt == 1


def test_extending_gives_no_deadline_to_a_task_that_has_none(world: World) -> None:
    task = world.queue().submit("job", 1)

    def handler(input: int) -> None:
        raise RescheduleError(delay_seconds=90, extend_expiration_seconds=120)

    worker_with(world, handler).drain()

    assert world.queue().get(task.id).expires_at is None


@pytest.mark.parametrize("count", [1, 3])
def test_a_type_that_nobody_handles_expires_all_the_same(world: World, count: int) -> None:
    world.queue().submit_many([("unknown", number) for number in range(count)], ttl_seconds=10)
    world.clock.advance(seconds=10)

    world.worker().drain()

    assert Counter(world.statuses().values()) == {TaskStatus.EXPIRED: count}


@pytest.mark.parametrize("by", ["worker", "sweeper"])
def test_a_task_scheduled_for_later_expires_when_its_window_has_closed(
    world: World, by: str
) -> None:
    task = world.queue().submit("ok", 1, delay=timedelta(minutes=5), ttl_seconds=60)
    world.clock.advance(minutes=6)

    if by == "worker":
        world.worker().drain()
    else:
        world.sweeper().sweep_once()

    assert world.queue().get(task.id).status is TaskStatus.EXPIRED
    assert world.runs == []


def test_expiring_keeps_the_input_and_touches_nothing_else(world: World) -> None:
    queue = world.queue()
    done = queue.submit("ok", {"keep": "me"}, ttl_seconds=10)
    world.worker().drain()
    gone = queue.submit("ok", 1, ttl_seconds=10)
    queue.cancel(gone.id)
    late = queue.submit("ok", {"keep": ["me", 2**70]}, ttl_seconds=10)
    world.clock.advance(minutes=1)

    world.sweeper().sweep_once(full=True)

    found = queue.get(late.id)
    assert (found.status, found.input) == (TaskStatus.EXPIRED, {"keep": ["me", 2**70]})
    assert found.expired_at == world.clock.now()
    assert queue.get(done.id).status is TaskStatus.COMPLETED
    assert queue.get(gone.id).status is TaskStatus.CANCELLED


def test_waiting_for_an_expired_task_gives_the_same_error_each_time(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1, ttl_seconds=1)
    world.clock.advance(seconds=1)
    world.sweeper().sweep_once()
    seen = []

    for _ in range(2):
        with pytest.raises(TaskExpired) as caught:
            queue.wait(task.id, timeout=5).result()
        seen.append(caught.value.expired_at)

    assert seen == [world.clock.now()] * 2


def test_cancelled_expired_and_failed_are_three_things(world: World) -> None:
    queue = world.queue()
    cancelled = queue.submit("ok", 1)
    queue.cancel(cancelled.id)
    expired = queue.submit("ok", 2, ttl_seconds=0)
    failed = queue.submit("job", 3, max_retries=0)

    def handler(input: int) -> None:
        raise ValueError("no")

    worker = worker_with(world, handler)
    worker.task("ok")(world.run)
    worker.drain()

    statuses = [queue.get(task.id).status for task in (cancelled, expired, failed)]
    assert statuses == ["cancelled", "expired", "failed"]
    assert [task.id for task in queue.list(status="expired")] == [expired.id]


def test_no_ttl_and_a_ttl_of_nothing_are_different(world: World) -> None:
    queue = world.queue()
    for_ever = queue.submit("ok", 1, ttl=None)
    never = queue.submit("ok", 2, ttl=timedelta(0))

    world.worker().drain()

    assert queue.get(for_ever.id).expires_at is None
    assert Counter(world.statuses().values()) == {"completed": 1, "expired": 1}
    assert world.runs == [for_ever.id]
    assert queue.get(never.id).status is TaskStatus.EXPIRED


def test_a_deadline_in_the_past_is_stored_and_expires_at_the_first_look(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1, expires_at=world.clock.now() - timedelta(days=365 * 80))
    assert task.status is TaskStatus.PENDING

    world.worker().drain()
    after = queue.submit("ok", 2)
    world.worker().drain()

    assert queue.get(task.id).status is TaskStatus.EXPIRED
    assert world.runs == [after.id]


@pytest.mark.parametrize(
    "options",
    [
        {"ttl_seconds": -5},
        {"ttl": timedelta(seconds=-1)},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": 1e300},
        {"ttl": timedelta.max},
        {"ttl": timedelta(1), "ttl_seconds": 5},
        {"ttl_seconds": 5, "expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 -- as users do
    ],
    ids=str,
)
def test_an_impossible_deadline_is_refused_and_nothing_is_stored(
    world: World, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOptions):
        world.queue().submit("ok", 1, **options)

    assert world.batches() == []


def test_a_pile_of_stale_work_after_downtime_does_not_run(world: World) -> None:
    queue = world.queue()
    for minute in range(60):
        start = world.clock.now() + timedelta(minutes=minute)
        queue.submit("ok", minute, schedule_at=start, ttl=timedelta(seconds=60))
    world.clock.advance(minutes=59, seconds=30)

    world.worker().drain()

    assert [queue.get(task_id).input for task_id in world.runs] == [59]
    assert Counter(world.statuses().values()) == {"expired": 59, "completed": 1}
