"""How requests to stop reach a process: as signals, and from its supervisor.

Python runs signal handlers on the main thread, between two of its steps. Code of the user may keep
it from taking any, so here a thread listens to the pipe into which Python writes each signal as it
comes (`signal.set_wakeup_fd`).

A request may come by several ways at once. A platform signals every process of a group while the
supervisor passes its own signal on; `timeout`, honcho and uv signal both their child and its group.
So the signals and the supervisor are counted apart, and one signal sent twice in quick succession
counts once.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from buquet.cli.lifeline import NOW, Lifeline
from buquet.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

SAME_REQUEST_SECONDS = 0.5
"""A signal that follows one of its kind within so many seconds repeats it."""

HINT = " Press Ctrl-C or send SIGTERM again to release running tasks at once."

IN_ORDER = 1
AT_ONCE = 2

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class StopRequests:
    """Counts the requests to stop this process: 1 in order, 2 at once, 3 now.

    Args:
        act: called with each new count, in a thread of its own: one call that hangs keeps none of
            those that follow.
        clock: the local clock.
    """

    def __init__(self, act: Callable[[int], None], clock: Clock | None = None) -> None:
        self.count = 0
        self._act = act
        self._clock = clock or SystemClock()
        self._signals = 0
        self._last_at: dict[int, float] = {}
        self._lock = threading.Lock()

    def on_signal(self, number: int) -> None:
        """Take note of a signal."""
        now = self._clock.monotonic()
        if now - self._last_at.get(number, -math.inf) < SAME_REQUEST_SECONDS:
            return
        self._last_at[number] = now
        self._signals += 1
        self._raise_to(self._signals)

    def follow(self, supervisor: Lifeline) -> None:
        """Do as the supervisor says from now on; when it is gone, stop in order."""

        def listen() -> None:
            for word, *_ in supervisor.listen():
                self._raise_to(AT_ONCE if word == NOW else IN_ORDER)
            if not self.count:
                logger.warning("The supervisor is gone: this process stops.")
            self._raise_to(IN_ORDER)

        _start("buquet-lifeline", listen)

    def _raise_to(self, count: int) -> None:
        with self._lock:
            if count <= self.count:
                return
            self.count = count
        _start("buquet-stop", lambda: self._act(count))


@contextmanager
def hearing(requests: StopRequests, on_main: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Take the signals that ask a process to stop. On the main thread only.

    One that is ignored, such as SIGHUP under `nohup`, stays so.

    Args:
        requests: is told of each.
        on_main: called on the main thread at each, once that takes notice.
    """

    def on_signal(number: int, frame: Any) -> None:  # noqa: ARG001 -- as signal wants it
        on_main()

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    _start("buquet-signals", lambda: _listen(read_end, requests))
    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in numbers}
    descriptor_before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()
        signal.set_wakeup_fd(descriptor_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write_end)


def _listen(read_end: int, requests: StopRequests) -> None:
    while came := os.read(read_end, 64):
        for number in came:
            if number in SIGNALS:
                requests.on_signal(number)
    os.close(read_end)


def _start(name: str, target: Callable[[], None]) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


_before: dict[int, Any] = {}
"""How each signal was handled before this process took it."""


def _let_go() -> None:
    """In a forked child, have signals end it: else they would stop its parent, by the pipe."""
    if _before:
        signal.set_wakeup_fd(-1)
        for number, handler in _before.items():
            signal.signal(number, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
