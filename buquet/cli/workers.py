"""The command that shows the workers of a queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import asdict
from rich.text import Text

from buquet.cli import show
from buquet.cli.session import Session
from buquet.cli.tables import cell, fitting, percent
from buquet.core.model import Progress, WorkerRecord, rfc3339

HEALTHY = "healthy"
LAPSED = "lapsed"

_ID = 30
_PID = 7
_THREADS = 7
_RUNNING = 7
_HEARTBEAT = 10
_MOST_TASKS = 10
"""How many running tasks are shown for each worker; in a pipe and in JSON it is all."""


def workers(session: Session) -> None:
    """Show the workers, what they run, and whether they are well."""
    with session.queue() as queue:
        found = sorted(queue.workers(), key=lambda record: (record.host, record.started_at))
        now = queue.now()
    if session.as_json:
        show.say_json([as_json(record, now) for record in found])
    elif show.terminal() is None:
        for record in found:
            print(*_plain_row(record, now), sep="\t")
    else:
        _show_table(found, now)


def as_json(record: WorkerRecord, now: datetime) -> dict[str, Any]:
    """Return what a worker says of itself as JSON values."""
    told = asdict(
        record,
        filter=lambda attribute, _: attribute.name != "extra",
        value_serializer=lambda _, __, value: (
            rfc3339(value) if isinstance(value, datetime) else value
        ),
    )
    return told | {"state": state(record, now)}


def state(record: WorkerRecord, now: datetime) -> str:
    """Say whether a worker has given a sign of life in time."""
    return LAPSED if record.is_lapsed_at(now) else HEALTHY


def _plain_row(record: WorkerRecord, now: datetime) -> tuple[str, ...]:
    return (
        show.clean(record.id),
        show.clean(record.host),
        str(record.pid),
        str(record.threads),
        state(record, now),
        show.absolute(record.heartbeat_at),
        ",".join(map(_task_in_short, _tasks(record))) or "-",
    )


def _task_in_short(task: tuple[str, Progress | None]) -> str:
    task_id, progress = task
    return (
        show.clean(task_id) if progress is None else f"{show.clean(task_id)}={percent(progress)}%"
    )


def _show_table(found: list[WorkerRecord], now: datetime) -> None:
    if not found:
        show.note("There is no worker.")
        return
    header = "  ".join(
        [
            cell("WORKER", _ID),
            "PID".rjust(_PID),
            "THREADS".rjust(_THREADS),
            "RUNNING".rjust(_RUNNING),
            cell("HEARTBEAT", _HEARTBEAT),
            "STATE",
        ]
    )
    show.say(Text(header, "bold"))
    for record in found:
        show.say(_row(record, now))
        _show_lost_threads(record)
        _show_tasks(record)


def _row(record: WorkerRecord, now: datetime) -> Text:
    row = Text(cell(fitting(show.clean(record.id), _ID), _ID))
    for number, width in (
        (record.pid, _PID),
        (record.threads, _THREADS),
        (len(record.running), _RUNNING),
    ):
        row.append(f"  {number!s:>{width}}")
    row.append(f"  {cell(show.relative(record.heartbeat_at, now, units=1), _HEARTBEAT)}  ")
    told = state(record, now)
    return row.append(told, "green" if told == HEALTHY else "bold red")


def _show_lost_threads(record: WorkerRecord) -> None:
    lost = show.clean(str(record.counters.get("lost_threads", 0)))
    if lost != "0":
        show.say(Text(f"  {lost} threads are stuck in handlers past their timeouts", "yellow"))


def _show_tasks(record: WorkerRecord) -> None:
    console = show.terminal()
    width = console.width if console else 80
    tasks = _tasks(record)
    for task_id, progress in tasks[:_MOST_TASKS]:
        line = f"  {show.clean(task_id)}"
        if progress is not None:
            line += f"  {percent(progress):>3}%  {show.clean(progress.text)}"
        show.say(Text(fitting(line.rstrip(), width), "dim"))
    if len(tasks) > _MOST_TASKS:
        show.say(Text(f"  and {len(tasks) - _MOST_TASKS:,} more", "dim"))


def _tasks(record: WorkerRecord) -> list[tuple[str, Progress | None]]:
    return [(task_id, record.progress.get(task_id)) for task_id in record.running]
