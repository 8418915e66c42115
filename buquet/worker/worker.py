"""The worker: threads that run tasks, and the loops that find them and keep their lease."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar

from attrs import evolve

from buquet.client.hooks import register
from buquet.client.queue import Queue
from buquet.errors import ConfigurationError
from buquet.ledger.ledger import host_name
from buquet.store.check import check_store
from buquet.worker.limits import Limit, parse_rate
from buquet.worker.registry import TIMEOUT_SECONDS, Registry
from buquet.worker.run import Run, RunReport, WorkerHooks, once_there
from buquet.worker.settings import Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Worker:
    """Runs the tasks of a queue on threads of this process.

    A task may run more than once: when a worker dies, or loses touch with the store for longer than
    its lease, another takes over (at least once).

    Args:
        queue: the queue.
        threads: how many handlers run at a time.
        lease: for how long its claims hold without a sign of life; renewed every third of it.
        grace: how long running tasks have to end when the worker stops. What still runs then is
            given back, and another worker may begin it at once.
        poll_min: the shortest pause between two polls.
        poll_max: the longest, when there has been nothing to do.
        sweep_interval: how often it sweeps, unless another has; None never.
        check: whether to try at the start that the store honours conditions.

    Raises:
        ConfigurationError: if a setting is out of range.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        threads: int = 8,
        lease: timedelta = timedelta(seconds=60),
        grace: timedelta = timedelta(seconds=30),
        poll_min: timedelta = timedelta(seconds=0.1),
        poll_max: timedelta = timedelta(seconds=5),
        sweep_interval: timedelta | None = timedelta(seconds=60),
        check: bool = True,
    ) -> None:
        self.queue = queue
        self.settings = Settings(
            id=self._new_id(),
            threads=threads,
            lease=lease,
            grace=grace,
            max_lost_threads=threads,
            poll_min=poll_min,
            poll_max=poll_max,
            sweep_interval=sweep_interval,
            check=check,
        )
        self._registry = Registry()
        self._hooks = WorkerHooks()
        self._stop = queue.store.clock.event()
        self._run: Run | None = None

    @property
    def id(self) -> str:
        """Its id: host, process and a random part."""
        return self.settings.id

    def task(
        self,
        task_type: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        concurrency: int | None = None,
        rate: str | None = None,
    ) -> Callable[[_Function], _Function]:
        """Register the decorated function as the handler of a task type.

        It is called with the input, or with the input and a `TaskContext` if it takes two. What it
        returns is the output, any JSON value. It may raise `RetryableError`, `PermanentError` or
        `RescheduleError`; any other exception means that the attempt is made again.

        Args:
            task_type: the type.
            timeout_seconds: how long an attempt may run before `TaskTimeout` is raised in it; what
                a task was submitted with wins.
            concurrency: how many tasks of the type this process runs at a time, at the most.
            rate: how many it begins in a while, e.g. `10/m`: so many may begin at once after a
                quiet time, and then one after another.

        Raises:
            InvalidOptions: if it is no task type, or the timeout is out of range.
            ConfigurationError: if the type has a handler already, the function takes other
                arguments, or a limit makes no sense.
        """
        if callable(task_type):
            name = getattr(task_type, "__qualname__", repr(task_type))
            raise ConfigurationError(
                f"@worker.task lacks the task type that {name} handles. "
                f'Write @worker.task("{getattr(task_type, "__name__", "a_type")}").'
            )
        limit = self._limit(concurrency, rate)

        def register(function: _Function) -> _Function:
            self._registry.add(task_type, function, timeout_seconds=timeout_seconds, limit=limit)
            return function

        return register

    def _limit(self, concurrency: int | None, rate: str | None) -> Limit | None:
        if concurrency is None and rate is None:
            return None
        if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
            raise ConfigurationError(f"concurrency must be at least 1, not {concurrency!r}.")
        parsed = None if rate is None else parse_rate(rate)
        return Limit(self.queue.store.clock, concurrency, parsed)

    def on_startup(self, hook: _Function) -> _Function:
        """Call a function before the worker begins. What it raises ends the run.

        Raises:
            ConfigurationError: for this and the other hooks, if it is no plain function.
        """
        return register(hook, self._hooks.startup)

    def on_shutdown(self, hook: _Function) -> _Function:
        """Call a function when the worker has ended."""
        return register(hook, self._hooks.shutdown)

    def on_success(self, hook: _Function) -> _Function:
        """Call a function with each task whose completion this worker has written."""
        return register(hook, self._hooks.success)

    def on_error(self, hook: _Function) -> _Function:
        """Call a function with the task and the exception of each attempt that failed."""
        return register(hook, self._hooks.error)

    def on_expired(self, hook: _Function) -> _Function:
        """Call a function with each task that expires by a write of this process."""
        self.queue.on_expired(hook)
        return hook

    @property
    def task_types(self) -> tuple[str, ...]:
        """The types that it has handlers for."""
        return tuple(sorted(self._registry.handlers))

    def stop(self, *, at_once: bool = False) -> None:
        """Claim no more; `run` returns when what is running has ended. Any thread may call it.

        Called before `run`, it has the next `run` return at once.

        Args:
            at_once: do not wait for running tasks, but give them back.
        """
        self._stop.set()
        if self._run is not None:
            self._run.wake()
            if at_once:
                self._run.hurry()

    def run(self, *, burst: bool = False) -> RunReport:
        """Run tasks until `stop` is called, or SIGTERM or SIGINT comes (on the main thread).

        A store that is unavailable at the start is waited for, half a minute or so.

        Args:
            burst: return when nothing is due and all that was begun has ended. It waits for tasks
                that a limit holds back, and not for those that are due later.

        Returns:
            How many tasks are left for later.

        Raises:
            ConfigurationError: if there are no handlers.
            StoreUnsuitable: if the store lacks a feature, by its name.
            StoreError: if the store can't be used at the start, or, with `burst`, at any time.
        """
        self._require_handlers()
        try:
            if once_there(self._try_store, self.queue.store.clock, self._stop):
                with self._signals():
                    return self._new_run(burst=burst).work(self._stop)
            return RunReport(left=0)
        finally:
            self._stop.clear()

    def drain(self) -> RunReport:
        """Run all that is due in the calling thread, and return; for tests and scripts.

        It waits neither for limits nor for what is due later, and interrupts no attempt.

        Returns:
            How many tasks are left for later.

        Raises:
            ConfigurationError: if there are no handlers.
            StoreError: if the store can't be reached.
        """
        self._require_handlers()
        self._try_store()
        return self._new_run(is_alone=True).drain()

    def _require_handlers(self) -> None:
        if not self._registry.handlers:
            raise ConfigurationError(
                "This worker has no handlers. Decorate functions with @worker.task('a_type')."
            )

    def _try_store(self) -> None:
        # The first request is to read: on a write, SeaweedFS makes the bucket of a mistyped name.
        self.queue.now()
        if self.settings.check:
            check_store(self.queue.store)
            self.settings = evolve(self.settings, check=False)

    def _new_id(self) -> str:
        self._pid = os.getpid()
        return f"{host_name()}-{self._pid}-{self.queue.ledger.digits(6)}"

    def _new_run(self, *, burst: bool = False, is_alone: bool = False) -> Run:
        if os.getpid() != self._pid:  # two of the same id would take each other's claims back
            self.settings = evolve(self.settings, id=self._new_id())
        self._run = Run(
            self.queue,
            self.settings,
            self._registry,
            self._hooks,
            burst=burst,
            is_alone=is_alone,
        )
        return self._run

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, at once on a second one. Only the main thread gets them."""
        is_main = threading.current_thread() is threading.main_thread()
        if not (is_main and self.settings.handles_signals):
            yield
            return

        received = count()

        def on_signal(number: int, frame: object) -> None:  # noqa: ARG001 -- as signal wants it
            is_again = next(received) > 0
            if is_again and self._run is not None and self._run.is_calling_hooks:
                raise KeyboardInterrupt  # the hook hangs in this very thread
            # A handler runs in the midst of anything, maybe with a lock held that stop() needs.
            stop = partial(self.stop, at_once=is_again)
            threading.Thread(target=stop, name="buquet-stop", daemon=True).start()

        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
