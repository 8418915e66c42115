"""When to poll next: the pause adapts, and whoever knows of work sooner says so."""

from __future__ import annotations

import math
import threading
from datetime import datetime, timedelta

from buquet.core.batch import Commit
from buquet.core.keys import minute_of
from buquet.ledger.ledger import Ledger


class Pacer:
    """The pause between two polls, and what cuts it short.

    Args:
        ledger: the ledger, for its clocks.
        shortest: the pause while there is work.
        longest: the pause that it grows to while there is none.
    """

    def __init__(self, ledger: Ledger, *, shortest: timedelta, longest: timedelta) -> None:
        self._ledger = ledger
        self._clock = ledger.store.clock
        self._shortest = shortest.total_seconds()
        self._longest = longest.total_seconds()
        self._pause = self._shortest
        self._woken = self._clock.event()
        self._is_urgent = False
        self._polled_at = -self._longest
        self._by = math.inf  # in monotonic seconds
        self._lock = threading.Lock()

    # --- any thread may call these

    def wake(self) -> None:
        """Poll at once."""
        self._is_urgent = True
        self._woken.set()

    def hurry(self) -> None:
        """Poll at once, and again soon: there is work."""
        self._pause = self._shortest
        self.wake()

    def wake_by(self, moment: datetime) -> None:
        """Poll in time for a moment."""
        seconds = (moment - self._ledger.now()).total_seconds()
        if seconds < self._pause:
            self._poll_by(self._clock.monotonic() + seconds)

    def relax(self, seconds: float = 0.0) -> None:
        """Poll in so many seconds, but no sooner than `shortest` after the last poll."""
        moment = self._clock.monotonic() + seconds
        self._poll_by(max(moment, self._polled_at + self._shortest))

    def _poll_by(self, moment: float) -> None:
        with self._lock:
            self._by = min(self._by, moment)
        self._woken.set()

    def observe(self, commit: Commit) -> None:
        """Poll at once when this process makes something due, and in time for what is later."""
        old, new = commit.old, commit.new
        now = self._ledger.now()
        has_moved = old is None or old.generation != new.generation
        if has_moved and new.unfinished and new.due <= minute_of(now):
            self.wake()
        dues = [task.available_at for task in new.unfinished if task.available_at > now]
        if dues:
            self.wake_by(min(dues))

    # --- the poll loop calls these

    def begin(self) -> None:
        """Forget what woke it before: what wakes it from now on calls for another poll."""
        self._woken.clear()
        self._is_urgent = False
        self._by = math.inf
        self._polled_at = self._clock.monotonic()

    def adapt(self, *, found_work: bool, has_enough: bool) -> None:
        """Grow the pause, or begin anew with the shortest; with enough work there is no hurry."""
        if not found_work:
            self._pause = min(self._pause * 1.5, self._longest)
        else:
            self._pause = self._longest if has_enough else self._shortest

    def wait(self, due: datetime | None, *, opens_in: float) -> None:
        """Pause, but not beyond the moment at which something is due or a limit opens.

        Args:
            due: when something is due, as far as is known.
            opens_in: in how many seconds a limit opens; infinite if none is reached.
        """
        pause = min(self._pause, max(opens_in, self._shortest))
        if due is not None:
            seconds = (due - self._ledger.now()).total_seconds()
            pause = min(pause, max(seconds, self._shortest if seconds <= 0 else 0.001))
        end = self._clock.monotonic() + pause
        while not self._is_urgent and (left := min(end, self._by) - self._clock.monotonic()) > 0:
            if self._woken.wait(left):
                self._woken.clear()
