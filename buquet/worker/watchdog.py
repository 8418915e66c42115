"""Ends attempts that run for too long: first it interrupts their thread, and then gives it up.

Python can't stop a thread. It can raise an exception in one that is running Python code; a thread
that waits in a system call gets it when the call returns. What is given up may therefore still be
running: its result is dropped, and another thread takes its place.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from attrs import define, field

from buquet.clock import Clock
from buquet.errors import TaskTimeout
from buquet.shield import Shield, shielded
from buquet.worker.jobs import Claim

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""When to try again to replace a thread, where the system would start no other."""

REACTION_SECONDS = 5.0
"""How long a thread has to react to its `TaskTimeout`."""


@define(eq=False)
class TimedAttempt:
    """An attempt whose time is limited."""

    claim: Claim
    thread: threading.Thread = field(factory=threading.current_thread)
    shield: Shield = field(factory=shielded)
    deadline: float = math.inf
    """When the next thing happens to it, on the monotonic clock."""
    is_interrupted: bool = False
    is_given_up: bool = False
    is_over: bool = False
    """Whether its thread has come back from it."""


class Watchdog:
    """Limits the time of all attempts of a worker.

    Args:
        clock: the local clock.
        on_given_up: is called with each attempt whose thread did not react.
    """

    def __init__(self, clock: Clock, on_given_up: Callable[[TimedAttempt], None]) -> None:
        self._clock = clock
        self._on_given_up = on_given_up
        self._lock = threading.Lock()
        self._attempts: set[TimedAttempt] = set()
        self._woken = clock.event()
        self._next_due = math.inf
        self._is_stopped = False

    def arm(self, attempt: TimedAttempt, seconds: float) -> None:
        """Begin to watch an attempt, in its own thread.

        Raises:
            TaskTimeout: if time is up before the attempt has begun.
        """
        with attempt.shield:
            attempt.deadline = self._clock.monotonic() + seconds
            with self._lock:
                self._attempts.add(attempt)
                is_sooner = attempt.deadline < self._next_due
            if is_sooner:
                self._woken.set()

    def disarm(self, attempt: TimedAttempt) -> None:
        """Stop watching an attempt, in its own thread; a `TaskTimeout` on its way is called back.

        Raises:
            TaskTimeout: if one comes at the last moment; then it is to be called again.
        """
        with self._lock:
            self._attempts.discard(attempt)
            attempt.is_over = True
        attempt.shield.clear()

    def run(self) -> None:
        """Watch until `stop` is called."""
        while not self._is_stopped:
            self._woken.clear()
            self._woken.wait(self._check())

    def stop(self) -> None:
        """Have `run` return."""
        self._is_stopped = True
        self._woken.set()

    def _check(self) -> float | None:
        """Deal with what is overdue; return for how many seconds nothing is to be done."""
        now = self._clock.monotonic()
        given_up = []
        with self._lock:
            for attempt in [each for each in self._attempts if each.deadline <= now]:
                if attempt.is_interrupted:
                    attempt.is_given_up = True
                    self._attempts.discard(attempt)
                    given_up.append(attempt)
                else:
                    attempt.is_interrupted = True
                    attempt.deadline = now + REACTION_SECONDS
                    attempt.shield.interrupt(TaskTimeout)
        for attempt in given_up:
            self._give_up(attempt, now)
        with self._lock:
            self._next_due = min((each.deadline for each in self._attempts), default=math.inf)
        return None if self._next_due == math.inf else max(self._next_due - now, 0)

    def _give_up(self, attempt: TimedAttempt, now: float) -> None:
        try:
            self._on_given_up(attempt)
        except RuntimeError:
            logger.exception(
                "No thread can take the place of the one that is stuck with task %s yet.",
                attempt.claim.task.id,
            )
            with self._lock:
                # One that has come back meanwhile may have seen that it was given up, and gone.
                attempt.is_given_up = attempt.is_over
                attempt.deadline = now + AGAIN_SECONDS
                self._attempts.add(attempt)
