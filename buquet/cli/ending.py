"""How a process ends on time, whatever user code has left behind.

At its exit Python waits, for as long as it takes, for non-daemon threads, thread pools, children of
`multiprocessing` and exit handlers; and a hook that hangs keeps a run from ending at all. So each
end has a deadline. It is kept by a thread that does nothing else, takes no lock that others hold
and writes nothing before it must.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

from buquet.clock import Clock, SystemClock

EXIT_SECONDS = 5.0
"""How long exit handlers and leftover threads have once a command is done."""

TIDY_SECONDS = 10.0
"""How long a worker has, after its grace period, for its last writes, its hooks and its exit."""

AT_ONCE_SECONDS = 5.0
"""The same after a second request to stop, which ends the grace period."""

REPORT_SECONDS = 0.5
"""How long the last line may take to be written."""


class LastResort:
    """Ends the process at a deadline. Does nothing until it is started."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = self._clock.event()
        self._is_started = False
        self._end_at: float | None = None
        self._code = 0

    def start(self) -> None:
        """Start to watch the deadline."""
        self._is_started = True
        threading.Thread(target=self._watch, name="buquet-last-resort", daemon=True).start()

    def within(self, seconds: float, code: int) -> None:
        """End the process with an exit code, unless it ends by itself within some seconds.

        An earlier deadline stands: what is known better later on is the exit code.
        """
        end_at = self._clock.monotonic() + seconds
        self._code = code
        self._end_at = end_at if self._end_at is None else min(self._end_at, end_at)
        self._changed.set()

    def _watch(self) -> None:
        while self._end_at is None or self._clock.monotonic() < self._end_at:
            left = None if self._end_at is None else self._end_at - self._clock.monotonic()
            self._changed.wait(left)
            self._changed.clear()
        reporter = threading.Thread(target=_report, name="buquet-report", daemon=True)
        with suppress(RuntimeError):  # too many threads, or the interpreter is nearly gone
            reporter.start()
            reporter.join(REPORT_SECONDS)
        os._exit(self._code)


last_resort = LastResort()
"""That of this process. `main` starts it: a command that is called in another way ends nothing."""


def _report() -> None:
    waited_for = ", ".join(_leftovers()) or "an exit handler or a child process"
    with suppress(OSError):
        os.write(2, f"buquet: The process did not end by itself: {waited_for}.\n".encode())


def _leftovers() -> Iterator[str]:
    """Name the threads that keep the process, and the line of user code that each is at."""
    frames = sys._current_frames()  # noqa: SLF001 -- the only way to see where a thread is
    for thread in threading.enumerate():
        place = _user_code(frames.get(thread.ident or 0))
        if place is not None and (thread is threading.main_thread() or not thread.daemon):
            yield f"{thread.name} is at {place}"


def _user_code(frame: FrameType | None) -> str | None:
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_OF_THE_USER):
            return f"{path}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return None


_NOT_OF_THE_USER = (
    f"{sysconfig.get_path('stdlib')}/",
    f"{Path(__file__).parents[1]}/",
    "<frozen ",
    "<string>",
)
