"""Parses what is typed: times, durations, inputs, ids. Defines the options that commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from buquet.core import codec, durations
from buquet.core.model import TaskStatus, moment
from buquet.errors import InvalidOptions


def parse_moment(text: str) -> datetime:
    """Parse a time. One without a zone is local time.

    Raises:
        BadParameter: if the text is not a time.
    """
    try:
        return moment(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a time. Write e.g. 2026-12-24T17:00:00Z, "
            "or 2026-12-24T17:00 for local time"
        ) from error


def parse_span(text: str) -> timedelta:
    """Parse a duration.

    Raises:
        BadParameter: if the text is not a duration.
    """
    try:
        return durations.parse_duration(text)
    except InvalidOptions as error:
        raise typer.BadParameter(str(error)) from error


def read_input(given: str) -> Any:
    """Read the input of a task: JSON, `-` for JSON on stdin, `@file` for JSON in a file.

    Raises:
        InvalidOptions: if it can't be read, or is not JSON.
    """
    text, where = _text_of_input(given)
    try:
        return codec.loads(text)
    except ValueError as error:
        raise InvalidOptions(
            f"{where} is not JSON: {str(error).rstrip('.')}. "
            """Write e.g. -i '{"user_id": 123}', or -i '"some text"'."""
        ) from error


def _text_of_input(given: str) -> tuple[str | bytes, str]:
    if given == "-":
        return _read_stdin("input"), "The text on stdin"
    if not given.startswith("@"):
        return given, "The input"
    path = given[1:]
    try:
        return Path(path).read_bytes(), f"The content of {path!r}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOptions(f"The input can't be read from {path!r}: {reason}.") from error


def read_ids(given: Iterable[str]) -> list[str]:
    """Return the ids that are given; `-` stands for those on stdin, with blanks between them.

    Raises:
        InvalidOptions: if stdin can't be read.
    """
    found: list[str] = []
    for each in given:
        found += _read_stdin("ids").decode("utf-8", "replace").split() if each == "-" else [each]
    return found


def _read_stdin(what: str) -> bytes:
    if sys.stdin is None:
        raise InvalidOptions(f"The {what} can't be read from stdin, which is closed. Open it.")
    return sys.stdin.buffer.read()


_IDS = "The ids of tasks. The first digits will do, at least 4; - reads ids from stdin."

TaskId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of a task. The first digits will do, at least 4.",
        show_default=False,
    ),
]
TaskIds = Annotated[list[str], typer.Argument(metavar="ID...", help=_IDS, show_default=False)]
AnyTaskIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help=_IDS, show_default=False)
]
Ttl = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="The deadline, counted from when the task is due: 90s, 5m, 1h30m, 7d.",
        show_default=False,
    ),
]
NewTtl = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="A new deadline, counted from now: 90s, 5m, 1h30m, 7d.",
        show_default=False,
    ),
]
ExpiresAt = Annotated[
    datetime | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="The deadline as a time: the task starts before it, or not at all.",
        show_default=False,
    ),
]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="How long to wait before the task may start.",
        show_default=False,
    ),
]
ScheduleAt = Annotated[
    datetime | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="The earliest time at which the task may start.",
        show_default=False,
    ),
]
NewType = Annotated[
    str,
    typer.Option("--type", "-t", metavar="TYPE", help="The task type: which handler runs it."),
]
Input = Annotated[
    str,
    typer.Option("--input", "-i", metavar="JSON", help="The input: JSON, - for stdin, or @file."),
]
Priority = Annotated[int, typer.Option(metavar="N", min=-100, max=100, help="Higher goes first.")]
MaxRetries = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=1_000_000, help="How often to retry a failed attempt."),
]
Timeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="How long one attempt may run. Not the deadline.",
        show_default=False,
    ),
]
Statuses = Annotated[
    list[TaskStatus] | None,
    typer.Option(
        "--status",
        "-s",
        metavar="STATUS",
        help=f"Only tasks with this status: {', '.join(TaskStatus)}. Repeat it for several.",
        case_sensitive=False,
        show_default=False,
    ),
]
