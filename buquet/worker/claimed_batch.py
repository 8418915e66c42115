"""A batch in which this worker has claims, and the results that wait to be written to it.

The results of many attempts are written together, and the same write claims more: a thread that has
a result hands it over, and the one that finds no write under way writes for all (flat combining).
While a write is in flight results gather for the next, so the batching sizes itself.

A result is never dropped while its claim holds. What the store does not take now waits, and is
written again after a growing pause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from attrs import evolve, frozen

from buquet.clock import EPOCH
from buquet.core import index, transitions
from buquet.core.keys import Entry
from buquet.core.model import Batch, Task, TaskStatus
from buquet.core.transitions import Facts
from buquet.errors import BuquetError, Contention, StoreRefused
from buquet.ledger.compare_and_set import Lost
from buquet.ledger.ledger import Ledger, Loaded
from buquet.worker import edits
from buquet.worker.admission import Admission
from buquet.worker.backoff import Backoff
from buquet.worker.dispatcher import Dispatcher
from buquet.worker.jobs import Claim, Outcome
from buquet.worker.lease import Lease
from buquet.worker.registry import Registry

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
"""For how long results wait for others of their batch whose tasks are about to run."""

TRIES = 20
"""How often a thread of the pool tries a write while others are faster."""

TRIES_IN_PASSING = 3
"""How often any other thread does, which has more to look after."""


@frozen(kw_only=True)
class Shared:
    """What all claims of a worker share."""

    worker_id: str
    ledger: Ledger
    dispatcher: Dispatcher
    admission: Admission
    registry: Registry
    lease: Lease
    gathers: bool
    """Whether results may wait for others: only where a poll loop looks after those that do."""


class ClaimedBatch:
    """A batch, the claims in it, and the results that wait to be written."""

    def __init__(self, shared: Shared, loaded: Loaded) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._loaded = loaded
        self._claims: dict[str, Claim] = {}
        self._outcomes: list[Outcome] = []
        self._gathering_since = 0.0
        self._is_writing = False
        self._is_closed = False
        self.backoff = Backoff(shared.ledger.store.clock)
        """How long results wait that could not be written."""
        self.refreshed_at = EPOCH
        """When it was last read again."""
        self.is_limited = False
        """Whether the limit of its type holds back what is due in it."""
        self.is_blocked = False
        """Whether a task in it is due that may not begin beside others."""
        self.is_careful = False
        """Whether what is due in it is claimed only for threads that are free."""

    @property
    def batch(self) -> Batch:
        """The batch as it was last seen."""
        return self._loaded.batch

    @property
    def loaded(self) -> Loaded:
        """The batch as it was last seen, with its etag."""
        return self._loaded

    @property
    def entry(self) -> Entry:
        """Its entry in the index."""
        return index.entry_of(self.batch)

    @property
    def is_unwritten(self) -> bool:
        """Whether something waits to be written, or is being written."""
        with self._lock:
            return self._is_writing or bool(self._outcomes)

    def claims(self) -> list[Claim]:
        """Return the claimed tasks whose results have not been written."""
        with self._lock:
            return list(self._claims.values())

    def has_due(self, now: datetime) -> bool:
        """Return whether a task of the batch could be claimed."""
        return any(task.is_available_at(now) for task in self.batch.tasks)

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next task of the batch is due, or its results are written again."""
        dues = [task.available_at for task in self.batch.unfinished if task.available_at > now]
        if self.backoff.failures:
            dues.append(now + timedelta(seconds=self.backoff.left()))
        return min(dues, default=None)

    def close(self) -> bool:
        """Take no more claims, if there are none and nothing is left to write.

        Two of these for one batch would take each other's claims for orphans, so another is opened
        only once this one is closed.

        Returns:
            Whether this call has closed it.
        """
        with self._lock:
            if self._is_closed or self._is_writing or self._claims or self._outcomes:
                return False
            self._is_closed = True
            return True

    def claim(self, *, sharing: bool) -> bool:
        """Settle what is due and claim what there is room for, unless a write is under way.

        Args:
            sharing: whether another live worker has claims in the batch: then take half.

        Returns:
            Whether it is still open; if not, another takes its place.

        Raises:
            BuquetError: if nothing could be claimed, by the store's answer.
        """
        with self._lock:
            if self._is_writing or self._is_closed:
                return not self._is_closed
            self._is_writing = True
        try:
            self._write([], may_claim=True, sharing=sharing)
        finally:
            self._write_all()
        return True

    def finish(self, outcome: Outcome) -> bool:
        """Hand over a result. This thread or another writes it before long.

        Returns:
            Whether it was this one: then nothing may be left in the batch.
        """
        with self._lock:
            self._keep([outcome])
            if self._is_writing or self._must_wait():
                return False
            self._is_writing = True
        self._write_all()
        return True

    def give_back(self, outcomes: Sequence[Outcome]) -> None:
        """Hand over outcomes of claims that are given up; `write_gathered` writes them."""
        with self._lock:
            self._keep(outcomes)
            self._gathering_since = -GATHER_SECONDS

    def write_gathered(self, *, at_once: bool = False) -> None:
        """Write results that have waited for others for long enough, outside the pool.

        Args:
            at_once: write those as well that should wait longer.
        """
        with self._lock:
            if self._is_writing or not self._outcomes or (self._must_wait() and not at_once):
                return
            self._is_writing = True
        self._write_all(may_claim=False)

    def refresh(self) -> None:
        """Read the batch again, if it has changed: somebody may have asked to cancel a task.

        Claims in our name that no thread knows of are given back. If all that is left of the batch
        has been running for long, its entry is moved out of the way.
        """
        with self._lock:
            if self._is_writing or self._is_closed:
                return
            self._is_writing = True
        self.refreshed_at = self._shared.ledger.now()
        try:
            current = self._shared.ledger.load(self.batch.id, unless=self._loaded.etag)
            if current is not None:
                self._take_over(current)
            self._tend()
        finally:
            self._write_all(may_claim=False)

    def lose_lease(self) -> None:
        """Tell the handlers that the worker could not renew its lease in time."""
        for claim in self.claims():
            claim.lease_lost = True

    # --- results that wait

    def _keep(self, outcomes: Sequence[Outcome]) -> None:
        # Of claims that were lost there is nothing to write, and this may have been closed.
        kept = [each for each in outcomes if self._has(each.claim)]
        if kept and not self._outcomes:
            self._gathering_since = self._monotonic()
        self._outcomes.extend(kept)

    def _has(self, claim: Claim) -> bool:
        return self._claims.get(claim.task.id) is claim

    def _must_wait(self) -> bool:
        """Return whether results wait: for the store, or for others that are about to come.

        A write costs the same for one result as for many. Only short tasks are claimed before
        there is a thread for them.
        """
        if self.backoff.failures:
            return self.backoff.left() > 0
        has_company = self._shared.gathers and self._shared.dispatcher.has_waiting(self.batch.id)
        return has_company and self._monotonic() - self._gathering_since < GATHER_SECONDS

    def _put_off(self, outcomes: list[Outcome], problem: BuquetError) -> None:
        with self._lock:
            self._outcomes[:0] = outcomes
        logger.warning(
            "%d results of batch %s could not be written; trying again in %.0f s: %s",
            len(outcomes),
            self.batch.id,
            self.backoff.fail(problem),
            problem,
        )

    def _monotonic(self) -> float:
        return self._shared.ledger.store.clock.monotonic()

    # --- writing

    def _write_all(self, *, may_claim: bool = True) -> None:
        """Write until no results are left, or the store does not take them; then let others write.

        Only a thread of the pool may claim: it is about to be free for a task.
        """
        while True:
            with self._lock:
                outcomes, self._outcomes = self._outcomes, []
                if not outcomes:
                    self._is_writing = False
                    return
            try:
                self._write(outcomes, may_claim=may_claim)
            except BuquetError as error:
                self._put_off(self._unwritten(outcomes), error)
                break
            except BaseException:
                with self._lock:
                    self._outcomes[:0] = self._unwritten(outcomes)
                    self._is_writing = False
                raise
            self.backoff.succeed()
        with self._lock:
            self._is_writing = False

    def _unwritten(self, outcomes: list[Outcome]) -> list[Outcome]:
        return [each for each in outcomes if self._has(each.claim)]

    def _write(
        self, outcomes: Sequence[Outcome], *, may_claim: bool, sharing: bool = False
    ) -> None:
        """Write results, heal what has lapsed and claim what there is room for, in one commit.

        Raises:
            BuquetError: if the results could not be written.
        """
        tries = TRIES if may_claim else TRIES_IN_PASSING
        for number in self._shared.ledger.tries(tries):
            may_claim = may_claim and number < TRIES // 2
            try:
                if self._try_to_write(outcomes, may_claim=may_claim, sharing=sharing):
                    return
            except StoreRefused as error:
                self._write_apart(outcomes, error)
                return
        if outcomes:
            raise Contention(self.batch.id, tries)

    def _write_apart(self, outcomes: Sequence[Outcome], error: StoreRefused) -> None:
        """Write results that the store refuses together, in halves, down to the one at fault.

        For that one the attempt counts as failed, with the store's words.
        """
        if len(outcomes) > 1:
            middle = len(outcomes) // 2
            self._write(outcomes[:middle], may_claim=False)
            self._write(outcomes[middle:], may_claim=False)
        elif not outcomes or outcomes[0].is_refused:
            raise error
        else:
            claim = outcomes[0].claim
            logger.error(
                "The store refuses the result of task %s (%s), so its attempt has failed: %s",
                claim.task.id,
                claim.task.task_type,
                error,
            )
            move = partial(transitions.retry, error=f"its result could not be stored: {error}")
            self._write([Outcome(claim, move, is_refused=True)], may_claim=False)

    def _try_to_write(self, outcomes: Sequence[Outcome], *, may_claim: bool, sharing: bool) -> bool:
        """Return whether the results were dealt with: others may have been faster."""
        shared = self._shared
        facts = shared.ledger.facts(shared.worker_id)
        batch = edits.with_outcomes(self.batch, outcomes, facts)
        batch = edits.without_orphans(batch, self._known(), facts)
        batch = shared.ledger.settle(batch, facts, but=shared.worker_id)
        tasks = self._claimable(batch, facts.now, sharing) if may_claim else ()
        permit = shared.admission.permit(batch, tasks, ending=len(self._unwritten([*outcomes])))
        self.is_limited = permit.is_limited
        self.is_blocked, self.is_careful = permit.is_blocked, permit.is_careful
        lease_id = f"{shared.worker_id}/{facts.tail}"
        chosen = {task.id for task in permit.chosen}
        claimed: list[Claim] = []
        try:
            until = shared.lease.expires_at
            batch = edits.with_claims(batch, chosen, facts, lease_id=lease_id, until=until)
            if batch is not self.batch:
                result = shared.ledger.commit(self._loaded, batch, facts)
                if isinstance(result, Lost):
                    self._take_over(result.current)
                    return result.current is None
                self._forget(outcome.claim for outcome in outcomes)
                self._take_over(result)
                claimed = self._begin(lease_id)
            else:
                self._forget(outcome.claim for outcome in outcomes)
        finally:
            unwanted = shared.admission.hand_over(batch, permit, claimed)
            with self._lock:
                self._outcomes += [released(claim) for claim in unwanted]
        return True

    def _known(self) -> dict[str, str | None]:
        """Return the lease ids of the claims, by the ids of their tasks."""
        with self._lock:
            return {task_id: each.task.lease_id for task_id, each in self._claims.items()}

    def _claimable(self, batch: Batch, now: datetime, sharing: bool) -> tuple[Task, ...]:
        shared = self._shared
        if batch.task_type not in shared.registry.handlers or not shared.lease.allows_claims(now):
            return ()
        tasks = tuple(task for task in batch.tasks if task.is_available_at(now))
        return tasks[: (len(tasks) + 1) // 2] if sharing else tasks

    def _tend(self) -> None:
        """Give back claims that nobody knows of; move the entry ahead where that is due."""
        ledger = self._shared.ledger
        facts = ledger.facts(self._shared.worker_id)
        batch = edits.without_orphans(self.batch, self._known(), facts)
        batch = self._parked(batch, facts)
        if batch is not self.batch:
            result = ledger.commit(self._loaded, batch, facts)
            self._take_over(result.current if isinstance(result, Lost) else result)

    def _parked(self, batch: Batch, facts: Facts) -> Batch:
        """Return the batch with its entry moved ahead, if no other worker has claims in it."""
        with self._lock:
            is_mine = all(task.id in self._claims for task in batch.unfinished)
            if not is_mine or self._outcomes:
                return batch
        return index.parked(batch, facts.now, facts.tail) or batch

    # --- what the store says

    def _begin(self, lease_id: str) -> list[Claim]:
        """Note the tasks that have been claimed under a lease id."""
        new = [
            Claim(task, self._monotonic())
            for task in self.batch.tasks
            if task.lease_id == lease_id and task.status is TaskStatus.RUNNING
        ]
        with self._lock:
            self._claims.update((claim.task.id, claim) for claim in new)
        return new

    def _forget(self, claims: Iterable[Claim]) -> None:
        """Let go of claims whose results have been written, or can't be any more."""
        with self._lock:
            ended = [self._claims.pop(each.task.id) for each in claims if self._has(each)]
        self._shared.admission.end(self.batch, len(ended))

    def _take_over(self, current: Loaded | None) -> None:
        """Go on from what is in the store: claims may have been lost, or are to be cancelled."""
        if current is None:  # somebody has deleted the batch: nothing is left of it
            self._loaded = evolve(self._loaded, batch=evolve(self.batch, tasks=()))
            self._lose_claims(lambda _: True)
            return
        self._loaded = current
        tasks = {task.id: task for task in current.batch.tasks}
        self._lose_claims(lambda each: not edits.is_held(tasks.get(each.task.id), each))
        for claim in self.claims():
            if tasks[claim.task.id].cancel_requested:
                claim.cancel_requested = True

    def _lose_claims(self, is_lost: Callable[[Claim], bool]) -> None:
        for claim in self.claims():
            if is_lost(claim):
                self._forget([claim])
                claim.lease_lost = True
                logger.warning(
                    "Task %s (%s) is no longer this worker's: its result will be dropped.",
                    claim.task.id,
                    claim.task.task_type,
                )


def released(claim: Claim) -> Outcome:
    """Return the outcome of a claim that is given back: others may run its task at once."""
    return Outcome(claim, transitions.release, wake=True)
