"""All claims of a worker, batch by batch: it opens a batch, and lets it go when nothing is left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

from buquet.core import index
from buquet.core.model import Batch, Progress, TaskStatus
from buquet.errors import BuquetError
from buquet.ledger.ledger import OF_ONE_BATCH, Loaded
from buquet.worker.backoff import Backoff
from buquet.worker.claimed_batch import ClaimedBatch, Shared, released
from buquet.worker.jobs import Candidate, Claim, Outcome
from buquet.worker.read_after import ReadAfter

logger = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=5)
"""When to read a batch again that could not be read, or whose commit takes long."""

SLOW_SECONDS = 1.0
"""What takes longer, and fails, does so because the store is away."""

MAKING = timedelta(seconds=0.1)
"""How long a commit may take from its entry to its batch."""

BLOCKED_AGAIN = timedelta(seconds=1)
"""When to read a batch again whose due tasks may not begin yet."""

DAMAGED_AGAIN = timedelta(minutes=10)
"""When to read a batch again that is damaged."""

WAITS_AT_MOST = 5.0
"""Seconds that a task claimed ahead waits for a thread before others may have it."""

HOPELESS = 8
"""After so many failures in a row, about a minute, a burst no longer waits to write its results."""


class Claims:
    """The claims of a worker by batch.

    Args:
        shared: what the claims share.
        read_after: remembers when each batch is worth a read.
    """

    def __init__(self, shared: Shared, read_after: ReadAfter) -> None:
        self._shared = shared
        self._read_after = read_after
        self._backoff = Backoff(shared.ledger.store.clock)
        self._by_batch: dict[str, ClaimedBatch] = {}
        self._lock = threading.Lock()

    # --- what there is

    def is_held(self, batch_id: str) -> bool:
        """Return whether this worker has claims in a batch."""
        return batch_id in self._by_batch

    def all(self) -> list[Claim]:
        """Return all claimed tasks."""
        return [claim for held in self._held() for claim in held.claims()]

    def progress(self) -> dict[str, Progress]:
        """Return what handlers have reported, by the ids of their tasks."""
        return {claim.task.id: claim.progress for claim in self.all() if claim.progress is not None}

    def due(self, now: datetime) -> list[Candidate]:
        """Return the held batches in which more could be claimed: retries whose wait is over."""
        if not self._shared.lease.allows_claims(now) or self._backoff.left():
            return []
        return [Candidate(held.entry, now) for held in self._held() if self._may_claim(held, now)]

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next task in a held batch is due, or its results are written again."""
        dues = (held.next_due(now) for held in self._held())
        return min((due for due in dues if due is not None), default=None)

    def count_unwritten(self) -> int:
        """Count the batches for which something waits to be written, or is being written."""
        return sum(held.is_unwritten for held in self._held())

    def problem(self, *, only_hopeless: bool = False) -> BuquetError | None:
        """Return why the store does not take claims or results, if it does not."""
        backoffs = (held.backoff for held in self._held())
        hopeless = (each.problem for each in backoffs if each.failures >= HOPELESS)
        given_up = next(hopeless, None)
        return given_up if only_hopeless else given_up or self._backoff.problem

    # --- claim

    def read(self, candidate: Candidate) -> None:
        """Read a batch, settle what is due in it, and claim what there is room for."""
        key = candidate.entry.key
        now = self._shared.ledger.now()
        if pause := self._backoff.left():
            self._read_after.set(key, now + timedelta(seconds=pause))
            return
        try:
            self._read(candidate, now)
        except OF_ONE_BATCH as error:
            self._pass_over(candidate, error, DAMAGED_AGAIN)
        except BuquetError as error:
            self._pass_over(candidate, error, LOOK_AGAIN)

    def _read(self, candidate: Candidate, now: datetime) -> None:
        held = self._by_batch.get(candidate.entry.batch_id)
        if held is not None and self._claim(held, sharing=False):
            return
        if not (candidate.loaded or self._read_after.is_over(candidate.entry.key, now)):
            return  # another thread has read it meanwhile
        found = candidate.loaded or self._shared.ledger.read_entry(
            candidate.entry, candidate.modified
        )
        if isinstance(found, Loaded):
            self._open(candidate, found, now)
        else:  # it leads nowhere, or not yet
            # As long again as it has been there: its commit takes a moment more, or was abandoned.
            age = now - candidate.modified
            self._read_after.set(candidate.entry.key, now + min(max(age, MAKING), LOOK_AGAIN))

    def _open(self, candidate: Candidate, loaded: Loaded, now: datetime) -> None:
        is_shared = self._others_are_at(loaded.batch, now)
        dispatcher = self._shared.dispatcher
        if is_shared and dispatcher.has_other_candidates():
            dispatcher.hand_back(Candidate(candidate.entry, candidate.modified, is_contended=True))
            return
        is_open = False
        while not is_open:  # it may be closed between the two
            with self._lock:
                new = ClaimedBatch(self._shared, loaded)
                held = self._by_batch.setdefault(loaded.batch.id, new)
            is_open = self._claim(held, sharing=is_shared)

    def _claim(self, held: ClaimedBatch, *, sharing: bool) -> bool:
        try:
            is_open = held.claim(sharing=sharing)
        except OF_ONE_BATCH:
            raise
        except BuquetError as error:
            if not self._backoff.failures:
                logger.warning("The store takes no claims, so this worker waits: %s", error)
            self._backoff.fail(error)
            raise
        self._backoff.succeed()
        self._let_go(held)
        return is_open

    def _pass_over(self, candidate: Candidate, error: BuquetError, span: timedelta) -> None:
        self._shared.ledger.pass_over(candidate.entry.batch_id, error)
        self._read_after.set(candidate.entry.key, self._shared.ledger.now() + span)
        held = self._by_batch.get(candidate.entry.batch_id)
        if held is not None:
            self._close(held)

    def _may_claim(self, held: ClaimedBatch, now: datetime) -> bool:
        """Return whether something is due in a batch, and no limit keeps it from beginning."""
        return self._shared.registry.may_begin(held.batch.task_type) and held.has_due(now)

    # --- write results

    def finish(self, outcome: Outcome) -> None:
        """Write a result, or have it written with others before long."""
        held = self._by_batch.get(outcome.claim.task.batch_id)
        if held is not None and held.finish(outcome):
            self._let_go(held)

    def write_gathered(self, *, at_once: bool = False) -> None:
        """Write the results that have waited for long enough.

        A try that took long and failed shows that the store is away: then the others wait too.
        """
        clock = self._shared.ledger.store.clock
        for held in self._held():
            begun = clock.monotonic()
            held.write_gathered(at_once=at_once)
            self._let_go(held, offering=True)
            if held.backoff.failures and clock.monotonic() - begun > SLOW_SECONDS:
                return

    def give_back(self, claims: Iterable[Claim]) -> None:
        """Give claims back, and write that with what else waits to be written."""
        by_batch: dict[str, list[Outcome]] = {}
        for claim in claims:
            by_batch.setdefault(claim.task.batch_id, []).append(released(claim))
        for held in self._held():
            if outcomes := by_batch.get(held.batch.id):
                held.give_back(outcomes)
        self.write_gathered()

    def write_what_waits(self) -> None:
        """Deal with what waits for threads that have not become free as soon as was expected.

        What was claimed for them is given back, and results that were to be written with theirs
        are written without.
        """
        now = self._shared.ledger.store.clock.monotonic()
        stale = self._shared.dispatcher.withdraw(now - WAITS_AT_MOST)
        for claim in stale:
            # Its type takes longer than it used to: no more are claimed ahead.
            self._shared.registry.note_duration(claim.task.task_type, now - claim.claimed_at)
        if stale:
            self.give_back(stale)
        else:
            self.write_gathered()

    # --- for the heartbeat

    def refresh(self) -> None:
        """Look for cancel requests in all batches with tasks that run.

        It stops as soon as the lease has to be renewed, and goes on there the next time.
        """
        for held in sorted(self._held(), key=lambda each: each.refreshed_at):
            if not self._shared.lease.allows_claims(self._shared.ledger.now()):
                return
            if not held.claims():
                continue
            try:
                held.refresh()
            except BuquetError as error:
                logger.warning("Batch %s could not be read again: %s", held.batch.id, error)
            self._let_go(held, offering=True)

    def lose_lease(self) -> None:
        """Tell all handlers that the lease is lost."""
        for held in self._held():
            held.lose_lease()

    # --- let go

    def _let_go(self, held: ClaimedBatch, *, offering: bool = False) -> None:
        """Let go of a batch in which nothing is claimed: others may have it, or we later.

        Args:
            held: the batch.
            offering: have the pool read it if it is kept, and more is due in it.
        """
        if self._close(held):
            if held.batch.unfinished:
                self._come_back_to(held)
            return
        now = self._shared.ledger.now()
        if offering and held.has_due(now) and not held.is_unwritten:
            self._shared.dispatcher.offer([Candidate(held.entry, now)])

    def _come_back_to(self, held: ClaimedBatch) -> None:
        """See that a closed batch is read again when there is something to do in it."""
        shared, key, now = self._shared, held.entry.key, self._shared.ledger.now()
        due = self._next_read(held.batch, now)
        if due > now:
            self._read_after.set(key, due)
        elif held.is_limited and not shared.registry.may_begin(held.batch.task_type):
            pass  # polls pass over it until the limit permits
        elif held.is_blocked:
            self._read_after.set(key, now + BLOCKED_AGAIN, is_blocked=True)
        elif not shared.lease.allows_claims(now):
            self._read_after.set(key, now + LOOK_AGAIN)
        else:
            shared.dispatcher.hand_back(
                Candidate(held.entry, now, held.loaded, is_careful=held.is_careful)
            )

    def _next_read(self, batch: Batch, now: datetime) -> datetime:
        """Return when the batch next has something that this worker can do."""
        try:
            leases = self._shared.ledger.workers.leases(batch, now)
        except BuquetError:
            return now + LOOK_AGAIN
        if batch.task_type in self._shared.registry.handlers:
            moment = index.next_event(batch, leases)
        else:
            moment = index.next_settling(batch, leases)
        return moment or now + DAMAGED_AGAIN

    def _others_are_at(self, batch: Batch, now: datetime) -> bool:
        leases = self._shared.ledger.workers.leases(batch, now)
        return any(
            task.status is TaskStatus.RUNNING
            and task.worker_id != self._shared.worker_id
            and index.held_until(task, leases) > now
            for task in batch.tasks
        )

    def _close(self, held: ClaimedBatch) -> bool:
        """Close a batch, if nothing is claimed in it and nothing is left to write."""
        with self._lock:
            if not held.close():
                return False
            del self._by_batch[held.batch.id]
            return True

    def _held(self) -> list[ClaimedBatch]:
        with self._lock:
            return list(self._by_batch.values())
