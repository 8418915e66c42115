"""The command that runs tasks, in this process or in several that it sees to."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict, evolve, frozen

from buquet.cli import show
from buquet.cli.loading import EXAMPLE, load_worker
from buquet.cli.logs import LogFormat, log_to_stderr
from buquet.cli.options import parse_span
from buquet.cli.processes import RELOAD, Plan, Supervisor, take_leash
from buquet.cli.program import DONE, one_line
from buquet.cli.reload import Watch, culprits
from buquet.cli.running import counting
from buquet.cli.session import Session
from buquet.errors import BuquetError, ConfigurationError
from buquet.worker import Worker
from buquet.worker.health import file_of

logger = logging.getLogger(__name__)

MOST_PROCESSES = 256

RELOAD_GRACE = timedelta(seconds=1)
"""How long running tasks have when the source has changed: its author waits for them."""


def _span(what: str) -> Any:
    return typer.Option(parser=parse_span, metavar="DURATION", help=what, show_default=False)


@frozen(kw_only=True)
class WorkerOptions:
    """The options of the command; those that are None are as the `Worker` says."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTR", help=f"Where the Worker is, e.g. {EXAMPLE}.", show_default=False
        ),
    ]
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="How many tasks run at a time; else what the Worker says."
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_PROCESSES,
            help="Run N processes with so many threads each; start anew what dies.",
        ),
    ] = None
    grace: Annotated[
        timedelta | None, _span("How long running tasks have to end when it is told to stop.")
    ] = None
    lease: Annotated[
        timedelta | None, _span("How long it may be silent before others take its tasks.")
    ] = None
    poll_min: Annotated[timedelta | None, _span("The shortest pause between two polls.")] = None
    poll_max: Annotated[timedelta | None, _span("The longest, when nothing is due.")] = None
    types: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="Serve only these of the types it has handlers for."),
    ] = None
    burst: Annotated[bool, typer.Option("--burst", help="Leave when nothing is due any more.")] = (
        False
    )
    max_tasks: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Leave after about N tasks have been begun."),
    ] = None
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not try the store at the start.")
    ] = False
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when the source changes; for development.")
    ] = False
    health_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Touch this after each good poll.", show_default=False),
    ] = None
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How to log.", show_default=False)
    ] = None

    @property
    def is_supervised(self) -> bool:
        """Whether the tasks are to be run by processes that this one sees to."""
        return self.processes is not None or self.reload

    def settings(self) -> dict[str, Any]:
        """Return the settings of the `Worker` that are to be replaced."""
        reload_grace = RELOAD_GRACE if self.reload else None
        every = {
            "threads": self.threads,
            "max_lost_threads": self.threads,
            "grace": reload_grace if self.grace is None else self.grace,
            "lease": self.lease,
            "poll_min": self.poll_min,
            "poll_max": self.poll_max,
            "task_types": None if self.types is None else _names(self.types),
            "max_tasks": self.max_tasks,
            "health_file": self.health_file,
            "check": False if self.no_check else None,
        }
        return {name: value for name, value in every.items() if value is not None}

    def arguments(self, number: int) -> list[str]:
        """Return the arguments for the n-th of several processes."""
        path = self.health_file
        mine = evolve(self, processes=None, health_file=file_of(path, number) if path else None)
        found = ["worker", self.target]
        for name, value in asdict(mine, filter=lambda each, _: each.name != "target").items():
            flag = f"--{name.replace('_', '-')}"
            match value:
                case None | False:
                    pass
                case True:
                    found.append(flag)
                case timedelta():
                    found.append(f"{flag}={value.total_seconds():f}")
                case _:
                    found.append(f"{flag}={value}")
        return found


def worker(session: Session, *, options: WorkerOptions) -> None:
    """Run tasks, until SIGTERM or Ctrl-C.

    --url sets BUQUET_URL for the module, where connect() without arguments reads it.
    """
    session.export_url()
    if options.health_file is not None and not options.health_file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(options.health_file.parent)!r}")
    is_child = take_leash()
    if options.is_supervised and not is_child:
        _supervise(session, options)
        return
    with _leaving_when_told():
        found = _load(options)
        log_to_stderr(debug=session.debug, log_format=options.log_format, with_pid=is_child)
        found.settings = evolve(found.settings, **options.settings())
        found.on_startup(partial(_say_what_is_handled, found))
        if options.reload:
            _run_until_changed(found)
        else:
            _run(session, options, found)


def _supervise(session: Session, options: WorkerOptions) -> None:
    log_to_stderr(debug=session.debug, log_format=options.log_format, with_pid=True)
    common = ["--debug"] if session.debug else []
    plan = Plan(
        command=lambda number: [*options.arguments(number), *common],
        processes=options.processes or 1,
        is_burst=options.burst,
        is_recycled=options.max_tasks is not None,
        is_reloaded=options.reload,
        health_file=options.health_file,
    )
    supervisor = Supervisor(plan)
    code = supervisor.run()
    if session.as_json:
        show.say_json({"processes": plan.processes, **supervisor.counters})
    if code != DONE:
        raise typer.Exit(code)


def _load(options: WorkerOptions) -> Worker:
    """Import the worker; in development, wait for the mistake that prevents it to be mended."""
    try:
        return load_worker(options.target)
    except BuquetError as error:
        if not options.reload:
            raise
        with Watch(lambda: None, more=culprits(error)) as watch:  # before anybody can mend it
            show.note(f"buquet: {one_line(str(error))}")
            watch.wait()
        raise typer.Exit(RELOAD) from error


def _run(session: Session, options: WorkerOptions, found: Worker) -> None:
    with found.queue, counting(found.queue, found.id) as counters:
        found.run(burst=options.burst)
    if session.as_json:
        show.say_json({"worker": found.id, **counters})
    else:
        told = ", ".join(f"{number:,} {event}" for event, number in sorted(counters.items()))
        logger.info("Tasks: %s.", told or "none")


def _run_until_changed(found: Worker) -> None:
    with found.queue, Watch(found.stop) as watch:
        try:
            found.run()
        except ConfigurationError as error:
            show.note(f"buquet: {one_line(str(error))}")
            watch.wait()
    if watch.changed is not None:
        raise typer.Exit(RELOAD)


def _say_what_is_handled(found: Worker) -> None:
    logger.info(
        "Handling %s with %s.",
        ", ".join(found.settings.task_types or found.task_types) or "nothing",
        show.count(found.settings.threads, "thread"),
    )


@contextmanager
def _leaving_when_told() -> Iterator[None]:
    """Leave at once on a signal before and after the worker has its own way with it.

    Process 1 would otherwise not be ended by it at all, and others would not leave in order.
    """

    def leave(number: int, frame: Any) -> None:  # noqa: ARG001 -- as signal wants it
        sys.exit(DONE)

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for each in text.split(",") if (name := each.strip()))
    if not names:
        raise typer.BadParameter("--types names no task type")
    return names
