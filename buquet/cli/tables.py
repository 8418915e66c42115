"""How a task, its history and lists of tasks are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from buquet.cli import show
from buquet.cli.show import absolute, clean, relative, when
from buquet.core.model import Progress, Revision, Task, TaskStatus, rfc3339

_SECRET = frozenset({"input", "output", "last_error", "history"})
"""What a list leaves out: payloads, and texts that may quote them."""

_ID = 36
_STATUS = 9
_WHEN = 14
_TIME = 20
_WIDE = 110
"""The width, in columns, from which on a list shows deadlines too."""

_TIMES = (
    "created_at",
    "available_at",
    "started_at",
    "completed_at",
    "cancelled_at",
    "expires_at",
    "expired_at",
    "lease_expires_at",
)


# --- one task


def show_task(task: Task, now: datetime, progress: Progress | None = None) -> None:
    """Show all that people want to know about a task, one line for each field."""
    _field("id", task.id)
    _field("status", show.status(task.status))
    if progress is not None:
        _field("progress", _progress(progress, now))
    _field("type", task.task_type)
    for name in _TIMES:
        moment: datetime | None = getattr(task, name)
        if moment is not None and not (name == "available_at" and moment == task.created_at):
            _field(name, when(moment, now))
    _field("attempt", f"{task.attempt} of {task.max_retries + 1}")
    for name, value in _less_common(task).items():
        _field(name, value)
    if task.last_error is not None:
        _field("last_error", task.last_error)
    _field("input", _payload(task.input))
    if task.status is TaskStatus.COMPLETED or task.output is not None:
        _field("output", _payload(task.output))


def _less_common(task: Task) -> dict[str, Any]:
    """Return the fields that are shown only if they are not as usual."""
    every = {
        "priority": task.priority,
        "timeout_seconds": task.timeout_seconds,
        "reschedule_count": task.reschedule_count,
        "worker": task.worker_id,
        "cancel_requested": "yes" if task.cancel_requested else None,
        "cancelled_by": task.cancelled_by,
    }
    return {name: value for name, value in every.items() if value}


def _field(name: str, value: Any) -> None:
    shown = value if isinstance(value, Text) else Text(clean(value))
    show.say(Text.assemble((f"{name}: ", "bold"), shown))


def progress_as_json(progress: Progress | None) -> dict[str, Any] | None:
    """Return the progress of an attempt as JSON values."""
    if progress is None:
        return None
    return {
        "fraction": progress.fraction,
        "text": progress.text,
        "at": rfc3339(progress.at),
    }


def _progress(progress: Progress, now: datetime) -> str:
    told = f" {progress.text}" if progress.text else ""
    return f"{percent(progress)} %{told} ({relative(progress.at, now)})"


def percent(progress: Progress) -> int:
    """Return the progress as a number from 0 to 100, whatever fraction is stored."""
    # Rounded down: only what is done reads 100 %. (0.57 * 100 is a little less than 57.)
    return int(round(min(max(progress.fraction, 0.0), 1.0) * 100, 6))


def _payload(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- its history


def show_history(task: Task, now: datetime) -> None:
    """Show the changes of a task, oldest first: two lines each on a terminal, else one."""
    for index, revision in enumerate(task.history):
        if index == 1 and task.history_omitted:
            last = revision.version - 1
            show.say(Text(f"(versions 2 to {last} are not kept)", "dim"))
        _show_revision(revision, now)


def _show_revision(revision: Revision, now: datetime) -> None:
    told = [] if revision.event == revision.status else [clean(revision.event)]
    told += [f"{clean(name)}: {_detail(value, now)}" for name, value in revision.details.items()]
    line = Text.assemble(f"Version {revision.version}: ", show.status(revision.status))
    if told:
        line.append(f" ({', '.join(told)})")
    if show.terminal():
        show.say(line, wrap=True)
        show.say(Text(f"    {when(revision.at, now)} by {clean(revision.by)}", "dim"))
    else:
        show.say_fields(line.plain, absolute(revision.at), clean(revision.by))


def _detail(value: Any, now: datetime) -> str:
    """Format a detail of a change. A time becomes one that people can read."""
    if isinstance(value, str) and value.endswith("Z"):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return clean(value)
        return when(moment, now) if show.terminal() else absolute(moment)
    return clean(value)


# --- lists


def brief(task: Task) -> dict[str, Any]:
    """Return what a list shows of a task, as JSON values: neither input nor output."""
    return {name: value for name, value in task.to_dict().items() if name not in _SECRET}


def show_tasks(tasks: Iterable[Task], now: datetime) -> int:
    """Show each task on a line as it comes; return how many there were."""
    console = show.terminal()
    number = 0
    for number, task in enumerate(tasks, 1):
        if console is None:
            show.say_fields(*_plain_row(task))
            continue
        if number == 1:
            console.print(Text(_header(console.width).rstrip(), "bold"))
        console.print(_row(task, now, console.width))
    return number


def _plain_row(task: Task) -> tuple[str, ...]:
    return (
        clean(task.id),
        str(task.status),
        clean(task.task_type),
        absolute(task.created_at),
        absolute(task.available_at),
        absolute(task.expires_at) if task.expires_at else "-",
        absolute(task.ended_at) if task.ended_at else "-",
    )


def _header(width: int) -> str:
    cells = [cell("ID", _ID), cell("STATUS", _STATUS), cell("WHEN", _WHEN)]
    if width >= _WIDE:
        cells.append(cell("DEADLINE", _TIME))
    return "  ".join([*cells, "TYPE"])


def _row(task: Task, now: datetime, width: int) -> Text:
    row = Text(f"{clean(task.id)}  ")
    row.append(cell(str(task.status), _STATUS), show.STYLES[task.status])
    row.append(f"  {cell(_when_in_short(task, now), _WHEN)}  ")
    if width >= _WIDE:
        row.append(cell(absolute(task.expires_at) if task.expires_at else "", _TIME) + "  ")
    row.append(squeezed(clean(task.task_type), width - cell_len(row.plain)))
    return row


def _when_in_short(task: Task, now: datetime) -> str:
    """Describe the most important time of a task in 14 characters."""
    if task.ended_at is not None:
        return relative(task.ended_at, now, units=1)
    if task.cancel_requested:
        return "cancelling"
    if task.status is TaskStatus.RUNNING:
        return relative(task.started_at or now, now, units=1)
    if task.is_expired_at(now):
        return "too late"
    if task.available_at > now:
        return f"due {relative(task.available_at, now, units=1)}"
    if task.expires_at is not None:
        return f"expires {relative(task.expires_at, now, units=1)}"
    return f"due {relative(task.available_at, now, units=1)}"


def cell(text: str, width: int) -> str:
    """Pad or cut a text to a width."""
    return set_cell_size(text, width)


def fitting(text: str, width: int) -> str:
    """Cut the end of a text that is too wide."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 2, 1)) + ".."


def squeezed(name: str, width: int) -> str:
    """Cut the middle of a name that is too wide: names often begin alike, or end alike.

    >>> squeezed("app.tasks.send_reminder", 15)
    'app.ta..eminder'
    """
    if cell_len(name) <= width:
        return name
    room = max(width - 2, 2)
    head = set_cell_size(name, room // 2)
    tail = set_cell_size(name[::-1], room - room // 2)[::-1]
    return f"{head}..{tail}"
