"""One worker process: it loads the worker, runs it, and ends on time."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import typer
from attrs import define, evolve, field

from buquet.cli import lifeline, show
from buquet.cli.ending import AT_ONCE_SECONDS, EXIT_SECONDS, TIDY_SECONDS, last_resort
from buquet.cli.lifeline import Lifeline
from buquet.cli.loading import load_worker
from buquet.cli.program import DONE, FAILED, LEFT, RELOAD, one_line
from buquet.cli.reload import SourceWatcher, culprits
from buquet.cli.session import Session, url_of
from buquet.cli.stopping import AT_ONCE, HINT, IN_ORDER, StopRequests, hearing
from buquet.cli.tally import Tally, counting
from buquet.core.durations import format_duration
from buquet.errors import BuquetError, ConfigurationError
from buquet.store.location import open_store
from buquet.worker import Worker

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0
"""How long exit handlers and leftover threads have when the source has changed."""


@define(eq=False, kw_only=True)
class WorkerProcess:
    """Runs a worker in this process, alone or as one of several under a supervisor."""

    session: Session
    target: str
    """Where the worker is, as `module:name`."""
    settings: dict[str, Any]
    """Those of the worker that the command line replaces."""
    set_up_logging: Callable[[], None]
    """Called when the module has been imported, which may set logging up itself."""
    supervisor: Lifeline | None = None
    _worker: Worker | None = field(default=None, init=False)
    _tally: Tally = field(factory=Tally, init=False)
    _is_running: bool = field(default=False, init=False)
    _must_leave: bool = field(default=False, init=False)

    def run(self, *, burst: bool, reload: bool) -> None:
        """Load the worker and run it until it has done its part or is told to stop."""
        requests = StopRequests(self._stop)
        with hearing(requests, on_main=self._leave_if_told):
            if self.supervisor is not None:
                requests.follow(self.supervisor)
            worker = self._worker = self._load(reload=reload)
            self._tell_supervisor(lifeline.GRACE, worker.settings.grace.total_seconds())
            left = 0
            with worker.queue, counting(worker.queue, worker.id) as self._tally:
                if reload:
                    self._run_until_changed(worker)
                else:
                    left = self._run(worker, burst=burst)
        self._sum_up(worker, left=left)
        if burst and left:
            raise typer.Exit(LEFT)

    # --- its phases

    def _load(self, *, reload: bool) -> Worker:
        """Import the worker; in development, wait until what prevents it is mended."""
        try:
            worker = load_worker(self.target)
        except BuquetError as error:
            if not reload:
                raise
            # Watch before the error is shown: nobody can be faster.
            with SourceWatcher(lambda: None, more=culprits(error)) as watcher:
                show.note(f"buquet: {one_line(str(error))}")
                watcher.wait()
            raise typer.Exit(RELOAD) from error
        self.set_up_logging()
        worker.settings = evolve(
            worker.settings, **self.settings, handles_signals=False, on_ending=self._on_ending
        )
        worker.on_startup(lambda: self._say_what_is_served(worker))
        return worker

    def _run(self, worker: Worker, *, burst: bool) -> int:
        """Return how many tasks are left for later."""
        self._is_running = True
        return worker.run(burst=burst).left

    def _run_until_changed(self, worker: Worker) -> None:
        def on_change() -> None:
            last_resort.within(self._grace + TIDY_SECONDS, RELOAD)
            worker.stop()

        with SourceWatcher(on_change) as watcher:
            try:
                self._run(worker, burst=False)
            except ConfigurationError as error:
                self._is_running = False
                show.note(f"buquet: {one_line(str(error))}")
                watcher.wait()
        if watcher.changed is not None:
            last_resort.within(RELOAD_SECONDS, RELOAD)
            raise typer.Exit(RELOAD)

    def _say_what_is_served(self, worker: Worker) -> None:
        store = url_of(worker.queue.store)
        logger.info(
            "Serving %s from %s with %s.",
            ", ".join(worker.settings.task_types or worker.task_types) or "nothing",
            store,
            show.count(worker.settings.threads, "thread"),
        )
        given = self.session.url
        if given is not None and url_of(open_store(given)) != store:
            logger.warning(
                "--url %s is not used: %s connects to %s by itself. "
                "Call connect() without arguments there to have --url decide.",
                given,
                self.target.partition(":")[0],
                store,
            )

    def _sum_up(self, worker: Worker, *, left: int) -> None:
        events = self._tally.events
        if self.session.as_json:
            show.say_json({"worker": worker.id, "left": left, **events})
        else:
            told = [f"{number:,} {event}" for event, number in sorted(events.items())]
            told += [f"{left:,} left for later"] if left else []
            logger.info("Tasks: %s.", ", ".join(told) or "none")

    # --- its end

    @property
    def _grace(self) -> float:
        grace = self._worker.settings.grace if self._worker else timedelta(0)
        return grace.total_seconds()

    def _on_ending(self) -> None:
        last_resort.within(self._grace + TIDY_SECONDS, FAILED)
        self._tell_supervisor(lifeline.ENDING)

    def _stop(self, count: int) -> None:
        """Act on a request to stop: deadline first, since what follows may hang."""
        if not self._is_running:
            last_resort.within(EXIT_SECONDS if count == IN_ORDER else 0, DONE)
            self._must_leave = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        elif count == IN_ORDER:
            last_resort.within(self._grace + TIDY_SECONDS, FAILED)
            self._stop_worker(at_once=False)
            logger.info("%s%s", self._what_runs(), "" if self.supervisor else HINT)
        elif count == AT_ONCE:
            last_resort.within(AT_ONCE_SECONDS, FAILED)
            self._stop_worker(at_once=True)
            logger.info("Stopping at once: running tasks are given back.")
        else:
            last_resort.within(0, FAILED)

    def _stop_worker(self, *, at_once: bool) -> None:
        if self._worker is not None:
            self._worker.stop(at_once=at_once)

    def _what_runs(self) -> str:
        number = self._tally.claimed
        if not number:
            return "Stopping: no task is running."
        grace = format_duration(timedelta(seconds=self._grace))
        have = "is running and has" if number == 1 else "are running and have"
        return f"Stopping: {show.count(number, 'task')} {have} {grace} to end."

    def _leave_if_told(self) -> None:
        """On the main thread, which nothing but a signal takes out of an import that hangs."""
        if self._must_leave:
            self._must_leave = False
            raise SystemExit(DONE)

    def _tell_supervisor(self, *words: object) -> None:
        if self.supervisor is not None:
            self.supervisor.say(*words)
