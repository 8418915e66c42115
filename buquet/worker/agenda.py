"""What the pool threads have before them: claimed tasks first, then batches to look into.

It also decides how many tasks may be claimed: for each there must be a thread, or tasks so short
that there will be one in a moment.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from attrs import define, frozen

from buquet.core.keys import Entry
from buquet.core.model import Progress, Task
from buquet.core.transitions import Facts
from buquet.ledger.ledger import Loaded

EARLY = 4
"""Candidates per thread at which to look for more where more is known to be due: the threads get
through them about as fast as a store lists a page."""


class Holder(Protocol):
    """What holds the batch of a claimed task."""

    def finish(self, outcome: Outcome) -> None:
        """Take the outcome of an attempt."""


Move = Callable[[Task, Facts], Task]
"""How a task changes when its attempt has ended."""


@frozen
class Outcome:
    """How an attempt ended: the move that its task is to make."""

    assignment: Assignment
    move: Move
    wake: bool = False
    """Whether pollers must look at the batch at once."""


@define(eq=False)
class Assignment:
    """A claimed task: it waits for a thread, or has one."""

    holding: Holder
    task: Task
    claimed_at: float
    """In local monotonic seconds."""
    cancel_requested: bool = False
    lease_lost: bool = False
    is_alone: bool = False
    """No other begins beside it."""
    progress: Progress | None = None
    """What its handler has reported last."""


@frozen
class Wanted:
    """How many tasks of a batch could be claimed."""

    plain: int = 0
    """They may wait for a thread."""
    careful: int = 0
    """Each only if a thread is free for it."""
    alone: int = 0
    """Each only if no other begins beside it."""


@frozen
class Granted:
    """For how many of them there is room."""

    plain: int = 0
    careful: int = 0
    alone: int = 0

    @property
    def total(self) -> int:
        """For how many in all."""
        return self.plain + self.careful + self.alone


@frozen
class Candidate:
    """A batch that has something to do, as far as its entry tells."""

    entry: Entry
    modified: datetime
    loaded: Loaded | None = None
    """The batch, if it is at hand."""
    is_contended: bool = False
    """Another live worker has claims in it: to be looked into when nothing else is there."""
    is_careful: bool = False
    """Its tasks are claimed only for threads that are free: before that a look is in vain."""

    @property
    def surplus(self) -> int:
        """How many tasks it promises for threads beside the one that looks into it."""
        if self.loaded is not None:
            return len(self.loaded.batch.unfinished) - 1
        return self.entry.count - 1


@frozen
class Errand:
    """What every thread does between two jobs, to be done though there is no job: call hooks."""


Job = Assignment | Candidate | Errand


class Agenda:
    """Shared by the threads of one worker."""

    def __init__(self, threads: int) -> None:
        self.on_low: Callable[[], None] = _ignore
        """Is called when it is time to look for more candidates."""
        self.on_hungry: Callable[[], None] = _ignore
        """Is called when a thread finds nothing to do."""
        self.done_meanwhile: Callable[[str], int] = lambda _: 0
        """Tells of a task type how many are done while one waits for the store."""
        self.more_is_due = False
        """Whether more is due, as far as the last poll has seen, than it has offered."""
        self._threads = threads
        self._changed = threading.Condition()
        self._claimed: deque[Assignment] = deque()
        self._waiting_of: Counter[Holder] = Counter()
        self._candidates: list[Candidate] = []  # the best last
        self._taken: set[str] = set()
        self._waiting = 0
        self._promised = 0
        self._reserved = 0
        self._reserving = 0
        self._is_alone = False
        self._has_errand = False
        self._closed = False

    def next(self, *, block: bool = True) -> Job | None:
        """Take what is to be done next; None once it is closed, or at once if it may not block."""
        with self._changed:
            self._waiting += 1
            try:
                while not self._closed:
                    job = self._take()
                    if job is not None:
                        # Each wakes the next: to wake all would have most find nothing.
                        self._wake_one()
                        return job
                    if not self._candidates:
                        self.on_hungry()
                    if not block:
                        return None
                    self._changed.wait()
                return None
            finally:
                self._waiting -= 1

    def _take(self) -> Job | None:
        if self._has_errand:
            self._has_errand = False
            return Errand()
        if self._claimed:
            assignment = self._claimed.popleft()
            self._no_longer_waits(assignment)
            return assignment
        # Who looks into a large batch will bring work for all who wait here.
        if not self._candidates or self._is_alone or not self._has_room_for_more():
            return None
        if self._candidates[-1].is_careful and self._free() <= 0:
            return None
        candidate = self._candidates.pop()
        self._promised += candidate.surplus
        self._taken.add(candidate.entry.batch_id)
        if len(self._candidates) == self._enough() - 1:
            self.on_low()
        return candidate

    def _wake_one(self) -> None:
        """Have one of the waiting threads look whether there is something for it."""
        if self._claimed or self._candidates or self._has_errand:
            self._changed.notify()

    def _has_room_for_more(self) -> bool:
        """Tell whether another batch should be looked into, beside those that are."""
        done = self.done_meanwhile(self._candidates[-1].entry.task_type)
        # Of what is being claimed, one is for each thread that claims.
        coming = self._promised + max(self._reserved - self._reserving, 0)
        return coming < self._waiting + done

    def add_errand(self) -> None:
        """Have one thread do what each does between two jobs."""
        with self._changed:
            self._has_errand = True
            self._wake_one()

    def looked_into(self, candidate: Candidate) -> None:
        """Say that a candidate taken by `next` has been looked into."""
        with self._changed:
            self._promised -= candidate.surplus
            self._taken.discard(candidate.entry.batch_id)
            self._wake_one()

    def offer(self, found: Sequence[Candidate]) -> bool:
        """Add what is not here already, the higher priority first; tell whether any was new."""
        with self._changed:
            known = {candidate.entry.batch_id for candidate in self._candidates} | self._taken
            new = [each for each in found if each.entry.batch_id not in known]
            self._add(new)
            return bool(new)

    def hand_back(self, candidate: Candidate) -> None:
        """Add a batch that a thread of this worker has looked into and found more to do in."""
        batch_id = candidate.entry.batch_id
        with self._changed:
            # A poll may have found it in the meantime; this one need not be read again.
            self._candidates = [
                each for each in self._candidates if each.entry.batch_id != batch_id
            ]
            self._add([candidate])

    def reserve(self, wanted: Wanted, *, ahead: int, priority: int) -> Granted:
        """Set room aside for tasks to be claimed; return for how many there is room.

        None is given while something more urgent waits. Each call is followed by one of `assign`.
        """
        with self._changed:
            self._reserving += 1
            if self._closed or self._is_alone or self._is_outranked(priority):
                return Granted()
            free = self._free()
            plain = max(min(wanted.plain, free + ahead), 0)
            careful = max(min(wanted.careful, free - plain), 0)
            is_busy = plain or careful or self._claimed or self._reserved
            self._is_alone = bool(wanted.alone) and not is_busy
            granted = Granted(plain, careful, int(self._is_alone))
            self._reserved += granted.total
            return granted

    def _free(self) -> int:
        """Return for how many threads there is nothing claimed yet, nor being claimed."""
        # A thread that is reserving is about to be free itself.
        return self._waiting + self._reserving - len(self._claimed) - self._reserved

    def assign(self, assignments: Sequence[Assignment], granted: Granted) -> Sequence[Assignment]:
        """Add claimed tasks in place of the room that was reserved for them.

        Returns:
            Those for which no thread will come, since it was closed meanwhile.
        """
        with self._changed:
            self._reserved -= granted.total
            self._reserving -= 1
            if not self._closed:
                self._claimed.extend(assignments)
                self._waiting_of.update(each.holding for each in assignments)
            if granted.alone and assignments:
                assignments[0].is_alone = True
            elif granted.alone:
                self._is_alone = False
            self._wake_one()
            return assignments if self._closed else ()

    def done(self, assignment: Assignment) -> None:
        """Say that an attempt is over."""
        if assignment.is_alone:
            with self._changed:
                self._is_alone = False
                self._wake_one()

    def withdraw(self, before: float) -> list[Assignment]:
        """Take back the claimed tasks that have waited for a thread since before a moment."""
        with self._changed:
            stale = [each for each in self._claimed if each.claimed_at < before]
            if stale:
                self._claimed = deque(each for each in self._claimed if each.claimed_at >= before)
                for each in stale:
                    self._no_longer_waits(each)
                    if each.is_alone:
                        self._is_alone = False
            return stale

    def has_waiting(self, holding: Holder) -> bool:
        """Tell whether a claimed task of a batch waits for a thread."""
        return holding in self._waiting_of

    def _no_longer_waits(self, assignment: Assignment) -> None:
        left = self._waiting_of[assignment.holding] - 1
        if left:
            self._waiting_of[assignment.holding] = left
        else:
            del self._waiting_of[assignment.holding]

    def close(self) -> list[Assignment]:
        """Let every thread go; return the claimed tasks that none has begun."""
        with self._changed:
            self._closed = True
            left = list(self._claimed)
            self._claimed.clear()
            self._waiting_of.clear()
            self._candidates.clear()
            self._changed.notify_all()
            return left

    def is_idle(self) -> bool:
        """Tell whether all threads wait and nothing is left for them."""
        with self._changed:
            has_jobs = self._claimed or self._candidates or self._has_errand
            return self._waiting == self._threads and not has_jobs

    def is_low(self) -> bool:
        """Tell whether there are so few candidates that it is time to look for more."""
        with self._changed:
            return len(self._candidates) < self._enough()

    def _enough(self) -> int:
        return self._threads * (EARLY if self.more_is_due else 1)

    def has_other_candidates(self) -> bool:
        """Tell whether there is anything to look into that nobody else is working on."""
        with self._changed:
            return any(not candidate.is_contended for candidate in self._candidates)

    def _add(self, candidates: Sequence[Candidate]) -> None:
        if self._closed:
            return
        # The best are last; among equals those that were here before, and then as given.
        self._candidates = sorted([*reversed(candidates), *self._candidates], key=_rank)
        self._wake_one()

    def _is_outranked(self, priority: int) -> bool:
        if not self._candidates:
            return False
        best = self._candidates[-1]
        return not best.is_contended and best.entry.priority > priority


def _ignore() -> None:
    pass


def _rank(candidate: Candidate) -> tuple[bool, int]:
    return not candidate.is_contended, candidate.entry.priority
