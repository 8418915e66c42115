"""How a command ends: its exit code, and one line on stderr if something went wrong."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from buquet.cli import show
from buquet.cli.show import OutputLost, clean, note
from buquet.errors import (
    BuquetError,
    ConfigurationError,
    Contention,
    InvalidOptions,
    InvalidPayload,
    InvalidTransition,
    StoreError,
    SubmitUnclear,
    TaskNotFound,
    TooManyLostThreads,
)

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
NO_STORE = 5
STUCK = 6
LEFT = 7
"""A burst has done all that was due, and tasks that it has put off are due later."""
RELOAD = 79
"""By this a process asks its supervisor to be started anew: its source has changed."""

BROKEN_PIPE = 141
"""What a shell shows of a program that died of SIGPIPE."""

# Which package the class is from depends on the version of typer; that it is the base does not.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)

_CODES: tuple[tuple[type[BuquetError], int], ...] = (
    (ConfigurationError, USAGE),
    (InvalidOptions, USAGE),
    (InvalidPayload, USAGE),
    (TaskNotFound, NOT_FOUND),
    (InvalidTransition, NOT_ALLOWED),
    (Contention, FAILED),
    (StoreError, NO_STORE),
    (SubmitUnclear, NO_STORE),
    (TooManyLostThreads, STUCK),
)


class Program(TyperGroup):
    """The whole of the commands, made to end in our way rather than in that of typer."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,  # noqa: ARG002 -- also where it is called by another name
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 -- it is always us who end
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code."""
        _let_any_terminal_take_any_character()
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            code = super().main(
                args,
                "buquet",
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except Exception as error:  # noqa: BLE001 -- the outermost place: from here on there is only the user
            code = _explain(error, debug=debug)
        sys.exit(code if isinstance(code, int) else DONE)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the arguments; this is where --help is shown."""
        with _quiet_end(), show.writing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _quiet_end():
            result = super().invoke(ctx)
            show.flush()
            return result


class Command(TyperCommand):
    """A command whose help shows arguments as they are typed, without braces and Python types."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for each in self._arguments():
            vars(each)["display_type_rich"] = lambda ctx: None  # noqa: ARG005 -- as typer calls it

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- as typer calls it
        """Return the parts of the usage line."""
        return ["[OPTIONS]", *(str(each.metavar) for each in self._arguments())]

    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]


@contextmanager
def _quiet_end() -> Iterator[None]:
    """End quietly if nobody reads the output any more."""
    try:
        yield
    except BrokenPipeError:
        show.discard_output()
        raise typer.Exit(BROKEN_PIPE) from None


def code_of(error: BuquetError) -> int:
    """Return the exit code that stands for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def _explain(error: Exception, *, debug: bool) -> int:
    """Tell of an error in a line; return the exit code."""
    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            note(clean(line))
    match error:
        case BuquetError():
            note(f"buquet: {one_line(str(error))}")
            return code_of(error)
        case UsageError():
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "buquet"
            text = one_line(error.format_message())
            stop = "" if text.endswith((".", "?")) else "."
            note(f"buquet: {text}{stop} See '{path} --help'.")
            return USAGE
        case OutputLost():
            show.discard_output()
            note(f"buquet: stdout can't be written: {error}.")
            return FAILED
        case typer.Abort():
            note("buquet: Aborted.")
            return FAILED
        case _:
            kind = type(error).__name__
            more = "" if debug else " Run it with --debug to see where."
            note(f"buquet: {kind}: {one_line(str(error))}.{more}")
            return FAILED


def one_line(text: str) -> str:
    """Put a text on one line that can't move a cursor."""
    return clean(" ".join(text.split()))


def _let_any_terminal_take_any_character() -> None:
    """Show what an encoding does not have as an escape, rather than die of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
