"""Finds work: one LIST of the index shows what is due, and when more will be."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from attrs import define, field

from buquet.core import index, keys
from buquet.core.keys import Entry, minute_of
from buquet.ledger.ledger import Ledger
from buquet.store import PAGE, Listed
from buquet.worker.claims import Claims
from buquet.worker.dispatcher import Dispatcher
from buquet.worker.jobs import Candidate
from buquet.worker.read_after import ReadAfter
from buquet.worker.registry import Registry

logger = logging.getLogger(__name__)

MOST_PAGES = 20
"""How many pages of what this worker can't run, or what is too late, one poll walks past."""

CANDIDATES_PER_THREAD = 16
"""How many batches are taken from a page: more would be stale before their turn."""


LOOK_BACK_EVERY = timedelta(hours=1)
"""How often a poll starts at the very beginning of the index, not at the watermark."""


@define
class Scan:
    """What a walk along the index has found."""

    live: list[Candidate] = field(factory=list)
    """Batches that may have a task to run."""
    late: list[Candidate] = field(factory=list)
    """Batches whose key shows a deadline that has passed, and nothing else of use."""
    next_due: datetime | None = None
    """When the next batch is due."""
    is_backlog: bool = False
    """Whether there was a full page of what is due."""
    is_new: bool = False
    """Whether any of it was new to the dispatcher."""
    is_held: bool = False
    """Whether more is due in the batches that this worker holds."""
    held_back: int = 0
    """How many tasks are due that a limit holds back, or that may not begin beside others."""


class Poller:
    """Offers the dispatcher what is due.

    Args:
        ledger: whose index to list.
        dispatcher: takes what is found.
        registry: knows which types can run, and which are at their limit.
        claims: what this worker holds already.
        read_after: remembers when each batch is worth a read.
        threads: how many threads there are to feed.
    """

    def __init__(
        self,
        ledger: Ledger,
        dispatcher: Dispatcher,
        registry: Registry,
        claims: Claims,
        read_after: ReadAfter,
        *,
        threads: int,
    ) -> None:
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._registry = registry
        self._claims = claims
        self._read_after = read_after
        self._enough = max(64, CANDIDATES_PER_THREAD * threads)
        self._watermark = 0
        self._looked_back_at = ledger.now()
        self._oldest = 0
        self._is_backlog = False
        self._unknown_types: set[str] = set()

    def poll_once(self) -> Scan:
        """List what is due, and offer what was found.

        Raises:
            StoreError: if the index can't be read.
        """
        now = self._ledger.now()
        self._look_back_at_times(now)
        scan = Scan()
        if self._is_backlog:
            self._walk(self._anywhere(now), now, scan)
        if not scan.live:
            # From the start, in order of time: the only walk that sees all there is.
            self._walk(keys.ready_after(self._watermark), now, scan, from_start=True)
        self._is_backlog = scan.is_backlog
        self._dispatcher.more_is_due = scan.is_backlog or len(scan.live) >= self._enough
        scan.is_held = self._dispatcher.offer(self._claims.due(now))
        found = [*self._in_order(scan.live), *scan.late[: self._enough]]
        scan.is_new = self._dispatcher.offer(found)
        return scan

    def _look_back_at_times(self, now: datetime) -> None:
        """Once an hour start at the very beginning: a process that hung may have written there.

        Also when the clock was set back: then all that is new lies below the floor.
        """
        went_back = self._watermark > minute_of(now) - index.WATERMARK_MINUTES
        if went_back or now - self._looked_back_at >= LOOK_BACK_EVERY:
            self._looked_back_at = now
            self._watermark = 0

    def _walk(self, after: str, now: datetime, scan: Scan, *, from_start: bool = False) -> None:
        scan.next_due = None
        for number in range(MOST_PAGES):
            page = self._ledger.store.list(keys.READY, after=after)
            if from_start and number == 0:
                self._raise_watermark(page, now)
            self._sort(page, now, scan)
            is_full = len(page) == PAGE and scan.next_due is None
            scan.is_backlog = scan.is_backlog or is_full
            if not is_full or len(scan.live) >= self._enough:
                return
            after = page[-1].key

    def _sort(self, page: list[Listed], now: datetime, scan: Scan) -> None:
        """Sort the entries of a page into live and late ones.

        Stop at the first that is for later, or when there are enough.
        """
        minute = minute_of(now)
        for listed in page:
            entry = keys.parse_entry(listed.key)
            if entry is None:
                continue
            if entry.minute > minute:
                scan.next_due = keys.start_of(entry.minute)
                return
            if self._is_in_hand(entry, now, scan):
                continue
            is_late = entry.has_expired_at(now)
            can_run = self._can_run(entry, scan)
            if is_late and (entry.count == 1 or not can_run):
                scan.late.append(Candidate(entry, listed.modified, is_late=True))
            elif can_run:
                scan.live.append(Candidate(entry, listed.modified, is_late=is_late))
                if len(scan.live) >= self._enough:
                    return

    def _is_in_hand(self, entry: Entry, now: datetime, scan: Scan) -> bool:
        """Return whether this worker holds a batch, or knows that a read is of no use yet."""
        if self._claims.is_held(entry.batch_id):
            return True
        if self._read_after.is_blocked(entry.key, now):
            scan.held_back += entry.count
        return not self._read_after.is_over(entry.key, now)

    def _can_run(self, entry: Entry, scan: Scan) -> bool:
        if entry.task_type in self._registry.handlers:
            may_begin = self._registry.may_begin(entry.task_type)
            scan.held_back += 0 if may_begin else entry.count
            return may_begin
        if entry.task_type not in self._unknown_types:
            self._unknown_types.add(entry.task_type)
            logger.warning(
                "There are tasks of type %r, for which this worker has no handler. It leaves them "
                "to other workers.",
                entry.task_type,
            )
        return False

    def _raise_watermark(self, page: list[Listed], now: datetime) -> None:
        """Start later next time: below is nothing any more, and nothing will be written there."""
        floor = minute_of(now) - index.WATERMARK_MINUTES
        first = next((entry for each in page if (entry := keys.parse_entry(each.key))), None)
        if first is None and len(page) == PAGE:
            return  # keys that are not ours may hide what is below
        self._watermark = max(self._watermark, min(floor, first.minute) if first else floor)
        self._oldest = first.minute if first else floor

    def _anywhere(self, now: datetime) -> str:
        """Return a point of the backlog left to chance, so that workers rarely collide."""
        minutes = max(minute_of(now) - self._oldest, 0) + 1
        minute = self._oldest + int(self._ledger.digits(8), 16) % minutes
        return keys.ready_from(minute, self._ledger.digits(4))

    def _in_order(self, found: list[Candidate]) -> list[Candidate]:
        """Oldest minute first, within a minute as chance has it."""
        shuffled = self._ledger.shuffled(found)
        return sorted(shuffled, key=lambda candidate: candidate.entry.minute)
