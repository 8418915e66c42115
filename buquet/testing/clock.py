"""A clock that goes only when it is told to."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime, timedelta

from buquet.clock import EPOCH

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class FakeClock:
    """A `Clock` that a test moves with `advance`; what waits for a time wakes when it has come.

    Args:
        start: the time that it shows at first.
        sleeping_advances: whether `sleep` moves the clock itself, as single-threaded tests want.
        skew: what is added to the wall time, for a machine whose clock is off.
    """

    def __init__(
        self,
        start: datetime = START,
        *,
        sleeping_advances: bool = True,
        skew: timedelta = timedelta(0),
    ) -> None:
        self.skew = skew
        self._sleeping_advances = sleeping_advances
        self._seconds = (start - EPOCH).total_seconds()
        self._moved = threading.Condition()
        self._waiters: dict[int, float] = {}

    def now(self) -> datetime:
        """Return the time that it shows."""
        return EPOCH + timedelta(seconds=self._seconds) + self.skew

    def monotonic(self) -> float:
        """Return seconds, unmoved by the skew."""
        return self._seconds

    def advance(self, seconds: float = 0, **span: float) -> None:
        """Move the clock by seconds, or by the keywords of a timedelta."""
        with self._moved:
            self._seconds += seconds + timedelta(**span).total_seconds()
            self._moved.notify_all()

    def await_waiters(self, count: int, *, within: float = 10.0) -> None:
        """Wait until so many threads wait for a time that has not come: then all is at rest.

        Args:
            count: how many threads.
            within: the deadline for that, in real seconds.

        Raises:
            TimeoutError: if it has not come to that.
        """
        with self._moved:
            if not self._moved.wait_for(lambda: self._resting() >= count, within):
                raise TimeoutError(f"Of {count} threads, {self._resting()} are waiting.")

    def _resting(self) -> int:
        return sum(until > self._seconds for until in self._waiters.values())

    def event(self) -> FakeEvent:
        """Make an event whose timeouts follow this clock."""
        return FakeEvent(self, self._moved, self._waiters)

    def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved so far, or move it."""
        if self._sleeping_advances:
            self.advance(seconds)
        else:
            self.event().wait(seconds)


class FakeEvent:
    """An event that waits in the time of a `FakeClock`."""

    def __init__(
        self, clock: FakeClock, moved: threading.Condition, waiters: dict[int, float]
    ) -> None:
        self._clock = clock
        self._moved = moved
        self._waiters = waiters
        self._is_set = False

    def set(self) -> None:
        """Wake all who wait."""
        with self._moved:
            self._is_set = True
            self._moved.notify_all()

    def clear(self) -> None:
        """Make the next `wait` wait."""
        self._is_set = False

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or the clock has moved by `timeout`."""
        me = threading.get_ident()
        with self._moved:
            end = math.inf if timeout is None else self._clock.monotonic() + timeout
            if not self._is_set:
                self._waiters[me] = end
                self._moved.notify_all()
                self._moved.wait_for(lambda: self._is_set or self._clock.monotonic() >= end)
                del self._waiters[me]
        return self._is_set
