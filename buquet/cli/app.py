"""The program `buquet`: its commands put together."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from buquet.cli import lifeline, show, stats, sweep, tasks
from buquet.cli.demo import demo
from buquet.cli.ending import EXIT_SECONDS, last_resort
from buquet.cli.program import FAILED, Command, Program
from buquet.cli.session import Debug, Json, Session, Url, with_session
from buquet.cli.worker import worker
from buquet.cli.workers import workers

app = typer.Typer(
    cls=Program,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "submit": tasks.submit,
    "status": tasks.status,
    "list": tasks.list_tasks,
    "history": tasks.history,
    "cancel": tasks.cancel,
    "replay": tasks.replay,
    "resubmit": tasks.resubmit,
    "archive": tasks.archive,
    "worker": worker,
    "sweep": sweep.sweep,
    "sweeper": sweep.sweeper,
    "stats": stats.stats,
    "workers": workers,
}

for name, function in COMMANDS.items():
    app.command(name, cls=Command)(with_session(function))


def _show_version(asked: bool) -> None:
    if asked:
        show.say(f"buquet {version('buquet')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    url: Url = None,
    as_json: Json = False,
    debug: Debug = False,
    show_version: Annotated[  # noqa: ARG001 -- its callback does it
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """A task queue on an S3 bucket or a SQLite file, with deadlines: start by then, or never."""
    context.obj = Session(url=url, as_json=as_json, debug=debug)
    if context.invoked_subcommand is None:
        show.say_fields(context.get_help())


def main() -> None:
    """Run the command that the arguments ask for; end on time, whatever it leaves behind."""
    last_resort.start()
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else FAILED
        last_resort.within(EXIT_SECONDS, code)
        lifeline.say_exit(code)
        raise
