"""How long to wait before the store is asked again for what it does not do now."""

from __future__ import annotations

from buquet.clock import Clock
from buquet.errors import BuquetError

SHORTEST, LONGEST = 1.0, 10.0
"""The first pause, in seconds, and the longest. Each is twice the one before."""


class Backoff:
    """Pauses that grow while something fails."""

    def __init__(self, clock: Clock) -> None:
        self.failures = 0
        """How often in a row it has failed."""
        self.problem: BuquetError | None = None
        """What the store said the last time; None once it has succeeded."""
        self._clock = clock
        self._until = 0.0

    def left(self) -> float:
        """Return for how many more seconds not to try; 0 if there is no reason to wait."""
        return max(self._until - self._clock.monotonic(), 0.0) if self.failures else 0.0

    def fail(self, problem: BuquetError) -> float:
        """Note a failure; return for how many seconds to wait."""
        self.problem = problem
        if not self.left():  # else other threads were at it at the same time
            pause = min(SHORTEST * 2.0**self.failures, LONGEST)
            self._until = self._clock.monotonic() + pause
            self.failures += 1
        return self.left()

    def succeed(self) -> None:
        """Go on without a pause."""
        self.failures, self.problem = 0, None
