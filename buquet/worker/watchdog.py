"""Attempts that run for too long: first their thread is told, and if it does not react, given up.

Python can't stop a thread. It can raise an exception in one that is running Python code; a thread
that waits in a system call gets it when the call returns. What is given up may therefore still be
running: its result is dropped, and another thread takes its place.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable

from attrs import define

from buquet.clock import Clock
from buquet.errors import TaskTimeout
from buquet.worker.agenda import Assignment

REACTION_SECONDS = 5.0
"""How long a thread has to react to its `TaskTimeout`."""


@define(eq=False)
class Watch:
    """An attempt that is being watched."""

    assignment: Assignment
    thread: threading.Thread
    deadline: float
    """When the next thing happens to it, on the monotonic clock."""
    is_told: bool = False
    is_given_up: bool = False


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

    def watch(self, assignment: Assignment, seconds: float) -> Watch:
        """Begin to watch an attempt in the calling thread."""
        deadline = self._clock.monotonic() + seconds
        watch = Watch(assignment, threading.current_thread(), deadline)
        with self._lock:
            self._watches.add(watch)
            is_sooner = deadline < self._next_look
        if is_sooner:
            self._woken.set()
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Stop watching an attempt, in its own thread; call back a `TaskTimeout` on its way."""
        with self._lock:
            self._watches.discard(watch)
        if watch.is_told:
            _raise_in(watch.thread, None)

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
                    _raise_in(watch.thread, TaskTimeout)
            self._next_look = min((each.deadline for each in self._watches), default=math.inf)
        for watch in given_up:
            self._on_given_up(watch)
        return None if self._next_look == math.inf else max(self._next_look - now, 0)


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Have an exception raised in a thread at its next step, or call back one on its way."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), raised)
