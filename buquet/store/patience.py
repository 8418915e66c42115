"""Waiting for a store that is busy: longer each time, at random, and not for ever."""

from __future__ import annotations

from random import SystemRandom

from buquet.clock import Clock

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0
TIME_LIMIT = 15.0
"""Seconds after which nothing is tried again: with one last timeout, under half a minute in all."""


def share(give_up_after: float | None, usual: float) -> float:
    """Return how long one step of a call may take, in seconds.

    A call connects, reads and waits between its tries, and an act of a producer makes two calls.

    Args:
        give_up_after: how long an act may take in all; None for as long as usual.
        usual: how long the step may take then.
    """
    return usual if give_up_after is None else min(give_up_after / 4, usual)


_chance = SystemRandom()  # a child of fork must not wait in step with its parent


class Patience:
    """The patience that one call has with its store.

    Args:
        clock: the local clock.
        limit: seconds after which nothing is tried again.
    """

    def __init__(self, clock: Clock, limit: float = TIME_LIMIT) -> None:
        self._clock = clock
        self._end = clock.monotonic() + limit
        self._tries = 1

    def wait(self, tries: int = 7, *, at_least: float = 0.0) -> bool:
        """Wait and return True, or return False after so many tries or so much time.

        Args:
            tries: how many there are in all.
            at_least: for how many seconds the store asks to be left alone.
        """
        left = self._end - self._clock.monotonic()
        if self._tries >= tries or left <= 0 or at_least > left:
            return False
        longest = min(FIRST_WAIT * 2 ** (self._tries - 1), LONGEST_WAIT)
        self._clock.sleep(max(min(_chance.uniform(longest / 2, longest), left), at_least))
        self._tries += 1
        return True
