"""Finding work: one LIST of the index tells what is due, and when the next will be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from attrs import define, field

from buquet.clock import Event
from buquet.core import index, keys
from buquet.core.batch import Commit
from buquet.core.keys import Entry, minute_of
from buquet.errors import BuquetError
from buquet.ledger.ledger import Ledger
from buquet.store import PAGE, Listed
from buquet.worker.agenda import Agenda, Candidate
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
    """Whether any of it was not yet on the agenda."""
    is_held: bool = False
    """Whether more is due in the batches that this worker holds: their own writes see to it too."""


class Poller:
    """Offers the agenda what is due.

    Args:
        ledger: where to look.
        agenda: whom to offer it.
        registry: whose types can be run.
        is_worth_a_look: tells of an entry whether it may have something to do.
        held: gives the batches that this worker holds and in which more is due.
        threads: how many threads there are to feed.
    """

    def __init__(
        self,
        ledger: Ledger,
        agenda: Agenda,
        registry: Registry,
        *,
        is_worth_a_look: Callable[[Entry, datetime], bool],
        held: Callable[[datetime], list[Candidate]],
        threads: int,
    ) -> None:
        self._ledger = ledger
        self._agenda = agenda
        self._registry = registry
        self._is_worth_a_look = is_worth_a_look
        self._held = held
        self._enough = max(64, CANDIDATES_PER_THREAD * threads)
        self._floor = 0
        self._looked_back_at = ledger.now()
        self._oldest = 0
        self._is_backlog = False
        self._unknown_types: set[str] = set()

    def poll_once(self) -> Scan:
        """Look once, and offer what was found.

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
            self._walk(keys.ready_after(self._floor), now, scan, from_start=True)
        self._is_backlog = scan.is_backlog
        self._agenda.more_is_due = scan.is_backlog or len(scan.live) >= self._enough
        scan.is_held = self._agenda.offer(self._held(now))
        found = [*self._in_order(scan.live), *scan.late[: self._enough]]
        scan.is_new = self._agenda.offer(found)
        return scan

    def _look_back_at_times(self, now: datetime) -> None:
        """Once an hour start at the very beginning: a process that hung may have written there.

        And at once when the clock was set back: then all that is new lies below the floor.
        """
        went_back = self._floor > minute_of(now) - index.WATERMARK_MINUTES
        if went_back or now - self._looked_back_at >= LOOK_BACK_EVERY:
            self._looked_back_at = now
            self._floor = 0

    def _walk(self, after: str, now: datetime, scan: Scan, *, from_start: bool = False) -> None:
        scan.next_due = None
        for number in range(MOST_PAGES):
            page = self._ledger.store.list(keys.READY, after=after)
            if from_start and number == 0:
                self._raise_floor(page, now)
            self._sort(page, now, scan)
            is_full = len(page) == PAGE and scan.next_due is None
            scan.is_backlog = scan.is_backlog or is_full
            if not is_full or len(scan.live) >= self._enough:
                return
            after = page[-1].key

    def _sort(self, page: list[Listed], now: datetime, scan: Scan) -> None:
        """Sort the entries of a page into live and late ones.

        Up to the first that is for later, or until there are enough.
        """
        minute = minute_of(now)
        for listed in page:
            entry = keys.parse_entry(listed.key)
            if entry is None:
                continue
            if entry.minute > minute:
                scan.next_due = keys.start_of(entry.minute)
                return
            if not self._is_worth_a_look(entry, now):
                continue
            candidate = Candidate(entry, listed.modified)
            is_late = entry.has_expired_at(now)
            if is_late and (entry.count == 1 or not self._can_run(entry)):
                scan.late.append(candidate)
            elif self._can_run(entry):
                scan.live.append(candidate)
                if len(scan.live) >= self._enough:
                    return

    def _can_run(self, entry: Entry) -> bool:
        if entry.task_type in self._registry.handlers:
            return self._registry.may_begin(entry.task_type)
        if entry.task_type not in self._unknown_types:
            self._unknown_types.add(entry.task_type)
            logger.warning(
                "There are tasks of type %r, for which this worker has no handler: it leaves them "
                "to others.",
                entry.task_type,
            )
        return False

    def _raise_floor(self, page: list[Listed], now: datetime) -> None:
        """Start later next time: below is nothing any more, and nothing will be written there."""
        floor = minute_of(now) - index.WATERMARK_MINUTES
        first = next((entry for each in page if (entry := keys.parse_entry(each.key))), None)
        if first is None and len(page) == PAGE:
            return  # keys that are not ours may hide what is below
        self._floor = max(self._floor, min(floor, first.minute) if first else floor)
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


