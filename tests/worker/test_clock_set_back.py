"""A machine's clock that was ahead and is put right: nobody goes deaf for as long as it was off."""

from __future__ import annotations

from datetime import timedelta

import pytest

from buquet import TaskStatus
from tests.helpers import World

AHEAD = timedelta(days=1)


@pytest.fixture
def world() -> World:
    world = World()
    world.clock.skew = AHEAD
    return world


def test_a_worker_finds_what_is_submitted_after_the_clock_was_set_back(world: World) -> None:
    world.worker().drain()
    worker = world.worker()
    worker.drain()
    run = worker._run
    assert run is not None
    world.clock.skew = timedelta(0)
    task = world.queue().submit("ok")

    run.heartbeat.beat()
    run.drain()

    assert world.queue().get(task.id).status is TaskStatus.COMPLETED


def test_a_sweeper_finds_what_is_late_after_the_clock_was_set_back(world: World) -> None:
    sweeper = world.sweeper()
    sweeper.sweep_once()
    world.clock.skew = timedelta(0)
    task = world.queue().submit("fax", ttl_seconds=1)
    world.clock.advance(seconds=2)

    sweeper.sweep_once()

    assert world.queue().get(task.id).status is TaskStatus.EXPIRED
