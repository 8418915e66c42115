"""Several worker processes, kept going: started anew when one dies, stopped together.

They are spawned, never forked: each makes its own connections and imports the module anew. What
happens to them is put into one mailbox by signal handlers and by a thread for each process; the
main thread takes it out and acts. A process whose supervisor is gone stops by itself.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from attrs import define, field, frozen

from buquet.cli.program import DONE, FAILED, NO_STORE, USAGE
from buquet.clock import Clock, SystemClock
from buquet.worker import health

logger = logging.getLogger(__name__)

RELOAD = 79
"""The exit code by which a process asks to be started anew: its source has changed."""

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
"""Seconds from the death of a process to the start of its successor: at first, and at the most."""

LONG_LIFE = 60.0
"""A process that has lived for so many seconds starts the delays anew when it dies."""

LAST_PATIENCE = 5.0
"""Seconds from the second signal to the end of those that have not left."""

LOOK_EVERY = 1.0
"""Seconds. The system may give a signal to any thread, and Python then does not wake the main one
from a wait to act on it. So no wait is longer than this."""

INTERRUPTED = 130
"""The exit code of a program that was interrupted before it could do anything about it."""

LEASH = "BUQUET_LEASH"
"""Tells a process that it has a supervisor: the file descriptor that is closed when that dies."""


@frozen(kw_only=True)
class Plan:
    """Which processes there are to be."""

    command: Callable[[int], Sequence[str]]
    """Gives the arguments of the n-th process."""
    processes: int
    is_burst: bool = False
    """One that has left in order has done its part, and gets no successor."""
    is_recycled: bool = False
    """Leaving in order is how they make room for a successor: it is started at once."""
    is_reloaded: bool = False
    """A wrong setting is not the end: the next change of the source may mend it."""
    health_file: Path | None = None
    """Is touched as long as all of them touch theirs, which is this with `.n` behind it."""

    def touch_health_file(self) -> None:
        """Give it the time of that process which has not been well for the longest."""
        if self.health_file is not None:
            numbers = range(1, self.processes + 1)
            others = [health.file_of(self.health_file, number) for number in numbers]
            health.touch_as_oldest(self.health_file, others)


@define(eq=False)
class Place:
    """A place for a process: at most one at a time fills it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    born_at: float = 0.0
    start_at: float | None = 0.0
    """When the next process is to be started; None while one lives, or when none is to follow."""
    delay: float = FIRST_DELAY
    """How long it will be empty when its process dies."""

    @property
    def is_over(self) -> bool:
        """Whether no process fills it, and none will."""
        return self.process is None and self.start_at is None

    def next_delay(self, now: float) -> float:
        """Return how long to wait before the successor is started: longer each time."""
        if now - self.born_at >= LONG_LIFE:
            self.delay = FIRST_DELAY
        delay, self.delay = self.delay, min(self.delay * 2, LONGEST_DELAY)
        return delay


