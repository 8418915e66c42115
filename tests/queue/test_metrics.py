from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from buquet import PermanentError, Queue, RescheduleError, Worker
from buquet.store import Change, Conflict
from buquet.testing import FaultyStore
from tests.helpers import World


def sample(name: str, task_type: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"buquet_{name}", {"task_type": task_type} | labels) or 0


EVENTS = (
    "submitted", "claimed", "completed", "failed", "retried", "rescheduled", "released",
    "recovered", "expired", "cancelled", "replayed",
)  # fmt: skip


class Meter:
    """What the counters of a task type have gone up by since it was made."""

    def __init__(self, task_type: str) -> None:
        self._task_type = task_type
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        return {name: sample(f"tasks_{name}_total", self._task_type) for name in EVENTS}

    def changes(self) -> dict[str, float]:
        gone_up = {name: value - self._before[name] for name, value in self._read().items()}
        return {name: value for name, value in gone_up.items() if value}


@pytest.fixture
def world() -> World:
    return World()


def drain(queue: Queue, handler: Callable[..., Any], task_type: str = "ok") -> None:
    worker = Worker(queue, check=False)
    worker.task(task_type)(handler)
    worker.drain()


def raising(error: Exception) -> Callable[[Any], None]:
    def handler(input: Any) -> None:
        raise error

    return handler


def test_counters_follow_a_task_through_its_life(world: World) -> None:
    queue, meter = world.queue(), Meter("ok")
    task = queue.submit("ok", 1)
    drain(queue, raising(ValueError("again")))
    world.clock.advance(minutes=1)
    drain(queue, raising(RescheduleError(1)))
    world.clock.advance(minutes=1)
    drain(queue, raising(PermanentError("no")))
    queue.replay(task.id)
    drain(queue, lambda input: None)

    assert meter.changes() == {
        "submitted": 1, "claimed": 4, "retried": 1, "rescheduled": 1, "failed": 1, "replayed": 1,
        "completed": 1,
    }  # fmt: skip


def test_each_task_that_expires_counts_once_whoever_meets_it(world: World) -> None:
    queue, meter, other = world.queue(), Meter("ok"), Meter("email")
    queue.submit_many([("ok", number) for number in range(10)], ttl_seconds=1)
    queue.submit("ok", 1)
    queue.submit("email", 1)
    world.clock.advance(seconds=1)

    for _ in range(2):
        world.sweeper(world.queue(seed=2)).sweep_once()

    assert meter.changes() == {"submitted": 11, "expired": 10}
    assert other.changes() == {"submitted": 1}


def test_cancelling_twice_counts_once_and_a_refusal_not_at_all(world: World) -> None:
    queue, meter = world.queue(), Meter("ok")
    task = queue.submit("ok", 1)

    queue.cancel(task.id)
    queue.cancel(task.id)
    with pytest.raises(ValueError, match="ttl"):
        queue.submit("ok", 1, ttl_seconds=-1)

    assert meter.changes() == {"submitted": 1, "cancelled": 1}


def test_the_time_to_live_is_measured_from_when_a_task_is_due(world: World) -> None:
    queue = world.queue()
    before = [sample("task_ttl_seconds_sum", "slow"), sample("task_ttl_seconds_count", "slow")]

    queue.submit("slow", 1, ttl_seconds=60)
    queue.submit("slow", 1, ttl_seconds=60, delay=timedelta(hours=1))
    queue.submit("slow", 1, expires_at=world.clock.now() - timedelta(hours=1))
    queue.submit("slow", 1)

    assert sample("task_ttl_seconds_sum", "slow") - before[0] == 120
    assert sample("task_ttl_seconds_count", "slow") - before[1] == 3


def test_the_time_an_attempt_took_is_measured_from_its_claim(world: World) -> None:
    queue = world.queue()
    before = sample("task_duration_seconds_sum", "slow")
    queue.submit("slow", 1)
    world.clock.advance(seconds=100)

    drain(queue, lambda input: world.clock.advance(seconds=7), "slow")

    assert sample("task_duration_seconds_sum", "slow") - before == pytest.approx(7)


def test_what_is_near_its_deadline_is_known_from_the_last_sweep(world: World) -> None:
    queue = world.queue()
    queue.submit_many([("ok", number) for number in range(3)], ttl_seconds=120)
    queue.submit("ok", 1, ttl_seconds=9999)

    world.sweeper(queue).sweep_once()
    assert sample("tasks_near_expiration", "ok") == 3
    assert sample("tasks_ready", "ok") == 4

    world.clock.advance(seconds=120)
    for _ in range(2):
        world.sweeper(queue).sweep_once()
    assert sample("tasks_near_expiration", "ok") == 0
    assert sample("tasks_ready", "ok") == 1


def test_a_lost_race_is_counted(world: World) -> None:
    class Beaten(FaultyStore):
        """A store in which somebody else gets in between, once."""

        is_done = False

        def commit(self, change: Change) -> str | Conflict:
            stored = self.store.get(change.key)
            if stored and not self.is_done:
                self.is_done = True
                self.store.put(change.key, stored.body)
            return super().commit(change)

    queue = world.queue(Beaten(world.store))
    before, meter = sample("commit_conflicts_total", "ok"), Meter("ok")
    task = queue.submit("ok", 1)

    queue.cancel(task.id)

    assert sample("commit_conflicts_total", "ok") - before == 1
    assert meter.changes() == {"submitted": 1, "cancelled": 1}
