"""Attempts that run for too long: first their thread is told, and if it does not react, given up.

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
from buquet.worker.dispatcher import Claim

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""When to try again to replace a thread, where the system would start no other."""

REACTION_SECONDS = 5.0
"""How long a thread has to react to its `TaskTimeout`."""


@define(eq=False)
class Watch:
    """An attempt that is being watched."""

    claim: Claim
    thread: threading.Thread = field(factory=threading.current_thread)
    shield: Shield = field(factory=shielded)
    deadline: float = math.inf
    """When the next thing happens to it, on the monotonic clock."""
    is_told: bool = False
    is_given_up: bool = False
    is_over: bool = False
    """Whether its thread has come back from it."""


class Watchdog:
    """Watches all attempts of a worker.

    Args:
        clock: the local clock.
        on_given_up: is told of each attempt whose thread did not react.
    """

    def __init__(self, clock: Clock, on_given_up: Callable[[Watch], None]) -> None:
        self._clock = clock
        self._on_given_up = on_given_up
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()
        self._woken = clock.event()
        self._next_look = math.inf
        self._is_stopped = False

    def arm(self, watch: Watch, seconds: float) -> None:
        """Begin to watch an attempt, in its own thread.

        Raises:
            TaskTimeout: if time is up before the attempt has begun.
        """
        with watch.shield:
            watch.deadline = self._clock.monotonic() + seconds
            with self._lock:
                self._watches.add(watch)
                is_sooner = watch.deadline < self._next_look
            if is_sooner:
                self._woken.set()

    def disarm(self, watch: Watch) -> None:
        """Stop watching an attempt, in its own thread; a `TaskTimeout` on its way is called back.

        Raises:
            TaskTimeout: if one comes at the last moment; then it is to be called again.
        """
        with self._lock:
            self._watches.discard(watch)
            watch.is_over = True
        watch.shield.clear()

    def run(self) -> None:
        """Watch until `stop` is called."""
        while not self._is_stopped:
            self._woken.clear()
            self._woken.wait(self._look())

    def stop(self) -> None:
        """Have `run` return."""
        self._is_stopped = True
        self._woken.set()

    def _look(self) -> float | None:
        """Deal with what is overdue; return for how many seconds there is nothing to do."""
        now = self._clock.monotonic()
        given_up = []
        with self._lock:
            for watch in [watch for watch in self._watches if watch.deadline <= now]:
                if watch.is_told:
                    watch.is_given_up = True
                    self._watches.discard(watch)
                    given_up.append(watch)
                else:
                    watch.is_told = True
                    watch.deadline = now + REACTION_SECONDS
                    watch.shield.interrupt(TaskTimeout)
        for watch in given_up:
            self._give_up(watch, now)
        with self._lock:
            self._next_look = min((each.deadline for each in self._watches), default=math.inf)
        return None if self._next_look == math.inf else max(self._next_look - now, 0)

    def _give_up(self, watch: Watch, now: float) -> None:
        try:
            self._on_given_up(watch)
        except RuntimeError:
            logger.exception(
                "No thread can take the place of the one that is stuck with task %s yet.",
                watch.claim.task.id,
            )
            with self._lock:
                # One that has come back meanwhile may have seen that it was given up, and gone.
                watch.is_given_up = watch.is_over
                watch.deadline = now + AGAIN_SECONDS
                self._watches.add(watch)