class PollLoop:
    """Polls at intervals that adapt: short when there is work, growing to the ceiling when not."""

    def __init__(
        self,
        poller: Poller,
        ledger: Ledger,
        agenda: Agenda,
        *,
        shortest: timedelta,
        longest: timedelta,
    ) -> None:
        self.woken: Event = ledger.store.clock.event()
        self.on_good_poll: Callable[[], None] = lambda: None
        """Is called after each poll that the store has answered."""
        self._poller = poller
        self._ledger = ledger
        self._agenda = agenda
        agenda.on_low = self.hurry
        agenda.on_hungry = self.leave_if_done
        self._shortest = shortest.total_seconds()
        self._longest = longest.total_seconds()
        self.on_poll: Callable[[], None] = lambda: None
        """Is called before each poll."""
        self._pause = self._shortest
        self._burst = False

    def wake(self) -> None:
        """Poll at once."""
        self.woken.set()

    def hurry(self) -> None:
        """Poll at once, and again before long: there is work."""
        self._pause = self._shortest
        self.wake()

    def leave_if_done(self) -> None:
        """In a burst, poll at once when all is done: it may be time to leave."""
        if self._burst and self._agenda.is_idle():
            self.woken.set()

    def on_sooner(self, look: datetime) -> None:
        """Poll in time for a moment that has become known."""
        if (look - self._ledger.now()).total_seconds() < self._pause:
            self.woken.set()

    def on_commit(self, commit: Commit) -> None:
        """Poll at once when this process makes something due, and in time for what is later."""
        old, new = commit.old, commit.new
        now = self._ledger.now()
        moved = old is None or old.generation != new.generation
        if moved and new.unfinished and new.due <= minute_of(now):
            self.woken.set()
        dues = [task.available_at for task in new.unfinished if task.available_at > now]
        if dues:
            self.on_sooner(min(dues))

    def run(
        self,
        should_stop: Callable[[], bool],
        *,
        next_look: Callable[[datetime], datetime | None],
        burst: bool,
    ) -> None:
        """Poll until told to stop or, in a burst, until nothing is due.

        Args:
            should_stop: is asked before each poll.
            next_look: gives the earliest moment at which a known batch has something to do.
            burst: whether to leave when nothing is due; then an error ends the loop as well.

        Raises:
            StoreError: if the index can't be read, in a burst.
        """
        self._burst = burst
        while True:
            self.woken.clear()  # before it is asked: who tells it to stop wakes it after that
            if should_stop():
                return
            self.on_poll()
            is_done = burst and self._agenda.is_idle()
            scan = self._poll()
            if is_done and not (scan.is_new or scan.is_held):
                return
            self._adapt_pause(scan)
            self.woken.wait(self._until(scan, next_look(self._ledger.now())))

    def _poll(self) -> Scan:
        try:
            scan = self._poller.poll_once()
        except BuquetError as error:
            if self._burst:
                raise
            logger.warning("A poll failed and will be made again: %s", error)
            return Scan()
        self.on_good_poll()
        return scan

    def _adapt_pause(self, scan: Scan) -> None:
        if not scan.is_new:
            self._pause = min(self._pause * 1.5, self._longest)
        else:  # with enough at hand there is no hurry: the agenda tells when it runs low
            self._pause = self._shortest if self._agenda.is_low() else self._longest

    def _until(self, scan: Scan, next_look: datetime | None) -> float:
        """Return how long to pause: not beyond the next moment at which something is due."""
        now = self._ledger.now()
        dues = [moment for moment in (scan.next_due, next_look) if moment is not None]
        soonest = min(((due - now).total_seconds() for due in dues), default=self._pause)
        return max(min(self._pause, soonest), self._shortest if soonest <= 0 else 0.001)
