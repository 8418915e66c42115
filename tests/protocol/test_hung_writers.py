"""G2: a writer that hangs for longer than anybody would believe loses no task."""

from __future__ import annotations

from buquet.store import Conflict
from buquet.testing import FaultyStore
from tests.helpers import World


class Held(FaultyStore):
    """Has the process stopped, as by SIGSTOP, when all is ready for the decision to be sent."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.world = world

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if if_match or if_absent:
            self.world.clock.advance(hours=2)
            self.world.sweeper().sweep_once()  # it takes the entry for a stray
        return super().put(key, body, if_match=if_match, if_absent=if_absent)


def test_a_submit_held_for_hours_between_its_check_and_its_write_is_found_all_the_same() -> None:
    world = World()

    task = world.queue(Held(world)).submit("ok", 1)

    assert world.missing_entries() == set()
    world.worker().drain()
    assert world.runs == [task.id]


def test_so_is_a_task_whose_change_was_held() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    world.queue(seed=2).cancel(task.id)

    world.queue(Held(world), seed=3).replay(task.id)

    assert world.missing_entries() == set()
    world.worker().drain()
    assert world.runs == [task.id]
