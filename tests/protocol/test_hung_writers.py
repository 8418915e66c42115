"""G2: a writer that hangs for longer than anybody would believe loses no task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from buquet.store import Conflict, Stored
from buquet.testing import Crash, FaultyStore
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


class HeldAfterItsRead(FaultyStore):
    """Has the process stopped when it has read a batch; meanwhile another changes that."""

    def __init__(self, world: World, change: Callable[[], object]) -> None:
        super().__init__(world.store)
        self.world, self.change = world, change

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        found = super().get(key, unless=unless)
        if key.startswith("tasks/"):
            self.change()
            self.world.clock.advance(hours=2)
        return found


def test_a_sweeper_held_for_hours_takes_no_young_entry_for_an_abandoned_one() -> None:
    world = World()
    early = FaultyStore(world.store)
    early.die_before(2)
    with suppress(Crash):
        world.queue(early).submit("ok", 1)
    store = HeldAfterItsRead(world, lambda: world.queue().submit("ok", 1))  # the very same ids

    world.sweeper(world.queue(store, seed=3)).sweep_once()

    assert len(world.batches()) == 1
    assert world.missing_entries() == set()


def test_nor_does_who_lists_what_has_ended() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    early = FaultyStore(world.store)
    early.die_before(3)
    with suppress(Crash):
        world.queue(early, seed=2).cancel(task.id)
    store = HeldAfterItsRead(world, lambda: world.queue(seed=3).cancel(task.id))

    list(world.queue(store, seed=4).list("cancelled"))

    assert world.missing_entries() == set()
    assert [each.id for each in world.queue().list("cancelled")] == [task.id]
