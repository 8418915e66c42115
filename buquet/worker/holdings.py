"""All that a worker holds: it opens a holding for a batch, and says when to look at it again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

from buquet.core import index
from buquet.core.model import Batch, Progress, TaskStatus
from buquet.errors import BuquetError, DamagedObject
from buquet.ledger.ledger import Loaded
from buquet.worker.agenda import Assignment, Candidate, Outcome
from buquet.worker.holding import Desk, Holding
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


class Holdings:
    """The holdings of a worker by batch."""

    def __init__(self, memory: Memory) -> None:
        self.desk: Desk
        self._memory = memory
        self._by_batch: dict[str, Holding] = {}
        self._lock = threading.Lock()

    def is_held(self, batch_id: str) -> bool:
        """Tell whether this worker holds a batch."""
        return batch_id in self._by_batch

    def assignments(self) -> list[Assignment]:
        """Return all claimed tasks."""
        return [assignment for holding in self._all() for assignment in holding.claims()]

    def running(self) -> Iterator[str]:
        """Walk the ids of all claimed tasks."""
        return (assignment.task.id for assignment in self.assignments())

    def progress(self) -> dict[str, Progress]:
        """Return how far the claimed tasks are whose handlers have reported, by their ids."""
        return {
            assignment.task.id: assignment.progress
            for holding in self._all()
            for assignment in holding.claims()
            if assignment.progress is not None
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
            Candidate(holding.entry, now)
            for holding in self._all()
            if self._may_claim(holding, now)
        ]

    def _may_claim(self, holding: Holding, now: datetime) -> bool:
        """Tell whether there is something due in a batch, and no limit keeps it from beginning."""
        is_open = not holding.is_blocked or self.desk.registry.may_begin(holding.batch.task_type)
        return is_open and holding.has_due(now)

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next task in a held batch is due."""
        dues = (holding.next_due(now) for holding in self._all())
        return min((due for due in dues if due is not None), default=None)

    def refresh(self) -> None:
        """Look for cancel requests in all batches with tasks that run.

        It stops as soon as the lease has to be renewed, and goes on there the next time.
        """
        for holding in sorted(self._all(), key=lambda each: each.refreshed_at):
            if not self.desk.lease.allows_claims(self.desk.ledger.now()):
                return
            if holding.claims():
                self._refresh(holding)

    def _refresh(self, holding: Holding) -> None:
        try:
            holding.refresh()
        except BuquetError as error:
            logger.warning("Batch %s is passed over: %s", holding.batch.id, error)

    def lose_lease(self) -> None:
        """Tell all handlers that the lease is lost."""
        for holding in self._all():
            holding.lose_lease()

    def write_gathered(self) -> None:
        """Write the results that have waited for too long for others to be written with.

        A try that took long and failed tells that the store is away: then the others wait too.
        """
        clock = self.desk.ledger.store.clock
        for holding in self._all():
            begun = clock.monotonic()
            if not holding.write_gathered() and clock.monotonic() - begun > SLOW_SECONDS:
                return

    def count_unwritten(self) -> int:
        """Count the batches for which something waits to be written, or is being written."""
        return sum(holding.is_unwritten for holding in self._all())

    def give_back(self, outcomes: list[Outcome]) -> None:
        """Write outcomes of claims that no thread has begun, batch by batch."""
        by_holding: dict[Holding, list[Outcome]] = {}
        for outcome in outcomes:
            holding = outcome.assignment.holding
            assert isinstance(holding, Holding)  # noqa: S101 -- a worker makes no others
            by_holding.setdefault(holding, []).append(outcome)
        for holding, mine in by_holding.items():
            holding.give_back(mine)
        self.write_gathered()

    def on_closed(self, holding: Holding) -> None:
        """Let go of a batch: hand it back to the agenda if it has more to do, or remember when."""
        if not self._release(holding) or not holding.batch.unfinished:
            return
        now = self.desk.ledger.now()
        look = self._next_look(holding.batch, now)
        if look > now:
            self._memory.remember(holding.entry.key, look)
        elif holding.is_blocked:
            self._memory.remember(holding.entry.key, now + BLOCKED_AGAIN)
        elif not self.desk.lease.allows_claims(now):
            self._memory.remember(holding.entry.key, now + LOOK_AGAIN)
        else:
            self.desk.agenda.hand_back(
                Candidate(holding.entry, now, holding.loaded, is_careful=holding.is_careful)
            )

    def _open(self, candidate: Candidate, loaded: Loaded, now: datetime) -> None:
        is_shared = self._others_are_at(loaded.batch, now)
        if is_shared and self.desk.agenda.has_other_candidates():
            self.desk.agenda.hand_back(
                Candidate(candidate.entry, candidate.modified, is_contended=True)
            )
            return
        is_open = False
        while not is_open:  # it may be closed between the two
            with self._lock:
                holding = self._by_batch.setdefault(loaded.batch.id, Holding(self.desk, loaded))
            is_open = holding.claim(sharing=is_shared)

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

    def _release(self, holding: Holding | None) -> bool:
        """Let go of a batch, unless there is something to be done in it; tell whether it is so."""
        with self._lock:
            if holding is None or not holding.close():
                return False
            if self._by_batch.get(holding.batch.id) is holding:
                del self._by_batch[holding.batch.id]
            return True

    def _all(self) -> list[Holding]:
        with self._lock:
            return list(self._by_batch.values())
