"""Acts on many tasks that are broken off: what has not begun is not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from buquet import Queue, StoreUnavailable, TaskStatus
from buquet.core.keys import BATCHES
from buquet.testing import FaultyStore
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


ACTS: dict[str, Callable[[Queue, list[str]], Any]] = {
    "archive": lambda queue, ids: queue.archive_many(ids),
    "cancel": lambda queue, ids: queue.cancel_many(ids),
}


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


@pytest.mark.parametrize(
    ("act", "error"),
    [
        ("archive", KeyboardInterrupt),
        ("cancel", KeyboardInterrupt),
        ("cancel", StoreUnavailable),
    ],
)
def test_what_has_not_begun_when_it_breaks_off_is_not_done(
    world: World, act: str, error: type[BaseException]
) -> None:
    tasks = [world.queue(seed=seed).submit("ok") for seed in range(100, 200)]
    if act == "archive":
        world.worker().drain()
    store = Interrupts(world, 3, error)

    with pytest.raises(error) as caught:
        ACTS[act](world.queue(store, seed=9), [task.id for task in tasks])

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
