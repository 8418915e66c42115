"""The command that runs tasks, in this process or in several that it sees to."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import asdict, evolve, frozen

from buquet.cli import lifeline, show
from buquet.cli.loading import EXAMPLE
from buquet.cli.logs import LogFormat, log_to_stderr
from buquet.cli.options import parse_span
from buquet.cli.program import DONE
from buquet.cli.session import Session
from buquet.cli.supervisor import Plan, Supervisor
from buquet.cli.worker_process import WorkerProcess
from buquet.worker.health import file_of

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
    """Have the ends of child processes reported: some parents pass on that they ignore them."""
    number = getattr(signal, "SIGCHLD", None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for each in text.split(",") if (name := each.strip()))
    if not names:
        raise typer.BadParameter("--types names no task type")
    return names
