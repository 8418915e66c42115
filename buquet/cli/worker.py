"""The command `worker`, which runs tasks in this process or in several that it supervises."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict, evolve, frozen

from buquet.cli import lifeline, show
from buquet.cli.loading import EXAMPLE, require_current_folder
from buquet.cli.logs import LogFormat, log_to_stderr
from buquet.cli.options import parse_span
from buquet.cli.program import DONE
from buquet.cli.session import Session
from buquet.cli.supervisor import Plan, Supervisor
from buquet.cli.worker_process import WorkerProcess
from buquet.core.durations import format_duration
from buquet.worker import Worker
from buquet.worker.health import file_of

MOST_PROCESSES = 256

RELOAD_GRACE = timedelta(seconds=1)
"""The grace period when the source has changed: its author is waiting."""


def _default(name: str) -> str:
    """Say which value an option has unless the `Worker` was made with another."""
    value = signature(Worker).parameters[name].default
    shown = format_duration(value) if isinstance(value, timedelta) else value
    return f"  [default: the Worker's, else {shown}]"


def _span(what: str) -> Any:
    return typer.Option(parser=parse_span, metavar="DURATION", help=what, show_default=False)


@frozen(kw_only=True)
class WorkerOptions:
    """The options of the command. One that is None leaves the setting to the `Worker`."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTR",
            help=f"The module and the variable that holds the Worker, e.g. {EXAMPLE}.",
            show_default=False,
        ),
    ]
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=1000,
            help=f"How many tasks run at a time.{_default('threads')}",
            show_default=False,
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_PROCESSES,
            help="Run N processes, each with that many threads, and restart those that die.",
        ),
    ] = None
    grace: Annotated[
        timedelta | None,
        _span(f"How long running tasks may take when the worker stops.{_default('grace')}"),
    ] = None
    lease: Annotated[
        timedelta | None,
        _span(f"How long the worker may be silent before others take over.{_default('lease')}"),
    ] = None
    poll_min: Annotated[
        timedelta | None, _span(f"The shortest pause between two polls.{_default('poll_min')}")
    ] = None
    poll_max: Annotated[
        timedelta | None, _span(f"The longest, while nothing is due.{_default('poll_max')}")
    ] = None
    types: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE,...", help="Serve only these task types.  [default: all with a handler]"
        ),
    ] = None
    burst: Annotated[bool, typer.Option("--burst", help="Exit when nothing is due any more.")] = (
        False
    )
    max_tasks: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Exit after about N tasks.  [default: never]"),
    ] = None
    no_check: Annotated[
        bool,
        typer.Option(
            "--no-check", help="Do not check at the start that the store has compare-and-set."
        ),
    ] = False
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Restart when the source changes. For development."),
    ] = False
    health_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Touch this file after each successful poll.", show_default=False
        ),
    ] = None
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            metavar="text|json",
            help="How to log.  [default: text, unless the module sets up logging]",
            show_default=False,
        ),
    ] = None

    @property
    def is_supervised(self) -> bool:
        """Whether the tasks run in processes that this one supervises."""
        return self.processes is not None or self.reload

    def settings(self) -> dict[str, Any]:
        """Return the settings of the `Worker` to replace."""
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
        """Return the command-line arguments for the n-th of several processes."""
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
    """Run tasks until SIGTERM or Ctrl-C.

    --url sets BUQUET_URL for the module, where connect() without arguments reads it.
    """
    session.export_url()
    require_current_folder()
    if options.health_file is not None:
        # A handler may change the current folder.
        path = options.health_file.absolute()
        options = evolve(options, health_file=path)
        if not path.parent.is_dir():
            raise typer.BadParameter(f"there is no folder {str(path.parent)!r}")
    _heed_children()
    supervisor = lifeline.take()
    log = partial(log_to_stderr, debug=session.debug, log_format=options.log_format)
    if options.is_supervised and supervisor is None:
        log(with_pid=True)
        _supervise(session, options)
        return
    WorkerProcess(
        session=session,
        target=options.target,
        settings=options.settings(),
        set_up_logging=partial(log, with_pid=supervisor is not None),
        supervisor=supervisor,
    ).run(burst=options.burst, reload=options.reload)


def _supervise(session: Session, options: WorkerOptions) -> None:
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


def _heed_children() -> None:
    """Stop ignoring SIGCHLD, as some parents do: that is inherited, and hides exit codes."""
    number = getattr(signal, "SIGCHLD", None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for each in text.split(",") if (name := each.strip()))
    if not names:
        raise typer.BadParameter("--types names no task type")
    return names
