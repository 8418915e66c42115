"""Several worker processes, kept going: started anew when one dies, stopped together.

They are spawned, never forked: each makes its own connections and imports the module anew. What
happens to them is put into one mailbox by the thread that hears signals and by a thread for each
process; the main thread takes it out and acts.

Each process ends on time by itself. The supervisor has a limit of its own, a little later, and
kills what has not ended by then. An exit code counts only if the process has said that it is meant:
code of the user, or a crash, may end it with any.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from attrs import define, field, frozen

from buquet.cli import lifeline
from buquet.cli.ending import AT_ONCE_SECONDS, EXIT_SECONDS, TIDY_SECONDS
from buquet.cli.lifeline import Lifeline
from buquet.cli.program import DONE, FAILED, LEFT, NO_STORE, RELOAD, USAGE
from buquet.cli.stopping import AT_ONCE, HINT, IN_ORDER, StopRequests, hearing
from buquet.clock import Clock, SystemClock
from buquet.worker import health

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
"""Seconds from the death of a process to the start of its successor: at first, and at the most."""

LONG_LIFE = 60.0
"""A process that has lived for so many seconds starts the delays anew when it dies."""

MARGIN = 2.0
"""Seconds that a process has beyond its own deadline before it is killed."""

LOOK_EVERY = 1.0
"""Seconds between two looks at what the processes have said, and at the health files."""

INTERRUPTED = 130
"""The exit code of a program that was interrupted before it could do anything about it."""


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
class Slot:
    """A slot for a process: at most one at a time fills it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    line: Lifeline | None = None
    grace: float = 0.0
    """For how long its process lets running tasks go on, as it has said, in seconds."""
    kill_at: float = math.inf
    """When its process is killed if it has not ended."""
    meant: int | None = None
    """The exit code that its process has said it will end with."""
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
    _slots: list[Slot] = field(init=False)
    # Its put() may be called by a signal handler in the midst of its get().
    _mail: SimpleQueue[Callable[[], None]] = field(factory=SimpleQueue, init=False)
    _stops: int = field(default=0, init=False)
    _code: int = field(default=DONE, init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = [Slot(number) for number in range(1, self.plan.processes + 1)]

    def run(self) -> int:
        """Run the processes until they have done their part or are told to stop.

        Returns:
            The exit code: 0 if the last of each left in order.
        """
        requests = StopRequests(lambda count: self._mail.put(partial(self._on_stop, count)))
        with hearing(requests), self._reaping():
            while not all(slot.is_over for slot in self._slots):
                self._start_those_due()
                self._act_on_mail()
                for slot in self._slots:
                    self._hear(slot)
                    self._kill_if_late(slot)
                self._reap_strangers()
                self.plan.touch_health_file()
        logger.info("All processes have left.")
        return self._code

    # --- what is to be done

    def _start_those_due(self) -> None:
        for slot in self._slots:
            if slot.start_at is not None and slot.start_at <= self.clock.monotonic():
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.start_at, slot.born_at = None, self.clock.monotonic()
        slot.kill_at, slot.meant = math.inf, None
        try:
            slot.process, slot.line = self._spawn(self.plan.command(slot.number))
        except OSError as error:  # no memory, or no more processes: that may pass
            delay = slot.next_delay(self.clock.monotonic())
            slot.start_at = self.clock.monotonic() + delay
            logger.warning("Process %d can't be started now: %s", slot.number, error)
            return
        self.counters["started"] += 1
        logger.info("Process %d has pid %d.", slot.number, slot.process.pid)
        threading.Thread(
            target=self._report_end,
            args=(slot, slot.process),
            name=f"buquet-process-{slot.number}",
            daemon=True,
        ).start()

    def _spawn(self, arguments: Sequence[str]) -> tuple[subprocess.Popen[bytes], Lifeline]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 -- this very program, with the options that it was given
                # -P: a module of the user's that is named like one of Python's is not imported.
                [sys.executable, "-P", "-m", "buquet", *arguments],
                stdin=subprocess.DEVNULL,
                env=os.environ | {lifeline.VARIABLE: str(theirs.fileno())},
                pass_fds=(theirs.fileno(),),
                # A group of its own: Ctrl-C is for the supervisor, which passes it on once.
                process_group=0,
            )
        return process, Lifeline(ours)

    def _report_end(self, slot: Slot, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._mail.put(partial(self._on_end, slot, code))

    def _act_on_mail(self) -> None:
        """Wait for mail, or until it is time for something; act on all there is."""
        with suppress(Empty):
            self._mail.get(timeout=self._time_left())()
            while True:
                self._mail.get_nowait()()

    def _time_left(self) -> float:
        moments = [slot.start_at for slot in self._slots if slot.start_at is not None]
        moments += [slot.kill_at for slot in self._slots]
        now = self.clock.monotonic()
        return min([LOOK_EVERY, *(max(moment - now, 0.0) for moment in moments)])

    def _kill_if_late(self, slot: Slot) -> None:
        if slot.process is not None and slot.kill_at <= self.clock.monotonic():
            slot.kill_at = math.inf
            logger.warning("Process %d does not end, and is killed.", slot.number)
            slot.process.kill()

    def _limit(self, slot: Slot, seconds: float) -> None:
        """Kill a process that has not ended within so many seconds, and a margin."""
        slot.kill_at = min(slot.kill_at, self.clock.monotonic() + seconds + MARGIN)

    # --- what has happened

    def _on_stop(self, count: int) -> None:
        """Stop all processes: in order, then at once, then by force."""
        self._stops = max(self._stops, count)
        if count == IN_ORDER:
            logger.info("Stopping: the processes finish their tasks.%s", HINT)
        for slot in self._slots:
            slot.start_at = None
            if slot.process is None or slot.line is None:
                continue
            if count == IN_ORDER:
                self._limit(slot, slot.grace + TIDY_SECONDS)
                slot.line.say(lifeline.STOP)
            elif count == AT_ONCE:
                self._limit(slot, AT_ONCE_SECONDS)
                slot.line.say(lifeline.NOW)
            else:
                slot.kill_at = self.clock.monotonic()

    def _hear(self, slot: Slot) -> None:
        for word, *more in slot.line.heard() if slot.line else ():
            if word == lifeline.GRACE:
                slot.grace = float(more[0])
                if self._stops:  # it was told to stop before it could say this
                    slot.kill_at = math.inf
                    self._limit(slot, slot.grace + TIDY_SECONDS)
            elif word == lifeline.ENDING:
                self._limit(slot, slot.grace + TIDY_SECONDS)
            elif word == lifeline.EXIT:
                slot.meant = int(more[0])
                self._limit(slot, EXIT_SECONDS)

    def _on_end(self, slot: Slot, code: int) -> None:
        self._hear(slot)
        if slot.line is not None:
            slot.line.close()
        slot.process = slot.line = None
        if self._stops:
            self._note_last(slot, code)
        elif slot.meant != code:
            self._start_later(slot, code)
        elif code == RELOAD or (code == DONE and self.plan.is_recycled):
            slot.start_at = self.clock.monotonic()
        elif code in (DONE, LEFT) and self.plan.is_burst:
            self._code = max(self._code, code)
            logger.info("Process %d has ended: nothing is due.", slot.number)
        elif self._is_hopeless(code):
            self._code = code
            self._on_stop(IN_ORDER)
        else:
            self._start_later(slot, code)

    def _note_last(self, slot: Slot, code: int) -> None:
        # Before its handlers are in slot a process dies of the signal, with nothing in its hands.
        if code not in (
            DONE,
            LEFT,
            RELOAD,
            INTERRUPTED,
            -signal.SIGTERM,
            -signal.SIGINT,
            -signal.SIGHUP,
        ):
            logger.warning("Process %d %s.", slot.number, ending(code))
            self.counters["died"] += 1
            self._code = self._code or FAILED

    def _is_hopeless(self, code: int) -> bool:
        """Return whether the same would only happen again; the process has said why."""
        if code == USAGE:
            return not self.plan.is_reloaded
        return code == NO_STORE and self.plan.is_burst

    def _start_later(self, slot: Slot, code: int) -> None:
        delay = slot.next_delay(self.clock.monotonic())
        slot.start_at = self.clock.monotonic() + delay
        self.counters["died"] += code != DONE
        level = logging.INFO if code == DONE else logging.WARNING
        told = "Process %d %s; another takes its place in %g s."
        logger.log(level, told, slot.number, ending(code), delay)

    # --- the duties of process 1

    @contextmanager
    def _reaping(self) -> Iterator[None]:
        """As process 1, be told of the ends of processes that others have left behind."""
        if not _is_process_1():
            yield
            return
        before = signal.signal(signal.SIGCHLD, lambda *_: self._mail.put(self._reap_strangers))
        try:
            yield
        finally:
            signal.signal(signal.SIGCHLD, before)

    def _reap_strangers(self) -> None:
        """As process 1, let those go that were left behind by processes which have ended."""
        if not _is_process_1():
            return
        ours = {slot.process.pid for slot in self._slots if slot.process}
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
