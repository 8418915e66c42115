"""A clock that moves only when a test moves it."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime, timedelta

from buquet.clock import EPOCH

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class FakeClock:
    """A `Clock` that a test moves with `advance`. Threads that wait for a time wake when it comes.

    Args:
        start: the time that the clock shows at first.
        sleeping_advances: whether `sleep` advances the clock itself, which suits single-threaded
            tests. If not, `sleep` waits until another thread has advanced the clock.
        skew: is added to the wall time, to play a machine whose clock is wrong.
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
        """Return the wall time, skew included."""
        return EPOCH + timedelta(seconds=self._seconds) + self.skew

    def monotonic(self) -> float:
        """Return the monotonic time in seconds. The skew does not affect it."""
        return self._seconds

    def advance(self, seconds: float = 0, **span: float) -> None:
        """Move the clock forward by seconds, or by the keywords of a `timedelta`."""
        with self._moved:
            self._seconds += seconds + timedelta(**span).total_seconds()
            self._moved.notify_all()

    def await_waiters(self, count: int, *, within: float = 10.0) -> None:
        """Wait until at least `count` threads wait for a time that has not come.

        Args:
            count: how many threads.
            within: how long to wait, in real seconds.

        Raises:
            TimeoutError: if fewer threads wait by then.
        """
        with self._moved:
            if not self._moved.wait_for(lambda: self._waiting() >= count, within):
                raise TimeoutError(f"Only {self._waiting()} of {count} threads wait for the clock.")

    def _waiting(self) -> int:
        return sum(until > self._seconds for until in self._waiters.values())

    def event(self) -> FakeEvent:
        """Return a new event whose timeouts follow this clock."""
        return FakeEvent(self, self._moved, self._waiters)

    def sleep(self, seconds: float) -> None:
        """Advance the clock, or wait until another thread has advanced it so far."""
        if self._sleeping_advances:
            self.advance(seconds)
        else:
            self.event().wait(seconds)


class FakeEvent:
    """An event whose timeouts follow a `FakeClock`."""

    def __init__(
        self, clock: FakeClock, moved: threading.Condition, waiters: dict[int, float]
    ) -> None:
        self._clock = clock
        self._moved = moved
        self._waiters = waiters
        self._is_set = False

    def set(self) -> None:
        """Set the event and wake all threads that wait for it."""
        with self._moved:
            self._is_set = True
            self._moved.notify_all()

    def clear(self) -> None:
        """Reset the event, so that `wait` blocks again."""
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set or the clock has moved by `timeout`.

        Returns:
            Whether the event is set.
        """
        me = threading.get_ident()
        with self._moved:
            end = math.inf if timeout is None else self._clock.monotonic() + timeout
            if not self._is_set:
                self._waiters[me] = end
                self._moved.notify_all()
                self._moved.wait_for(lambda: self._is_set or self._clock.monotonic() >= end)
                del self._waiters[me]
        return self._is_set
