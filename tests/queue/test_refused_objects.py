"""An object that the store refuses to give out, such as one in an archive, costs no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from buquet import Queue, StoreRefused, TaskStatus
from buquet.core.keys import batch_key
from buquet.store import Stored
from buquet.testing import FaultyStore
from tests.helpers import World


class Archived(FaultyStore):
    """Does not give out one object."""

    def __init__(self, world: World, key: str) -> None:
        super().__init__(world.store)
        self._archived = key

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        if key == self._archived:
            raise StoreRefused("InvalidObjectState: it is in an archive.")
        return super().get(key, unless=unless)


@pytest.fixture
def world() -> World:
    return World()


WALKS: dict[str, Callable[[Queue], Any]] = {
    "list": lambda queue: [task.id for task in queue.list()],
    "list pending": lambda queue: [task.id for task in queue.list("pending")],
    "cancel by type": lambda queue: list(queue.cancel_by_type("ok").cancelled),
    "stats": lambda queue: [None] * queue.stats().unfinished["ok"].ready,
}


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_goes_on_past_it_and_warns_once(
    world: World, walk: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [world.queue(seed=seed).submit("ok") for seed in range(5)]
    queue = world.queue(Archived(world, batch_key(tasks[2].batch_id)), seed=9)

    found = WALKS[walk](queue)
    for _ in range(3):
        WALKS[walk](queue)

    assert len(found) == 4
    said = [each for each in caplog.records if tasks[2].batch_id in each.getMessage()]
    assert len([each for each in said if each.levelname == "WARNING"]) == (walk != "cancel by type")


def test_workers_and_sweeps_go_on_past_it_and_warn_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [world.queue(seed=seed).submit("ok", ttl_seconds=600) for seed in range(5)]
    archived = tasks[2]
    store = Archived(world, batch_key(archived.batch_id))
    worker = world.worker(world.queue(store, seed=9))
    sweeper = world.sweeper(world.queue(store, seed=8))

    for _ in range(20):
        worker.drain()
        world.clock.advance(seconds=50)
        report = sweeper.sweep_once()

    assert report.errors == 1
    statuses = world.statuses()
    assert statuses.pop(archived.id) is TaskStatus.PENDING
    assert set(statuses.values()) == {TaskStatus.COMPLETED}
    warned = [
        each.name
        for each in caplog.records
        if each.levelname == "WARNING" and archived.batch_id in each.getMessage()
    ]
    assert len(warned) == 2  # a queue of the worker's, and one of the sweeper's
