"""What many tests need: a world of a fake clock, a store in memory and queues on it."""

from __future__ import annotations

import random
from typing import Any

from attrs import define, field

from buquet import Queue, Sweeper, TaskStatus, Worker
from buquet.core.codec import decode_batch
from buquet.core.index import entries
from buquet.core.keys import BATCHES, ENDED, READY
from buquet.core.model import Batch
from buquet.store import Listed, MemoryStore, Store, walk
from buquet.testing import FakeClock

CRASH_POINTS = "crash points"
"""The property of a test that says at how many points an act was broken; the summary lists them."""


@define
class World:
    """A store that outlives all who use it, and the time."""

    clock: FakeClock = field(factory=FakeClock)
    store: Store = field(init=False)
    runs: list[str] = field(factory=list)
    """The ids of tasks whose handler was called, in order."""

    def __attrs_post_init__(self) -> None:
        self.store = MemoryStore(self.clock)

    def queue(self, store: Store | None = None, *, seed: int = 1) -> Queue:
        """A queue of a process of its own."""
        return Queue(store or self.store, chance=random.Random(seed), by=f"process-{seed}")

    def worker(self, queue: Queue | None = None, **settings: Any) -> Worker:
        """A worker whose handler for `ok` and others just returns."""
        worker = Worker(queue or self.queue(seed=random.getrandbits(32)), check=False, **settings)
        for task_type in ("ok", "email", "slow"):
            worker.task(task_type)(self.run)
        return worker

    def run(self, input: Any, context: Any) -> Any:
        """The handler: notes that it was called and returns its input."""
        self.runs.append(context.task.id)
        return input

    def sweeper(self, queue: Queue | None = None) -> Sweeper:
        """A sweeper in the calling thread."""
        return Sweeper(queue or self.queue(seed=random.getrandbits(32)), threads=1)

    def batches(self) -> list[Batch]:
        """All batches there are."""
        found = []
        for listed in self._listed(BATCHES):
            stored = self.store.get(listed.key)
            assert stored is not None
            found.append(decode_batch(stored.body, listed.key))
        return found

    def index(self) -> set[str]:
        """All keys of the index."""
        return {each.key for prefix in (READY, ENDED) for each in self._listed(prefix)}

    def ready(self) -> list[str]:
        """The keys of all ready entries."""
        return [each.key for each in self._listed(READY)]

    def _listed(self, prefix: str) -> list[Listed]:
        return list(walk(self.store, prefix))

    def missing_entries(self) -> set[str]:
        """The keys that batches want and that are not there: there must never be any."""
        wanted = {key for batch in self.batches() for key in entries(batch)}
        return wanted - self.index()

    def finish_all(self, rounds: int = 40) -> None:
        """Let time pass, with a fresh worker and sweeper now and then, until all has ended."""
        for _ in range(rounds):
            self.worker().drain()
            self.sweeper().sweep_once()
            if not any(batch.unfinished for batch in self.batches()):
                return
            self.clock.advance(minutes=2)

    def statuses(self) -> dict[str, TaskStatus]:
        """The status of each task there is."""
        return {task.id: task.status for batch in self.batches() for task in batch.tasks}
