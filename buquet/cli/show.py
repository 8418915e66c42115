"""Showing things: to people on a terminal, as plain lines in a pipe, as JSON where asked to.

What comes out of the store may have been put there by anybody: nothing of it reaches a terminal
before `clean` has made its control characters visible.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.text import Text

from buquet.cli import stderr
from buquet.core import codec
from buquet.core.durations import format_duration
from buquet.core.model import TaskStatus

STYLES = {
    TaskStatus.PENDING: "yellow",
    TaskStatus.RUNNING: "cyan",
    TaskStatus.COMPLETED: "green",
    TaskStatus.FAILED: "bold red",
    TaskStatus.CANCELLED: "blue",
    TaskStatus.EXPIRED: "magenta",
    TaskStatus.ARCHIVED: "dim",
}


def terminal() -> Console | None:
    """Return the terminal that stdout is; None if it is a pipe or a file."""
    if sys.stdout is None:
        return None
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    return console if console.is_terminal else None


def say(line: str | Text = "", *, wrap: bool = False) -> None:
    """Write a line to stdout; on a terminal in colours and, if asked to, broken between words."""
    text = Text(line) if isinstance(line, str) else line
    console = terminal()
    if console is None:
        say_fields(text.plain)
    else:
        console.print(text, soft_wrap=not wrap)


def say_fields(*fields: Any) -> None:
    """Write a line of fields to stdout, with tabs between them.

    Raises:
        OutputLost: if stdout can't be written. A reader that has gone raises BrokenPipeError.
    """
    with writing():
        print(*fields, sep="\t")


def say_json(value: Any) -> None:
    """Write a JSON document to stdout."""
    say_fields(codec.to_json(value))


def flush() -> None:
    """Write what is still buffered for stdout."""
    with writing():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def writing() -> Iterator[None]:
    """Tell an error of stdout from other errors of the system."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error.strerror or str(error)) from error


def discard_output() -> None:
    """Throw away what is buffered for stdout, so that the end of the process is quiet."""
    with suppress(OSError, ValueError, AttributeError):
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, sys.stdout.fileno())
        os.close(void)


class OutputLost(Exception):
    """Raised when stdout can't be written: a full disk, say. Its text is the reason."""


def note(line: str) -> None:
    """Write a line for people to stderr. It is not part of the output."""
    stderr.write(f"{line}\n")


def clean(value: Any) -> str:
    r"""Return text in which nothing can move a cursor, ring a bell or turn the text around.

    >>> clean("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def status(value: TaskStatus) -> Text:
    """Return a status in its colour."""
    return Text(str(value), STYLES[value])


def absolute(moment: datetime) -> str:
    """Write a time to the second.

    >>> absolute(datetime(2026, 12, 24, 17, tzinfo=UTC))
    '2026-12-24T17:00:00Z'
    """
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def relative(moment: datetime, now: datetime, *, units: int = 2) -> str:
    """Write how far away a time is.

    >>> noon = datetime(2026, 12, 24, 12, tzinfo=UTC)
    >>> relative(noon + timedelta(hours=2.5), noon), relative(noon, noon + timedelta(minutes=3))
    ('in 2h 30m', '3m ago')
    """
    # To the nearest second: what is an hour away by the option should not read "in 59m 59s".
    seconds = round((moment - now).total_seconds())
    if seconds == 0:
        return "now"
    span = " ".join(format_duration(timedelta(seconds=abs(seconds))).split()[:units])
    return f"in {span}" if seconds > 0 else f"{span} ago"


def when(moment: datetime, now: datetime) -> str:
    """Write a time both ways.

    >>> noon = datetime(2026, 12, 24, 12, tzinfo=UTC)
    >>> when(noon, noon - timedelta(days=1))
    '2026-12-24T12:00:00Z (in 1d)'
    """
    return f"{absolute(moment)} ({relative(moment, now)})"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number of things.

    >>> count(1, "task"), count(2000, "task"), count(2, "batch", "batches")
    ('1 task', '2,000 tasks', '2 batches')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
