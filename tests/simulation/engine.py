"""Simulated time, and processes whose threads run one at a time, in an order that a plan decides.

Each thread of a simulated process is a real thread, but only one runs at any moment: it goes on
until it waits (for an answer of the store, an event, a time), and then the engine takes the next
thing from its queue. So the real code runs, and the same plan gives the same run.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import define, field

from buquet.testing import Crash

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
STUCK_AFTER = 20.0
"""Real seconds after which a thread that neither waits nor ends is reported."""

_here = threading.local()


class Stuck(Exception):
    """A thread neither waits nor ends."""


def _signal() -> threading.Lock:
    """Make a lock that one thread waits for and another lets go: quicker than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def current() -> Fiber:
    """Return the simulated thread that runs."""
    fiber: Fiber = _here.fiber
    return fiber


class Engine:
    """The queue of what happens when."""

    def __init__(self) -> None:
        self.time = 0.0
        """Seconds since the start, by the store's clock."""
        self.failures: list[BaseException] = []
        """What ended a thread that nothing should have ended."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._fibers: set[Fiber] = set()
        self._control = _signal()

    def now(self) -> datetime:
        """Return the store's time."""
        return START + timedelta(seconds=self.time)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Have something happen at a time, or as soon as possible."""
        heapq.heappush(self._queue, (max(time, self.time), next(self._numbers), act))

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        while self._queue and self._queue[0][0] <= until and not self.failures:
            self.time, _, act = heapq.heappop(self._queue)
            act()
        self.time = max(self.time, until)

    def end(self) -> None:
        """Have every thread end."""
        for fiber in list(self._fibers):
            fiber.process.is_dead = True
            self.hand_over(fiber)

    # --- used by threads

    def start(self, process: Process, name: str, target: Callable[[], None]) -> Fiber:
        """Make a new thread of a process; it begins when the running one waits."""
        fiber = Fiber(self, process, name, target)
        self._fibers.add(fiber)
        self.at(self.time, fiber.resume)
        return fiber

    def hand_over(self, fiber: Fiber) -> None:
        """Let a thread run until it waits or ends."""
        if fiber not in self._fibers:
            return
        fiber.go()
        if not self._control.acquire(timeout=STUCK_AFTER):
            fiber.break_off()
            self._control.acquire(blocking=False)  # it has said that it has ended
            raise Stuck(f"G2: {fiber.name} goes round without end, or waits for a real lock")

    def take_back(self) -> None:
        """Say that the running thread waits."""
        self._control.release()

    def forget(self, fiber: Fiber) -> None:
        """Say that a thread has ended."""
        self._fibers.discard(fiber)


@define(eq=False)
class Process:
    """What dies, and is paused, as one."""

    engine: Engine
    name: str
    offset: float = 0.0
    """Seconds that its wall clock is ahead of the store's."""
    drift: float = 0.0
    """Seconds that its clocks gain in a second."""
    is_dead: bool = False
    paused_until: float = 0.0

    def die(self) -> None:
        """Die: each of its threads ends where it waits."""
        self.is_dead = True

    def pause(self, seconds: float) -> None:
        """Stop running for a while, as with SIGSTOP."""
        self.paused_until = max(self.paused_until, self.engine.time + seconds)

    def local(self, time: float) -> float:
        """Return what its monotonic clock shows at a time."""
        return time * (1 + self.drift)


class Fiber:
    """A thread of a simulated process."""

    def __init__(
        self, engine: Engine, process: Process, name: str, target: Callable[[], None]
    ) -> None:
        self.engine = engine
        self.process = process
        self.name = f"{process.name}/{name}"
        self.is_over = False
        self._over = SimCondition()
        self._target = target
        self._may_run = _signal()
        self._wait_number = 0
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Let it go on, once its process is not paused."""
        process = self.process
        if process.paused_until > self.engine.time and not process.is_dead:
            self.engine.at(process.paused_until, self.resume)
        else:
            self.engine.hand_over(self)

    def go(self) -> None:
        """Begin, or go on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._may_run.release()

    def break_off(self) -> None:
        """End it, though it does not wait."""
        assert self._thread is not None
        self.process.is_dead = True
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Crash))
        self._thread.join(STUCK_AFTER)

    def wait(self, until: float | None) -> Callable[[], None]:
        """Return what wakes it from the wait that comes next; a time does so by itself."""
        self._wait_number += 1
        number = self._wait_number

        def wake() -> None:
            if self._wait_number == number:
                self._wait_number += 1  # once
                self.resume()

        if until is not None:
            self.engine.at(until, wake)
        return wake

    def rest(self) -> None:
        """Let others run until it is woken.

        Raises:
            Crash: if its process has died.
        """
        if not self.process.is_dead:
            self.engine.take_back()
            self._may_run.acquire()
        if self.process.is_dead:
            raise Crash

    def join(self, timeout: float | None = None) -> None:
        """Wait in another thread until it has ended."""
        while not self.is_over:
            self._over.wait(timeout)

    def _live(self) -> None:
        _here.fiber = self
        try:
            if not self.process.is_dead:
                self._target()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 -- the engine reports it
            self.engine.failures.append(error)
        self.is_over = True
        self._over.notify_all()
        self.engine.forget(self)
        self.engine.take_back()


