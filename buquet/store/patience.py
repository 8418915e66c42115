"""Waiting for a store that is busy: longer each time, at random, and not for ever."""

from __future__ import annotations

from random import SystemRandom

from buquet.clock import Clock

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0
TIME_LIMIT = 15.0
"""Seconds after which nothing is tried again: with one last timeout, under half a minute in all."""

_chance = SystemRandom()  # a child of fork must not wait in step with its parent


class Patience:
    """The patience that one call has with its store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic() + TIME_LIMIT
        self._tries = 1

    def wait(self, tries: int = 7) -> bool:
        """Wait and return True, or return False after so many tries or so much time."""
        if self._tries >= tries or self._clock.monotonic() >= self._end:
            return False
        longest = min(FIRST_WAIT * 2 ** (self._tries - 1), LONGEST_WAIT)
        self._clock.sleep(_chance.uniform(longest / 2, longest))
        self._tries += 1
        return True
