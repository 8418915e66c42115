"""What a worker holds of a batch in which it has claims.

The results of many attempts are written together, and the same write claims more: a thread that has
a result hands it over, and the one that finds no write under way writes for all (flat combining).
While a write is in flight results gather for the next, so the batching sizes itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from attrs import evolve, field, frozen

from buquet.clock import EPOCH
from buquet.core import index, transitions
from buquet.core.keys import Entry
from buquet.core.model import Batch, Task, TaskStatus
from buquet.core.transitions import Facts
from buquet.errors import BuquetError, Contention
from buquet.ledger.ledger import Ledger, Loaded, Lost
from buquet.worker import edits
from buquet.worker.dispatcher import Dispatcher, Claim, Candidate, Outcome
from buquet.worker.admission import Admission
from buquet.worker.heartbeat import Lease
from buquet.worker.registry import Registry

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
"""For how long results wait for others of their batch, whose tasks are about to be run."""

TRIES = 20
"""How often a thread of the pool tries a write before its claims are given up."""

TRIES_IN_PASSING = 3
"""How often another does, which has more to see to; then the results wait."""

WRITE_AGAIN = timedelta(seconds=1)
"""When results are tried again that could not be written in passing."""


@frozen(kw_only=True)
class Desk:
    """What all claims of a worker share."""

    worker_id: str
    ledger: Ledger
    dispatcher: Dispatcher
    admission: Admission
    registry: Registry
    lease: Lease
    on_closed: Callable[[ClaimedBatch], None] = field(repr=False)
    """Is told when a held has no claims left."""
    gathers: bool = True
    """Whether results may wait for others: only where somebody looks after those that do."""


class ClaimedBatch:
    """A batch, the worker's claims in it, and the results that wait to be written."""

    def __init__(self, desk: Desk, loaded: Loaded) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._loaded = loaded
        self._claims: dict[str, Claim] = {}
        self._outcomes: list[Outcome] = []
        self._gathering_since = 0.0
        self._is_writing = False
        self._is_put_off = False
        self._is_closed = False
        self.refreshed_at = EPOCH
        """When it was last read again."""
        self.is_blocked = False
        """Whether there is something due in it that may not be claimed yet."""
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

    def claims(self) -> list[Claim]:
        """Return the claimed tasks whose results have not been written."""
        with self._lock:
            return list(self._claims.values())

    @property
    def is_unwritten(self) -> bool:
        """Whether something waits to be written, or is being written."""
        with self._lock:
            return self._is_writing or bool(self._outcomes)

    def has_due(self, now: datetime) -> bool:
        """Tell whether there is a task in the batch that could be claimed."""
        return any(task.is_available_at(now) for task in self.batch.tasks)

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next task of the batch is due, or a write is to be tried again."""
        dues = [task.available_at for task in self.batch.unfinished if task.available_at > now]
        if self._is_put_off:
            dues.append(now + WRITE_AGAIN)
        return min(dues, default=None)

    def claim(self, *, sharing: bool) -> bool:
        """Settle what is due and claim what there is room for, unless a write is under way.

        Args:
            sharing: whether another live worker has claims in the batch: then take half.

        Returns:
            Whether it is still open: if not, another takes its place.
        """
        with self._lock:
            if self._is_writing or self._is_closed:
                return not self._is_closed
            self._is_writing = True
        try:
            self._write([], may_claim=True, sharing=sharing)
        except BaseException:
            # Results that came in meanwhile are not to wait for this.
            self._write_all(may_close=False)
            raise
        self._write_all()
        return True

    def close(self) -> bool:
        """Take no more claims, unless there are some or a write is under way; tell if so it is.

        Two claims of one batch would take each other's claims for orphans.
        """
        with self._lock:
            self._is_closed = not (self._is_writing or self._claims or self._outcomes)
            return self._is_closed

    def finish(self, outcome: Outcome) -> None:
        """Hand over a result; it is written before long, by this thread or another."""
        with self._lock:
            self._keep([outcome])
            if self._is_writing or not self._outcomes or self._may_gather():
                return
            self._is_writing = True
        self._write_all()

    def give_back(self, outcomes: Sequence[Outcome]) -> None:
        """Hand over what becomes of claims that are given up; `write_gathered` writes it."""
        with self._lock:
            self._keep(outcomes)
            self._is_put_off = bool(self._outcomes)

    def _keep(self, outcomes: Sequence[Outcome]) -> None:
        # Of claims that were lost there is nothing to write, and this may have been closed.
        kept = [each for each in outcomes if self._has(each.claim)]
        if kept and not self._outcomes:
            self._gathering_since = self._desk.ledger.store.clock.monotonic()
        self._outcomes.extend(kept)

    def write_gathered(self) -> bool:
        """Write results that have waited for others for too long, in a thread outside the pool.

        Returns:
            Whether none is left that could not be written.
        """
        with self._lock:
            may_wait = self._may_gather() and not self._is_put_off
            if self._is_writing or not self._outcomes or may_wait:
                return True
            self._is_writing = True
        return self._write_all(may_claim=False)

    def _may_gather(self) -> bool:
        """Tell whether results may wait for that of a task that a thread is about to run.

        Writes cost the same for one result as for many. Only short tasks are claimed before there
        is a thread for them.
        """
        waited = self._desk.ledger.store.clock.monotonic() - self._gathering_since
        has_company = self._desk.gathers and self._desk.dispatcher.has_waiting(self)
        return has_company and waited < GATHER_SECONDS

    def _has(self, claim: Claim) -> bool:
        return self._claims.get(claim.task.id) is claim

    def refresh(self) -> None:
        """Read the batch again, if it has changed: somebody may have asked to cancel a task.

        Claims in our name that no thread knows of are given back. If all that is left of it has
        been running for long, its entry is moved out of the way.
        """
        with self._lock:
            if self._is_writing or self._is_closed:
                return
            self._is_writing = True
        self.refreshed_at = self._desk.ledger.now()
        try:
            current = self._desk.ledger.load(self.batch.id, unless=self._loaded.etag)
            if current is not None:
                self._take_over(current)
            self._tend()
        finally:
            self._write_all(may_claim=False)

    def lose_lease(self) -> None:
        """Tell the handlers that the worker could not renew its lease in time."""
        for claim in self.claims():
            claim.lease_lost = True

    # --- writing

    def _write_all(self, *, may_claim: bool = True, may_close: bool = True) -> bool:
        """Write until no results are left; then let go of the pen.

        Only a thread of the pool may claim: it is about to be free for a task. Another has the
        pool look into the batch; and it tries for a moment only, and leaves the results for later.

        Returns:
            Whether all were dealt with.
        """
        is_done = False
        while True:
            with self._lock:
                outcomes, self._outcomes = self._outcomes, []
                if not outcomes:
                    self._is_writing = False
                    is_done = not self._claims
                    break
            try:
                is_written = self._write(outcomes, may_claim=may_claim)
            except BaseException as error:
                self._drop(outcomes, repr(error))
                with self._lock:
                    self._is_writing = False
                raise
            if not is_written:
                with self._lock:
                    self._outcomes[:0] = outcomes
                    self._is_writing, self._is_put_off = False, True
                return False
        self._is_put_off = False
        if is_done and may_close:
            self._desk.on_closed(self)
        elif not may_claim and self.has_due(now := self._desk.ledger.now()):
            self._desk.dispatcher.offer([Candidate(self.entry, now)])
        return True

    def _write(self, outcomes: list[Outcome], *, may_claim: bool, sharing: bool = False) -> bool:
        """Write results, heal what has lapsed and claim what there is room for, in one commit.

        Returns:
            Whether the results were dealt with; where there is no time to wait, they may not be.
        """
        ledger = self._desk.ledger
        tries = TRIES if may_claim else TRIES_IN_PASSING
        problem: BuquetError = Contention(self.batch.id, tries)
        for number in ledger.tries(tries):
            try:
                if self._try_to_write(outcomes, may_claim and number < TRIES // 2, sharing):
                    return True
            except BuquetError as error:
                if not outcomes:
                    raise
                problem = error
                logger.warning(
                    "%d results of batch %s can't be written yet: %s",
                    len(outcomes),
                    self.batch.id,
                    error,
                )
                if not may_claim:
                    return False
                ledger.store.clock.sleep(min(0.1 * 2**number, 5.0))
        if may_claim:
            self._drop(outcomes, str(problem))
        return may_claim

    def _try_to_write(self, outcomes: list[Outcome], may_claim: bool, sharing: bool) -> bool:
        desk = self._desk
        facts = desk.ledger.facts(desk.worker_id)
        batch = edits.with_outcomes(self.batch, outcomes, facts)
        batch = edits.without_orphans(batch, self._known(), facts)
        batch = desk.ledger.settle(batch, facts, but=desk.worker_id)
        wanted = self._claimable(batch, facts.now, sharing) if may_claim else ()
        grant = desk.admission.grant(batch, wanted, ending=self._count_held(outcomes))
        self.is_blocked, self.is_careful = grant.is_blocked, grant.is_careful
        lease_id = f"{desk.worker_id}/{facts.tail}"
        chosen = {task.id for task in grant.chosen}
        claimed: list[Claim] = []
        try:
            until = desk.lease.expires_at
            batch = edits.with_claims(batch, chosen, facts, lease_id=lease_id, until=until)
            if batch is not self.batch:
                result = desk.ledger.commit(self._loaded, batch, facts)
                if isinstance(result, Lost):
                    self._take_over(result.current)
                    return result.current is None
                self._forget(outcomes)
                self._take_over(result)
                claimed = self._begin(lease_id)
            else:
                self._forget(outcomes)
        finally:
            unwanted = desk.admission.settle(batch, grant, claimed)
            with self._lock:
                self._outcomes += [
                    Outcome(each, transitions.release, wake=True) for each in unwanted
                ]
        return True

    def _count_held(self, outcomes: list[Outcome]) -> int:
        with self._lock:
            return len({each.claim for each in outcomes if self._has(each.claim)})

    def _known(self) -> dict[str, str | None]:
        """Return the lease ids of the claims, by the ids of their tasks."""
        with self._lock:
            return {task_id: each.task.lease_id for task_id, each in self._claims.items()}

    def _claimable(self, batch: Batch, now: datetime, sharing: bool) -> tuple[Task, ...]:
        desk = self._desk
        if batch.task_type not in desk.registry.handlers or not desk.lease.allows_claims(now):
            return ()
        tasks = tuple(task for task in batch.tasks if task.is_available_at(now))
        return tasks[: (len(tasks) + 1) // 2] if sharing else tasks

    def _tend(self) -> None:
        """Give back claims that nobody knows of; move the entry ahead where that is due."""
        ledger = self._desk.ledger
        facts = ledger.facts(self._desk.worker_id)
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
            Claim(self, task, self._desk.ledger.store.clock.monotonic())
            for task in self.batch.tasks
            if task.lease_id == lease_id and task.status is TaskStatus.RUNNING
        ]
        with self._lock:
            self._claims.update((claim.task.id, claim) for claim in new)
        return new

    def _forget(self, outcomes: list[Outcome]) -> None:
        """Let go of claims whose results have been written, or could not be."""
        self._pop_claims(outcome.claim for outcome in outcomes)

    def _pop_claims(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            popped = [self._claims.pop(each.task.id, None) for each in claims]
        self._desk.admission.end(self.batch, sum(each is not None for each in popped))

    def _take_over(self, current: Loaded | None) -> None:
        """Go on from what is in the store: claims may have been lost, or are to be cancelled."""
        if current is None:  # the batch was deleted under our hands: nothing is left of it
            self._loaded = evolve(self._loaded, batch=evolve(self.batch, tasks=()))
            self._drop_claims(lambda _: True)
            return
        self._loaded = current
        tasks = {task.id: task for task in current.batch.tasks}
        self._drop_claims(lambda each: not edits.is_held(tasks.get(each.task.id), each))
        for claim in self.claims():
            if tasks[claim.task.id].cancel_requested:
                claim.cancel_requested = True

    def _drop_claims(self, is_lost: Callable[[Claim], bool]) -> None:
        for claim in self.claims():
            if is_lost(claim):
                self._pop_claims([claim])
                claim.lease_lost = True
                logger.warning(
                    "Task %s (%s) is no longer this worker's: its result will be dropped.",
                    claim.task.id,
                    claim.task.task_type,
                )

    def _drop(self, outcomes: list[Outcome], reason: str) -> None:
        self._forget(outcomes)
        for outcome in outcomes:
            task = outcome.claim.task
            logger.error(
                "The result of task %s (%s) was dropped, and it will run again: %s",
                task.id,
                task.task_type,
                reason,
            )