def sleep_until(time: float) -> None:
    """Let the running thread wait until a time (store's seconds)."""
    fiber = current()
    fiber.wait(time)
    fiber.rest()


class SimCondition:
    """A `threading.Condition` of a process whose threads run one at a time: its lock is free."""

    def __init__(self) -> None:
        self._wakes: list[Callable[[], None]] = []

    def __enter__(self) -> SimCondition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        fiber = current()
        wake = fiber.wait(None if timeout is None else fiber.engine.time + timeout)
        self._wakes.append(wake)
        fiber.rest()
        if wake in self._wakes:  # its time was up
            self._wakes.remove(wake)

    def notify_all(self) -> None:
        self.notify(len(self._wakes))

    def notify(self, n: int = 1) -> None:
        wakes, self._wakes = self._wakes[:n], self._wakes[n:]
        engine = getattr(_here, "fiber", None) and current().engine
        for wake in wakes:
            if engine is not None:
                engine.at(engine.time, wake)


class SimEvent:
    """An event of the simulated world."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_set = False
        self._changed = SimCondition()

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        engine = self._process.engine
        span = None if timeout is None else timeout / (1 + self._process.drift)
        end = None if span is None else engine.time + span
        while not self._is_set and (end is None or engine.time < end):
            self._changed.wait(None if end is None else end - engine.time)
        return self._is_set


class SimClock:
    """The local clock of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> datetime:
        seconds = self._process.local(self._process.engine.time) + self._process.offset
        return START + timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self._process.local(self._process.engine.time)

    def event(self) -> SimEvent:
        return SimEvent(self._process)

    def sleep(self, seconds: float) -> None:
        sleep_until(self._process.engine.time + seconds / (1 + self._process.drift))


class SimThread:
    """What `threading.Thread` is to the code under test."""

    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target = target
        self._name = name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        parent = current()
        fiber = parent.engine.start(parent.process, self._name, self._run)
        self._fiber = fiber

    def join(self, timeout: float | None = None) -> None:
        assert self._fiber is not None
        self._fiber.join(timeout)

    def _run(self) -> None:
        _here.thread = self
        self._target()


@define
class SimThreading:
    """What the module `threading` is to the code under test."""

    Thread: Any = SimThread
    Condition: Any = SimCondition
    Lock: Any = field(default=threading.Lock)

    def current_thread(self) -> Any:
        return _here.thread


class SimFuture:
    """What `concurrent.futures.Future` is to the code under test."""

    def __init__(self) -> None:
        self._changed = SimCondition()
        self._is_done = False
        self._result: Any = None
        self._error: Exception | None = None

    def run(self, act: Callable[[], Any]) -> None:
        try:
            self._result = act()
        except Exception as error:  # noqa: BLE001 -- for who asks
            self._error = error
        self._is_done = True
        self._changed.notify_all()

    def cancel(self) -> bool:
        return False  # it has a thread at once, so it has begun

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return False

    def exception(self) -> Exception | None:
        while not self._is_done:
            self._changed.wait()
        return self._error

    def result(self) -> Any:
        error = self.exception()
        if error is not None:
            raise error
        return self._result


class SimExecutor:
    """What `ThreadPoolExecutor` is to the code under test; it has a thread for each thing to do."""

    def __init__(self, max_workers: int, thread_name_prefix: str) -> None:
        self._name = thread_name_prefix
        self._futures: list[SimFuture] = []

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, act: Callable[..., Any], *args: Any) -> SimFuture:
        future = SimFuture()
        self._futures.append(future)
        parent = current()
        parent.engine.start(parent.process, self._name, lambda: future.run(lambda: act(*args)))
        return future

    def map(self, act: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for future in [self.submit(act, item) for item in items]:
            yield future.result()

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        for future in self._futures:
            future.exception()
