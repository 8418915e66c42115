"""Entries that a worker meets before their batches: a submit writes one after the other."""

from __future__ import annotations

import threading

from buquet import Worker
from buquet.core.keys import batch_key
from tests.helpers import World

LOOPS = 3  # poller, heartbeat, watchdog


def pass_seconds(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.clock.await_waiters(LOOPS)
        world.clock.advance(seconds=1)
    world.clock.await_waiters(LOOPS)


def test_a_task_whose_entry_was_met_before_its_batch_begins_within_moments() -> None:
    world = World()
    key = batch_key(world.queue().submit("job").batch_id)
    batch = world.store.get(key)
    assert batch is not None
    world.store.delete([key])
    worker = Worker(world.queue(seed=2), check=False, sweep_interval=None)
    has_begun = threading.Event()
    worker.task("job")(lambda input: has_begun.set())
    thread = threading.Thread(target=worker.run)
    thread.start()
    pass_seconds(world, 1)

    world.store.put(key, batch.body)
    pass_seconds(world, 2)

    assert has_begun.wait(10)
    worker.stop()
    thread.join(30)
