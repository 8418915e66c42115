"""All that a worker holds: it opens a held for a batch, and says when to look at it again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

from buquet.core import index
from buquet.core.model import Batch, Progress, TaskStatus
from buquet.errors import BuquetError, DamagedObject
from buquet.ledger.ledger import Loaded
from buquet.worker.dispatcher import Claim, Candidate, Outcome
from buquet.worker.claimed_batch import Desk, ClaimedBatch
from buquet.worker.memory import Memory

logger = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=5)
"""When to look again at a batch that could not be read, or has been in the making for long."""

SLOW_SECONDS = 1.0
"""What takes longer, and fails, does so since the store is away."""

MAKING = timedelta(seconds=0.1)
"""How long a commit may take from its entry to its batch."""

BLOCKED_AGAIN = timedelta(seconds=1)
"""When to look again at a batch whose due tasks may not begin yet."""

DAMAGED_AGAIN = timedelta(minutes=10)
"""When to look again at a batch that is damaged."""


class Claims:
    """The claims of a worker by batch."""

    def __init__(self, memory: Memory) -> None:
        self.desk: Desk
        self._memory = memory
        self._by_batch: dict[str, ClaimedBatch] = {}
        self._lock = threading.Lock()

    def is_held(self, batch_id: str) -> bool:
        """Tell whether this worker holds a batch."""
        return batch_id in self._by_batch

    def claims(self) -> list[Claim]:
        """Return all claimed tasks."""
        return [claim for held in self._all() for claim in held.claims()]

    def running(self) -> Iterator[str]:
        """Walk the ids of all claimed tasks."""
        return (claim.task.id for claim in self.claims())

    def progress(self) -> dict[str, Progress]:
        """Return how far the claimed tasks are whose handlers have reported, by their ids."""
        return {
            claim.task.id: claim.progress
            for held in self._all()
            for claim in held.claims()
            if claim.progress is not None
        }

    def look_into(self, candidate: Candidate) -> None:
        """Read a batch, settle what is due in it, and claim what there is room for."""
        batch_id, key = candidate.entry.batch_id, candidate.entry.key
        now = self.desk.ledger.now()
        try:
            self._look_into(candidate, now)
        except DamagedObject as error:
            logger.warning("Batch %s is passed over: %s", batch_id, error)
            self._release(self._by_batch.get(batch_id))
            self._memory.remember(key, now + DAMAGED_AGAIN)
        except BuquetError as error:
            logger.warning("Batch %s is passed over: %s", batch_id, error)
            self._release(self._by_batch.get(batch_id))
            self._memory.remember(key, now + LOOK_AGAIN)

    def _look_into(self, candidate: Candidate, now: datetime) -> None:
        held = self._by_batch.get(candidate.entry.batch_id)
        if held is not None and held.claim(sharing=False):
            return
        if not (candidate.loaded or self._memory.is_worth_a_look(candidate.entry.key, now)):
            return  # it was done with while it waited for its turn
        found = candidate.loaded or self.desk.ledger.meet(candidate.entry, candidate.modified)
        if isinstance(found, Loaded):
            self._open(candidate, found, now)
        else:  # it leads nowhere, or not yet
            # As long again as it has been there: its commit takes a moment more, or was abandoned.
            age = now - candidate.modified
            self._memory.remember(candidate.entry.key, now + min(max(age, MAKING), LOOK_AGAIN))

    def due(self, now: datetime) -> list[Candidate]:
        """Return the held batches in which more could be claimed: retries whose wait is over."""
        if not self.desk.lease.allows_claims(now):
            return []
        return [
            Candidate(held.entry, now)
            for held in self._all()
            if self._may_claim(held, now)
        ]

    def _may_claim(self, held: ClaimedBatch, now: datetime) -> bool:
        """Tell whether there is something due in a batch, and no limit keeps it from beginning."""
        is_open = not held.is_blocked or self.desk.registry.may_begin(held.batch.task_type)
        return is_open and held.has_due(now)

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next task in a held batch is due."""
        dues = (held.next_due(now) for held in self._all())
        return min((due for due in dues if due is not None), default=None)

    def refresh(self) -> None:
        """Look for cancel requests in all batches with tasks that run.

        It stops as soon as the lease has to be renewed, and goes on there the next time.
        """
        for held in sorted(self._all(), key=lambda each: each.refreshed_at):
            if not self.desk.lease.allows_claims(self.desk.ledger.now()):
                return
            if held.claims():
                self._refresh(held)

    def _refresh(self, held: ClaimedBatch) -> None:
        try:
            held.refresh()
        except BuquetError as error:
            logger.warning("Batch %s is passed over: %s", held.batch.id, error)

    def lose_lease(self) -> None:
        """Tell all handlers that the lease is lost."""
        for held in self._all():
            held.lose_lease()

    def write_gathered(self) -> None:
        """Write the results that have waited for too long for others to be written with.

        A try that took long and failed tells that the store is away: then the others wait too.
        """
        clock = self.desk.ledger.store.clock
        for held in self._all():
            begun = clock.monotonic()
            if not held.write_gathered() and clock.monotonic() - begun > SLOW_SECONDS:
                return

    def count_unwritten(self) -> int:
        """Count the batches for which something waits to be written, or is being written."""
        return sum(held.is_unwritten for held in self._all())

    def give_back(self, outcomes: list[Outcome]) -> None:
        """Write outcomes of claims that no thread has begun, batch by batch."""
        by_holding: dict[ClaimedBatch, list[Outcome]] = {}
        for outcome in outcomes:
            held = outcome.claim.held
            assert isinstance(held, ClaimedBatch)  # noqa: S101 -- a worker makes no others
            by_holding.setdefault(held, []).append(outcome)
        for held, mine in by_holding.items():
            held.give_back(mine)
        self.write_gathered()

    def on_closed(self, held: ClaimedBatch) -> None:
        """Let go of a batch: hand it back to the dispatcher if it has more to do, or remember when."""
        if not self._release(held) or not held.batch.unfinished:
            return
        now = self.desk.ledger.now()
        look = self._next_look(held.batch, now)
        if look > now:
            self._memory.remember(held.entry.key, look)
        elif held.is_blocked:
            self._memory.remember(held.entry.key, now + BLOCKED_AGAIN)
        elif not self.desk.lease.allows_claims(now):
            self._memory.remember(held.entry.key, now + LOOK_AGAIN)
        else:
            self.desk.dispatcher.hand_back(
                Candidate(held.entry, now, held.loaded, is_careful=held.is_careful)
            )

    def _open(self, candidate: Candidate, loaded: Loaded, now: datetime) -> None:
        is_shared = self._others_are_at(loaded.batch, now)
        if is_shared and self.desk.dispatcher.has_other_candidates():
            self.desk.dispatcher.hand_back(
                Candidate(candidate.entry, candidate.modified, is_contended=True)
            )
            return
        is_open = False
        while not is_open:  # it may be closed between the two
            with self._lock:
                held = self._by_batch.setdefault(loaded.batch.id, ClaimedBatch(self.desk, loaded))
            is_open = held.claim(sharing=is_shared)

    def _next_look(self, batch: Batch, now: datetime) -> datetime:
        """Return when the batch next has something that this worker can do."""
        try:
            leases = self.desk.ledger.workers.leases(batch, now)
        except BuquetError:
            return now + LOOK_AGAIN
        if batch.task_type in self.desk.registry.handlers:
            look = index.next_event(batch, leases)
        else:
            look = index.next_settling(batch, leases)
        return look or now + DAMAGED_AGAIN

    def _others_are_at(self, batch: Batch, now: datetime) -> bool:
        leases = self.desk.ledger.workers.leases(batch, now)
        return any(
            task.status is TaskStatus.RUNNING
            and task.worker_id != self.desk.worker_id
            and index.held_until(task, leases) > now
            for task in batch.tasks
        )

    def _release(self, held: ClaimedBatch | None) -> bool:
        """Let go of a batch, unless there is something to be done in it; tell whether it is so."""
        with self._lock:
            if held is None or not held.close():
                return False
            if self._by_batch.get(held.batch.id) is held:
                del self._by_batch[held.batch.id]
            return True

    def _all(self) -> list[ClaimedBatch]:
        with self._lock:
            return list(self._by_batch.values())
