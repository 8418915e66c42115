"""All decisions are by the store's clock: machines that are off, zones and the change of clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from buquet import Queue, TaskStatus
from buquet.testing import FakeClock, FaultyStore
from tests.helpers import World


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def elsewhere(world: World, skew: timedelta, *, seed: int = 2) -> Queue:
    """A queue on a machine whose clock is off."""
    store = FaultyStore(world.store)
    store.clock = FakeClock(world.clock.now(), skew=skew)
    return world.queue(store, seed=seed)


SKEWS = [
    timedelta(hours=-1),
    timedelta(seconds=-120),
    timedelta(seconds=120),
    timedelta(hours=1),
    timedelta(days=400),
]


@pytest.mark.parametrize("skew", SKEWS)
def test_a_fresh_task_is_started_by_a_worker_whose_clock_is_off(skew: timedelta) -> None:
    world = World()
    task = world.queue().submit("ok", 1, ttl_seconds=60)

    world.worker(elsewhere(world, skew)).drain()

    assert world.queue().get(task.id).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("skew", SKEWS)
def test_a_late_task_is_not_started_by_a_worker_whose_clock_is_off(skew: timedelta) -> None:
    world = World()
    task = world.queue().submit("ok", 1, ttl_seconds=60)
    world.clock.advance(seconds=60)

    world.worker(elsewhere(world, skew)).drain()

    assert world.runs == []
    assert world.queue().get(task.id).expired_at == world.clock.now()


@pytest.mark.parametrize("skew", SKEWS)
def test_a_machine_whose_clock_is_off_submits_for_the_right_time(skew: timedelta) -> None:
    world = World()

    task = elsewhere(world, skew).submit("ok", 1, delay=timedelta(seconds=30), ttl_seconds=60)

    assert task.created_at == world.clock.now()
    assert task.available_at == world.clock.now() + timedelta(seconds=30)
    assert task.expires_at == world.clock.now() + timedelta(seconds=90)
    world.worker().drain()
    assert world.runs == []
    world.clock.advance(seconds=30)
    world.worker().drain()
    assert world.runs == [task.id]


@pytest.mark.parametrize("skew", SKEWS)
def test_a_sweep_from_a_machine_whose_clock_is_off_expires_what_is_late_and_no_more(
    skew: timedelta,
) -> None:
    world = World()
    queue = world.queue()
    late = queue.submit("ok", 1, ttl_seconds=10)
    fresh = queue.submit("ok", 2, ttl_seconds=60)
    world.clock.advance(seconds=10)

    report = world.sweeper(elsewhere(world, skew)).sweep_once(full=True)

    assert report.expired == 1
    assert queue.get(late.id).status is TaskStatus.EXPIRED
    assert queue.get(fresh.id).status is TaskStatus.PENDING


@pytest.mark.usefixtures("berlin")
def test_a_naive_deadline_is_local_time() -> None:
    world = World()
    christmas = datetime(2026, 12, 24, 17, 0)  # noqa: DTZ001

    task = world.queue().submit("ok", 1, expires_at=christmas)

    assert task.expires_at == datetime(2026, 12, 24, 16, 0, tzinfo=UTC)
    assert world.queue().get(task.id).expires_at == task.expires_at


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)])
def test_a_span_over_the_change_of_the_clocks_is_as_long_as_it_says(
    day: tuple[int, int, int],
) -> None:
    world = World(FakeClock(datetime(*day, tzinfo=UTC)))
    queue = world.queue()
    task = queue.submit("ok", 1, ttl=timedelta(hours=2))

    world.clock.advance(hours=1, minutes=59, seconds=59)
    assert world.sweeper().sweep_once().expired == 0
    world.clock.advance(seconds=1)
    assert world.sweeper().sweep_once().expired == 1
    assert queue.get(task.id).status is TaskStatus.EXPIRED


def test_a_window_is_kept_from_both_sides() -> None:
    noon = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    for start, runs in ((-1, 0), (0, 1), (14, 1), (15, 0), (30, 0)):
        world = World(FakeClock(noon - timedelta(minutes=60)))
        world.queue().submit("ok", 1, schedule_at=noon, expires_at=noon + timedelta(minutes=15))
        world.clock.advance(minutes=60 + start)

        world.worker().drain()

        assert len(world.runs) == runs


def test_what_is_overdue_without_a_deadline_runs_at_once() -> None:
    world = World()
    task = world.queue().submit("ok", 1, schedule_at=world.clock.now() + timedelta(minutes=5))
    world.clock.advance(days=30)

    world.worker().drain()

    assert world.runs == [task.id]


@pytest.mark.parametrize("options", [{"ttl_seconds": 0}, {"ttl": timedelta(0)}])
def test_a_task_without_any_time_is_stored_and_never_runs(options: dict[str, timedelta]) -> None:
    world = World()
    task = world.queue().submit("ok", 1, **options)  # type: ignore[arg-type]

    assert world.queue().get(task.id).status is TaskStatus.PENDING
    world.worker().drain()

    assert world.runs == []
    assert world.queue().get(task.id).status is TaskStatus.EXPIRED
