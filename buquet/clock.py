"""Where time is read, and nowhere else.

A `Clock` gives the wall time, the monotonic time, and events that can be waited for; the tests put
a fake in its place. A `StoreClock` follows the clock of a store by what its answers say.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

logger = logging.getLogger(__name__)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST_CORRECTION = timedelta(seconds=5)
"""A store's time that goes back by more than this has been set anew: then it is followed."""

SKEW_WORTH_A_WARNING = timedelta(seconds=10)

WELL_KNOWN = 1.5
"""The time is known well within so many seconds: a date leaves one, its way here the rest."""

ENOUGH_ANSWERS = 3
"""After so many answers without a date none is expected to have one."""

LONGEST_ANSWER = 30.0
"""An answer that seems to have taken longer, in seconds, does not tell the time: no request may
take so long, so the process was stopped in between."""

DRIFT = 0.001
"""By how many seconds two clocks may part in a second: each is slewed by up to half of that."""


class Event(Protocol):
    """What is used of `threading.Event`."""

    def set(self) -> None:
        """Wake all threads that wait."""

    def clear(self) -> None:
        """Make the next `wait` wait."""

    def is_set(self) -> bool:
        """Return whether it is set."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for `timeout` seconds; return whether it is set."""


class Clock(Protocol):
    """The time, and ways to wait for it."""

    def now(self) -> datetime:
        """Return the wall time, as an aware datetime in UTC."""

    def monotonic(self) -> float:
        """Return seconds from some fixed point; never goes back."""

    def event(self) -> Event:
        """Make an event whose timeouts follow this clock."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""


_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the machine's wall time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic time, in seconds; on Linux it goes on while it sleeps.

        Else what is known of the store's time would be behind by as long as the machine slept.
        """
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def event(self) -> Event:
        """Make an event."""
        return _SystemEvent()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class _SystemEvent(threading.Event):
    """A `threading.Event` that takes any timeout: beyond some centuries the system has none."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))


class StoreClock:
    """The time of a store, known from the `Date` of its answers, without a request of its own.

    An answer dated `d` that was asked for at `sent` and had arrived at `received` (local monotonic
    seconds) bounds the offset between the two clocks: the store read its clock in between, and it
    showed from `d` to one second later. Successive bounds are intersected, what was known before
    being wider by what the clocks may have drifted since; where they contradict each other, because
    servers disagree, the latest stands alone.
    """

    def __init__(self, local: Clock) -> None:
        self._local = local
        self._lock = threading.RLock()
        self._bounds: tuple[float, float] | None = None
        self._bounds_at = 0.0
        self._undated = 0
        self._is_known = False
        self._latest = EPOCH
        self._warned = False

    @property
    def has_answer(self) -> bool:
        """Whether there is no more to ask: an answer has told the time, or none ever does."""
        return self._is_known or self._undated >= ENOUGH_ANSWERS

    def observe_no_date(self) -> None:
        """Count an answer without a date: after some of them the local time is used."""
        with self._lock:
            had_answer = self.has_answer
            self._undated += 1
        if self.has_answer and not had_answer:
            logger.warning(
                "The store does not say what time it is (its answers have no Date header), so this "
                "machine's clock is used. Keep the clocks of all machines in step."
            )

    def observe(self, date: datetime, sent: float, received: float) -> None:
        """Learn from one answer."""
        shown = (date - EPOCH).total_seconds()
        low, high = shown - received, shown + 1 - sent
        with self._lock:
            if self._bounds is not None:
                drift = self._drift()
                both = max(low, self._bounds[0] - drift), min(high, self._bounds[1] + drift)
                if both[0] <= both[1]:
                    low, high = both
            self._bounds, self._bounds_at = (low, high), self._local.monotonic()
            self._is_known = self._is_known or high - low <= LONGEST_ANSWER
            if high - low <= WELL_KNOWN:
                self._warn_once()

    def now(self) -> datetime:
        """Return the store's time, to within a round trip.

        Before any answer has been seen it is the local time. As long as all answers were slow it is
        rather too early than too late: no task expires before its deadline. Better bounds never
        make it go back: what a process has just stored would lie in the future of its next look.
        """
        if self._bounds is None:
            return self._local.now()
        with self._lock:
            low, high = self._bounds
            offset = low + min(high - low, WELL_KNOWN) / 2
            now = EPOCH + timedelta(seconds=self._local.monotonic() + offset)
            if not self._latest - LARGEST_CORRECTION <= now < self._latest:
                self._latest = now
            return self._latest

    def latest(self) -> datetime:
        """Return the latest that the store's time may be, by the bounds."""
        if self._bounds is None:
            return self._local.now()
        with self._lock:
            upper = self._local.monotonic() + self._bounds[1] + self._drift()
        return max(EPOCH + timedelta(seconds=upper), self.now())

    def _drift(self) -> float:
        """Return by how much the clocks may have parted since the bounds were taken."""
        return (self._local.monotonic() - self._bounds_at) * DRIFT

    def _warn_once(self) -> None:
        skew = self._local.now() - self.now()
        if self._warned or abs(skew) < SKEW_WORTH_A_WARNING:
            return
        self._warned = True
        logger.warning(
            "This machine's clock is %.0f seconds %s the store's; the store's time is used.",
            abs(skew).total_seconds(),
            "ahead of" if skew > timedelta(0) else "behind",
        )
