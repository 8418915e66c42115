"""How many tasks of a type this process may run at a time, and begin in a while."""

from __future__ import annotations

import math
import re
import threading

from attrs import frozen

from buquet.clock import Clock
from buquet.errors import ConfigurationError

_RATE = re.compile(r"(\d{1,9})/([smhd])", re.ASCII)
_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@frozen
class Rate:
    """So many in so many seconds."""

    count: int
    seconds: float


def parse_rate(text: str) -> Rate:
    """Read a rate such as `10/m`: a whole number for each s, m, h or d.

    Raises:
        ConfigurationError: if it is none.
    """
    match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or int(match[1]) == 0:
        raise ConfigurationError(f"{text!r} is not a rate. Write e.g. 5/s, 10/m, 100/h or 1000/d.")
    return Rate(int(match[1]), _PERIODS[match[2]])


class Limit:
    """What holds tasks of one type back, within this process.

    A claim takes from it and its end gives back, so that no task is claimed that can't begin. The
    rate is a token bucket: after a quiet time `count` may begin at once, and then one whenever a
    token has come.
    """

    def __init__(self, clock: Clock, concurrency: int | None, rate: Rate | None) -> None:
        self._clock = clock
        self._concurrency = math.inf if concurrency is None else concurrency
        self._rate = rate
        self._running = 0
        self._reads = 0
        self._tokens = float(rate.count) if rate else math.inf
        self._filled_at = clock.monotonic()
        self._lock = threading.Lock()

    def may_read(self) -> bool:
        """Return whether a batch may be read for a task to begin, beside those being read."""
        with self._lock:
            self._fill()
            return self._reads < min(self._concurrency - self._running, self._tokens // 1)

    def begin_read(self) -> None:
        """Say that a batch is being read; `end_read` must follow."""
        with self._lock:
            self._reads += 1

    def end_read(self) -> None:
        """Say that a batch has been read, and claimed from or not."""
        with self._lock:
            self._reads -= 1

    def take(self, wanted: int, *, ending: int = 0) -> int:
        """Set so many claims aside, while others are `ending`; return how many it permits."""
        with self._lock:
            self._fill()
            free = self._concurrency - self._running + ending
            given = int(min(wanted, free, self._tokens))
            given = max(given, 0)
            self._running += given
            self._tokens -= given
            return given

    def refund(self, count: int) -> None:
        """Take back what was set aside and not claimed."""
        with self._lock:
            self._running -= count
            self._tokens += count

    def end(self, count: int) -> None:
        """Say that so many claims have ended."""
        with self._lock:
            self._running -= count

    def opens_in(self) -> float:
        """Return in how many seconds `take` permits a claim: 0 if it does now.

        Where that depends on the end of a task, nobody knows: then it is infinite.
        """
        with self._lock:
            self._fill()
            if self._running >= self._concurrency:
                return math.inf
            if self._rate is None or self._tokens >= 1:
                return 0.0
            return (1 - self._tokens) * self._rate.seconds / self._rate.count

    def _fill(self) -> None:
        if self._rate is None:
            return
        now = self._clock.monotonic()
        come = (now - self._filled_at) * self._rate.count / self._rate.seconds
        self._tokens = min(self._tokens + come, float(self._rate.count))
        self._filled_at = now
