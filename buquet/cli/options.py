"""Reading what is typed: times, durations, inputs; and the options that several commands have."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from buquet.core import codec, durations
from buquet.core.model import TaskStatus, as_utc
from buquet.errors import InvalidOptions


def parse_moment(text: str) -> datetime:
    """Read a time; one without a zone is local time.

    Raises:
        BadParameter: if it is none.
    """
    try:
        return as_utc(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a time. Write e.g. 2026-12-24T17:00:00Z, "
            "or 2026-12-24T17:00 for local time"
        ) from error


def parse_span(text: str) -> timedelta:
    """Read a duration.

    Raises:
        BadParameter: if it is none.
    """
    try:
        return durations.parse_duration(text)
    except InvalidOptions as error:
        raise typer.BadParameter(str(error)) from error


def read_input(given: str) -> Any:
    """Read the input of a task: JSON, `-` for that on stdin, `@file` for that in a file.

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
        if sys.stdin is None:
            raise InvalidOptions("The input can't be read from stdin, which is closed. Open it.")
        return sys.stdin.buffer.read(), "What came on stdin"
    if not given.startswith("@"):
        return given, "The input"
    path = given[1:]
    try:
        return Path(path).read_bytes(), f"What is in {path!r}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOptions(f"The input can't be read from {path!r}: {reason}.") from error


TaskId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The task's id, or the first digits of it, at least 4.",
        show_default=False,
    ),
]
TaskIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help="Ids of tasks, or the first digits of them, at least 4.",
        show_default=False,
    ),
]
AnyTaskIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="Ids of tasks, or the first digits of them, at least 4.",
        show_default=False,
    ),
]
Ttl = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="The deadline, from when the task is due: 90s, 5m, 1h30m, 7d.",
        show_default=False,
    ),
]
ExpiresAt = Annotated[
    datetime | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="The deadline: start before this or not at all.",
        show_default=False,
    ),
]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="Not to be started before so much time has passed.",
        show_default=False,
    ),
]
ScheduleAt = Annotated[
    datetime | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="Not to be started before this.",
        show_default=False,
    ),
]
NewType = Annotated[
    str, typer.Option("--type", "-t", metavar="TYPE", help="Which handler is to run it.")
]
Input = Annotated[
    str,
    typer.Option("--input", "-i", metavar="JSON", help="What the handler gets: JSON, - or @file."),
]
Priority = Annotated[int, typer.Option(metavar="N", min=-100, max=100, help="Higher goes first.")]
MaxRetries = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=1_000_000, help="How often it may be tried again."),
]
Timeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=parse_span,
        metavar="DURATION",
        help="How long one attempt may run.",
        show_default=False,
    ),
]
Status = Annotated[
    TaskStatus | None,
    typer.Option("--status", "-s", help="Only these.", case_sensitive=False),
]