@define(eq=False)
class Supervisor:
    """Starts the processes of a plan, and sees to them until all have left."""

    plan: Plan
    clock: Clock = field(factory=SystemClock)
    counters: Counter[str] = field(factory=Counter, init=False)
    """How many processes were started, and how many died."""
    _places: list[Place] = field(init=False)
    # Its put() may be called by a signal handler in the midst of its get().
    _mail: SimpleQueue[Callable[[], None]] = field(factory=SimpleQueue, init=False)
    _signals_seen: int = field(default=0, init=False)
    _kill_at: float | None = field(default=None, init=False)
    _code: int = field(default=DONE, init=False)
    _leash: tuple[int, int] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._places = [Place(number) for number in range(1, self.plan.processes + 1)]

    def run(self) -> int:
        """Run the processes until they have done their part or are told to stop.

        Returns:
            The exit code: 0 if the last of each left in order.
        """
        with self._signals(), self._holding_the_leash():
            while not all(place.is_over for place in self._places):
                self._start_those_due()
                self._act_on_mail()
                self._kill_if_late()
                self._reap_strangers()
                self.plan.touch_health_file()
        logger.info("All processes have left.")
        return self._code

    # --- what is to be done

    def _start_those_due(self) -> None:
        for place in self._places:
            if place.start_at is not None and place.start_at <= self.clock.monotonic():
                self._start(place)

    def _start(self, place: Place) -> None:
        place.start_at, place.born_at = None, self.clock.monotonic()
        try:
            place.process = self._spawn(self.plan.command(place.number))
        except OSError as error:  # no memory, or no more processes: that may pass
            delay = place.next_delay(self.clock.monotonic())
            place.start_at = self.clock.monotonic() + delay
            logger.warning("Process %d can't be started now: %s", place.number, error)
            return
        self.counters["started"] += 1
        logger.info("Process %d has pid %d.", place.number, place.process.pid)
        threading.Thread(
            target=self._report_end,
            args=(place, place.process),
            name=f"buquet-process-{place.number}",
            daemon=True,
        ).start()

    def _spawn(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        leash = str(self._leash[0]) if self._leash else ""
        return subprocess.Popen(  # noqa: S603 -- this very program, with the options that it was given
            [sys.executable, "-m", "buquet", *arguments],
            stdin=subprocess.DEVNULL,
            env=os.environ | {LEASH: leash},
            pass_fds=self._leash[:1] if self._leash else (),
            # A group of its own: Ctrl-C is for the supervisor, which passes it on once.
            process_group=0 if os.name == "posix" else None,
        )

    def _report_end(self, place: Place, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._mail.put(partial(self._on_end, place, code))

    def _act_on_mail(self) -> None:
        """Wait for mail, or until it is time for something; act on all there is."""
        with suppress(Empty):
            self._mail.get(timeout=self._time_left())()
            while True:
                self._mail.get_nowait()()

    def _time_left(self) -> float:
        moments = [place.start_at for place in self._places if place.start_at is not None]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        now = self.clock.monotonic()
        return min([LOOK_EVERY, *(max(moment - now, 0.0) for moment in moments)])

    def _kill_if_late(self) -> None:
        if self._kill_at is None or self.clock.monotonic() < self._kill_at:
            return
        self._kill_at = None
        for place in self._places:
            if place.process is not None:
                logger.warning("Process %d does not leave, and is killed.", place.number)
                place.process.kill()

    # --- what has happened

    def _on_signal(self) -> None:
        self._signals_seen += 1
        if self._signals_seen == 1:
            logger.info("Stopping: the processes finish what they are at.")
        else:
            patience = LAST_PATIENCE if self._signals_seen == 2 else 0.0
            self._kill_at = self.clock.monotonic() + patience
        self._stop_all()

    def _stop_all(self) -> None:
        self._signals_seen = max(self._signals_seen, 1)
        # The second says "at once" to a process, too. Were it like the first, they might be one.
        number = signal.SIGTERM if self._signals_seen == 1 or os.name != "posix" else signal.SIGINT
        for place in self._places:
            place.start_at = None
            if place.process is not None:
                place.process.send_signal(number)

    def _on_end(self, place: Place, code: int) -> None:
        place.process = None
        if self._signals_seen:
            self._note_last(place, code)
        elif code == RELOAD or (code == DONE and self.plan.is_recycled):
            place.start_at = self.clock.monotonic()
        elif code == DONE and self.plan.is_burst:
            logger.info("Process %d has left: nothing is due.", place.number)
        elif self._is_hopeless(code):
            self._code = code
            self._stop_all()
        else:
            self._start_later(place, code)

    def _note_last(self, place: Place, code: int) -> None:
        # Before its handlers are in place a process dies of the signal, with nothing in its hands.
        if code not in (DONE, RELOAD, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT):
            logger.warning("Process %d %s.", place.number, ending(code))
            self.counters["died"] += 1
            self._code = self._code or FAILED

    def _is_hopeless(self, code: int) -> bool:
        """Tell whether the same would only happen again; the process has said why."""
        if code == USAGE:
            return not self.plan.is_reloaded
        return code == NO_STORE and self.plan.is_burst

    def _start_later(self, place: Place, code: int) -> None:
        delay = place.next_delay(self.clock.monotonic())
        place.start_at = self.clock.monotonic() + delay
        self.counters["died"] += code != DONE
        level = logging.INFO if code == DONE else logging.WARNING
        told = "Process %d %s; another takes its place in %g s."
        logger.log(level, told, place.number, ending(code), delay)

    # --- signals, the leash, and the duties of process 1

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def on_signal(number: int, frame: Any) -> None:  # noqa: ARG001 -- as signal wants it
            self._mail.put(self._on_signal)

        handlers: dict[int, Any] = {signal.SIGTERM: on_signal, signal.SIGINT: on_signal}
        if _is_process_1():
            handlers[signal.SIGCHLD] = lambda *_: self._mail.put(self._reap_strangers)
        before = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _holding_the_leash(self) -> Iterator[None]:
        """Keep a pipe open that the system closes when this process dies, however it dies."""
        if os.name == "posix":
            self._leash = os.pipe()
        try:
            yield
        finally:
            for descriptor in self._leash or ():
                os.close(descriptor)

    def _reap_strangers(self) -> None:
        """As process 1, let those go that were left behind by processes which have ended."""
        if not _is_process_1():
            return
        ours = {place.process.pid for place in self._places if place.process}
        with suppress(ChildProcessError):
            # Only looked at: the status of one of ours is for the thread that waits for it.
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in ours:
                    return  # the mail of its end brings us here again
                os.waitpid(found.si_pid, os.WNOHANG)


def _is_process_1() -> bool:
    return os.getpid() == 1


def ending(code: int) -> str:
    """Say how a process ended.

    >>> ending(-11), ending(1)
    ('died of SIGSEGV', 'left with exit code 1')
    """
    if code >= 0:
        return f"left with exit code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"


def take_leash() -> bool:
    """Tell whether this process has a supervisor; if so, stop when that is gone."""
    leash = os.environ.pop(LEASH, None)
    if leash:
        descriptor = int(leash)
        os.set_inheritable(descriptor, False)
        threading.Thread(
            target=_stop_when_closed, args=(descriptor,), name="buquet-leash", daemon=True
        ).start()
    return leash is not None


def _stop_when_closed(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 1):
            pass
    logger.warning("The supervisor is gone: this process stops.")
    os.kill(os.getpid(), signal.SIGTERM)
