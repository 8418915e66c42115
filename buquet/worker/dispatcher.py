"""Hands the threads of a worker their jobs: hooks first, then claimed tasks, then batches to read.

It also decides how many tasks may be claimed: for each there must be a thread, or tasks so short
that one will be free in a moment (prefetch).
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Sequence

from attrs import frozen

from buquet.worker.jobs import CallHooks, Candidate, Claim, Job
from buquet.worker.pacer import Pacer
from buquet.worker.registry import LATENCY_SECONDS, Registry

EARLY = 4
"""Candidates per thread at which to poll for more where more is known to be due: the threads get
through them about as fast as a store lists a page."""


@frozen
class Room:
    """How many tasks of a batch are to be claimed, or how many may be."""

    plain: int = 0
    """They may wait for a thread."""
    careful: int = 0
    """Each only if a thread is free for it."""
    alone: int = 0
    """Each only if no other task begins beside it."""

    @property
    def total(self) -> int:
        """How many in all."""
        return self.plain + self.careful + self.alone


class Dispatcher:
    """Shared by the threads of one worker.

    Args:
        threads: how many threads take jobs.
        registry: knows how long the tasks of a type take.
        pacer: is hurried when jobs run low.
        is_burst: whether to wake the pacer as well when all is done: it may be time to leave.
    """

    def __init__(
        self, threads: int, registry: Registry, pacer: Pacer, *, is_burst: bool = False
    ) -> None:
        self.more_is_due = False
        """Whether more is due, as far as the last poll has seen, than it has offered."""
        self._threads = threads
        self._registry = registry
        self._pacer = pacer
        self._is_burst = is_burst
        self._changed = threading.Condition()
        self._claimed: deque[Claim] = deque()
        self._waiting_of: Counter[str] = Counter()  # by batch
        self._candidates: list[Candidate] = []  # the best last
        self._held_back: list[Candidate] = []  # by limits
        self._taken: set[str] = set()
        self._waiting = 0
        self._promised = 0
        self._reserved = 0
        self._reserving = 0
        self._is_alone = False
        self._has_hooks = False
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
                    if self._is_burst and self.is_idle():
                        self._pacer.wake()
                    if not block:
                        return None
                    self._changed.wait()
                return None
            finally:
                self._waiting -= 1

    def _take(self) -> Job | None:
        if self._has_hooks:
            self._has_hooks = False
            return CallHooks()
        if self._claimed:
            claim = self._claimed.popleft()
            self._no_longer_waits(claim)
            return claim
        while self._candidates and self._is_held_back(self._candidates[-1]):
            self._hold_back(self._candidates.pop())
        # The thread that reads a large batch will bring work for all that wait here.
        if not self._candidates or self._is_alone or not self._has_room_for_more():
            return None
        if self._candidates[-1].is_careful and self._free() <= 0:
            return None
        candidate = self._candidates.pop()
        if limit := self._registry.limits.get(candidate.entry.task_type):
            limit.begin_read()
        self._promised += candidate.surplus
        self._taken.add(candidate.entry.batch_id)
        if len(self._candidates) == self._enough() - 1:
            self._pacer.hurry()
        return candidate

    def _hold_back(self, candidate: Candidate) -> None:
        self._held_back.append(candidate)
        opens_in = self._registry.limits[candidate.entry.task_type].opens_in()
        if 0 < opens_in < math.inf:
            self._pacer.relax(opens_in)

    def _is_held_back(self, candidate: Candidate) -> bool:
        """Return whether a limit forbids to read a batch: it would be read again and again."""
        limit = self._registry.limits.get(candidate.entry.task_type)
        return limit is not None and not candidate.is_late and not limit.may_read()

    def _wake_one(self) -> None:
        """Wake one of the waiting threads, if there is something for it."""
        if self._claimed or self._candidates or self._has_hooks:
            self._changed.notify()

    def _has_room_for_more(self) -> bool:
        """Return whether another batch should be read, beside those that are being read."""
        # So many tasks are done while a thread waits for the store.
        task_type = self._candidates[-1].entry.task_type
        done = self._registry.ahead(task_type, self._threads, LATENCY_SECONDS)
        # Of what is being claimed, one is for each thread that claims.
        coming = self._promised + max(self._reserved - self._reserving, 0)
        return coming < self._waiting + done

    def call_hooks(self) -> None:
        """Have one thread call the hooks that are due."""
        with self._changed:
            self._has_hooks = True
            self._wake_one()

    def done_reading(self, candidate: Candidate) -> None:
        """Say that the batch of a candidate has been read."""
        if limit := self._registry.limits.get(candidate.entry.task_type):
            limit.end_read()
        with self._changed:
            self._promised -= candidate.surplus
            self._taken.discard(candidate.entry.batch_id)
            self._reopen()
            self._wake_one()

    def offer(self, found: Sequence[Candidate]) -> bool:
        """Add what is not here already, the higher priority first; return whether any was new."""
        with self._changed:
            self._reopen()
            known = {candidate.entry.batch_id for candidate in self._candidates} | self._taken
            new = [each for each in found if each.entry.batch_id not in known]
            self._add(new)
            return bool(new)

    def reopen(self) -> None:
        """Have threads look again at what limits held back: one may permit more."""
        with self._changed:
            self._reopen()

    def _reopen(self) -> None:
        if self._held_back:
            held_back, self._held_back = self._held_back, []
            self._add(held_back)

    def hand_back(self, candidate: Candidate) -> None:
        """Add a batch that a thread of this worker has read and found more to do in."""
        batch_id = candidate.entry.batch_id
        with self._changed:
            # A poll may have found it in the meantime; this one need not be read again.
            self._candidates = [
                each for each in self._candidates if each.entry.batch_id != batch_id
            ]
            self._add([candidate])

    def reserve(self, wanted: Room, *, ahead: int, priority: int) -> Room:
        """Set room aside for tasks to be claimed; return for how many there is room.

        None is given while something more urgent waits. Each call is followed by one of `assign`.
        """
        with self._changed:
            self._reserving += 1
            if self._closed or self._is_alone or self._is_outranked(priority):
                return Room()
            free = self._free()
            plain = max(min(wanted.plain, free + ahead), 0)
            careful = max(min(wanted.careful, free - plain), 0)
            is_busy = plain or careful or self._claimed or self._reserved
            self._is_alone = bool(wanted.alone) and not is_busy
            granted = Room(plain, careful, int(self._is_alone))
            self._reserved += granted.total
            return granted

    def _free(self) -> int:
        """Return for how many threads there is nothing claimed yet, nor being claimed."""
        # A thread that is reserving is about to be free itself.
        return self._waiting + self._reserving - len(self._claimed) - self._reserved

    def assign(self, claims: Sequence[Claim], granted: Room) -> Sequence[Claim]:
        """Add claimed tasks in place of the room that was reserved for them.

        Returns:
            Those for which no thread will come, since it was closed meanwhile.
        """
        with self._changed:
            self._reserved -= granted.total
            self._reserving -= 1
            if not self._closed:
                self._claimed.extend(claims)
                self._waiting_of.update(each.task.batch_id for each in claims)
            if granted.alone and claims:
                claims[0].is_alone = True
            elif granted.alone:
                self._is_alone = False
            self._wake_one()
            return claims if self._closed else ()

    def done(self, claim: Claim) -> None:
        """Say that an attempt is over."""
        if claim.is_alone:
            with self._changed:
                self._is_alone = False
                self._wake_one()

    def withdraw(self, before: float) -> list[Claim]:
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

    def has_waiting(self, batch_id: str) -> bool:
        """Return whether a claimed task of a batch waits for a thread."""
        return batch_id in self._waiting_of

    def _no_longer_waits(self, claim: Claim) -> None:
        batch_id = claim.task.batch_id
        self._waiting_of[batch_id] -= 1
        if not self._waiting_of[batch_id]:
            del self._waiting_of[batch_id]

    def close(self) -> list[Claim]:
        """Let every thread go; return the claimed tasks that none has begun."""
        with self._changed:
            self._closed = True
            left = list(self._claimed)
            self._claimed.clear()
            self._waiting_of.clear()
            self._candidates.clear()
            self._held_back.clear()
            self._changed.notify_all()
            return left

    def is_idle(self) -> bool:
        """Return whether all threads wait and nothing is left for them."""
        with self._changed:
            has_jobs = self._claimed or self._candidates or self._held_back or self._has_hooks
            return self._waiting == self._threads and not has_jobs

    def is_low(self) -> bool:
        """Return whether there are so few candidates that it is time to poll for more."""
        with self._changed:
            return len(self._candidates) < self._enough()

    def _enough(self) -> int:
        return self._threads * (EARLY if self.more_is_due else 1)

    def has_other_candidates(self) -> bool:
        """Return whether there is a batch to read that no other worker is at."""
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


def _rank(candidate: Candidate) -> tuple[bool, int]:
    return not candidate.is_contended, candidate.entry.priority
