"""What long-running commands log: to stderr, readably, in colours on a terminal, or as JSON.

Whatever a handler logs, by whichever library, names the task that it is at.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from buquet.cli import show, stderr
from buquet.cli.show import clean
from buquet.core.model import rfc3339
from buquet.worker.context import current_task

_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31;1"}


class LogFormat(StrEnum):
    """How log records are written."""

    TEXT = "text"
    JSON = "json"


class TaskFilter(logging.Filter):
    """Puts `task_id` and `task_type` on each record: None outside of handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        task = current_task.get()
        record.task_id = task.id if task else None
        record.task_type = task.task_type if task else None
        return True


class TextFormatter(logging.Formatter):
    """Writes a record on a line of its own; the lines of a traceback follow, set in.

    So nothing that came from elsewhere passes for another record, or moves the cursor of who reads.
    """

    def __init__(self, *, in_colour: bool, with_pid: bool) -> None:
        pid = "[%(process)d] " if with_pid else ""
        super().__init__(f"%(asctime)s %(levelname)-7s {pid}%(message)s", "%Y-%m-%d %H:%M:%S")
        self._in_colour = in_colour

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- as logging has it
        """Write the line of a record, with the task behind it unless it names it already."""
        line = clean(super().formatMessage(record))
        task_id = getattr(record, "task_id", None)
        if task_id is None or task_id in line:
            return line
        return f"{line} (task {task_id}, {getattr(record, 'task_type', None)})"

    def format(self, record: logging.LogRecord) -> str:
        """Write a record, the lines of a traceback included."""
        first, *more = super().format(record).split("\n")
        colour = _COLOURS.get(record.levelno)
        if self._in_colour and colour:
            first = f"\x1b[{colour}m{first}\x1b[0m"
        return "\n".join([first, *(f"    {clean(line)}" for line in more)])


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object on a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; `task_id`, `task_type` and `exc` only where there are any."""
        told: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            "thread": record.threadName,
            "task_id": getattr(record, "task_id", None),
            "task_type": getattr(record, "task_type", None),
            "exc": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps({name: value for name, value in told.items() if value is not None})


class StderrHandler(logging.Handler):
    """Writes records to stderr; those that nobody reads are dropped, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if self._dropped and self._write(_notice(self._dropped)):
            self._dropped = 0
        self._dropped += not self._write(record)

    def _write(self, record: logging.LogRecord) -> bool:
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 -- whatever a logged object does when it is shown
            text = f"A record of {record.name} can't be formatted ({error!r}): {record.msg!r}"
        return stderr.write(f"{text}\n")


def _notice(dropped: int) -> logging.LogRecord:
    text = "%s dropped: stderr was full, and nobody read it."
    told = (show.count(dropped, "line of the log", "lines of the log"),)
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, told, None)


def log_to_stderr(
    *,
    debug: bool,
    level: int = logging.INFO,
    log_format: LogFormat | None = None,
    with_pid: bool = False,
) -> None:
    """Set logging up, unless the program of the user has and no format was asked for.

    Whatever that program did or will do, our own loggers stay enabled.
    """
    ours = logging.getLogger("buquet")
    _keep_our_loggers_enabled()
    if debug or ours.level == logging.NOTSET:
        ours.setLevel(logging.DEBUG if debug else level)
    root = logging.getLogger()
    if root.handlers and log_format is None:
        return
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_handler(log_format, with_pid=with_pid))
    root.setLevel(logging.INFO)
    if log_format is not None:
        ours.handlers, ours.propagate = [], True
    for chatty in ("boto3", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It warns with tracebacks of answers that were cut short; the store tells of those itself.
    logging.getLogger("urllib3").setLevel(logging.ERROR)


class _EnabledLogger(logging.Logger):
    """A logger that can't be disabled.

    `logging.config.dictConfig` disables all loggers that it does not name, unless it is told not
    to. A program may call it at any time, and failures of its tasks would go unlogged.
    """

    @property
    def disabled(self) -> bool:
        """It never is."""
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None:
        pass


def _keep_our_loggers_enabled() -> None:
    for name, found in logging.root.manager.loggerDict.items():
        if type(found) is logging.Logger and f"{name}.".startswith("buquet."):
            found.__class__ = _EnabledLogger


def _handler(log_format: LogFormat | None, *, with_pid: bool) -> logging.Handler:
    handler = StderrHandler()
    handler.addFilter(TaskFilter())
    if log_format is LogFormat.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        in_colour = sys.stderr is not None and sys.stderr.isatty()
        handler.setFormatter(TextFormatter(in_colour=in_colour, with_pid=with_pid))
    return handler
