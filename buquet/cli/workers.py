"""The command `workers`, which shows the workers of a queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import asdict, evolve
from rich.text import Text

from buquet.cli import show
from buquet.cli.session import Session
from buquet.cli.tables import cell, fitting, percent, squeezed
from buquet.core.model import Progress, WorkerRecord, rfc3339

HEALTHY = "healthy"
LAPSED = "lapsed"

_ID = 30
_PID = 7
_THREADS = 7
_RUNNING = 7
_HEARTBEAT = 10
_MOST_TASKS = 10
"""How many running tasks of a worker a terminal shows. In a pipe and in JSON it is all."""


def workers(session: Session) -> None:
    """Show the workers: their state, and the tasks that they run."""
    with session.queue() as queue:
        found = sorted(queue.workers(), key=lambda record: (record.host, record.started_at))
        now = queue.now()
    if session.as_json:
        show.say_json([as_json(record, now) for record in found])
    elif show.terminal() is None:
        for record in found:
            show.say_fields(*_plain_row(record, now))
    else:
        _show_table(found, now)


def as_json(record: WorkerRecord, now: datetime) -> dict[str, Any]:
    """Return the record of a worker as JSON values.

    What a lapsed worker ran may be done by now, so it is not listed as running.
    """
    if state(record, now) == LAPSED:
        last = record.running
        record = evolve(record, running=(), progress={})
    else:
        last = ()
    told = asdict(
        record,
        filter=lambda attribute, _: attribute.name != "extra",
        value_serializer=lambda _, __, value: (
            rfc3339(value) if isinstance(value, datetime) else value
        ),
    )
    return told | {"state": state(record, now), "last_running": last}


def state(record: WorkerRecord, now: datetime) -> str:
    """Return whether a worker has renewed its lease in time."""
    return LAPSED if record.is_lapsed_at(now) else HEALTHY


def _plain_row(record: WorkerRecord, now: datetime) -> tuple[str, ...]:
    return (
        show.clean(record.id),
        show.clean(record.host),
        str(record.pid),
        str(record.threads),
        state(record, now),
        show.absolute(record.heartbeat_at),
        ",".join(map(_task_in_short, _tasks(record, now))) or "-",
    )


def _task_in_short(task: tuple[str, Progress | None]) -> str:
    task_id, progress = task
    return (
        show.clean(task_id) if progress is None else f"{show.clean(task_id)}={percent(progress)}%"
    )


def _show_table(found: list[WorkerRecord], now: datetime) -> None:
    if not found:
        show.note("There are no workers.")
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
        if state(record, now) == LAPSED:
            _show_what_it_had(record)
        else:
            _show_lost_threads(record)
            _show_tasks(_tasks(record, now))


def _row(record: WorkerRecord, now: datetime) -> Text:
    row = Text(cell(squeezed(show.clean(record.id), _ID), _ID))
    for number, width in (
        (record.pid, _PID),
        (record.threads, _THREADS),
        (len(_tasks(record, now)), _RUNNING),
    ):
        row.append(f"  {number!s:>{width}}")
    row.append(f"  {cell(show.relative(record.heartbeat_at, now, units=1), _HEARTBEAT)}  ")
    told = state(record, now)
    return row.append(told, "green" if told == HEALTHY else "bold red")


def _show_what_it_had(record: WorkerRecord) -> None:
    if record.running:
        had = show.count(len(record.running), "task")
        show.say(Text(f"  had {had} at its last heartbeat; other workers take over", "dim"))


def _show_lost_threads(record: WorkerRecord) -> None:
    lost = show.clean(str(record.counters.get("lost_threads", 0)))
    if lost != "0":
        show.say(Text(f"  {lost} threads are stuck in handlers past their timeouts", "yellow"))


def _show_tasks(tasks: list[tuple[str, Progress | None]]) -> None:
    console = show.terminal()
    width = console.width if console else 80
    for task_id, progress in tasks[:_MOST_TASKS]:
        line = f"  {show.clean(task_id)}"
        if progress is not None:
            line += f"  {percent(progress):>3}%  {show.clean(progress.text)}"
        show.say(Text(fitting(line.rstrip(), width), "dim"))
    if len(tasks) > _MOST_TASKS:
        show.say(Text(f"  and {len(tasks) - _MOST_TASKS:,} more", "dim"))


def _tasks(record: WorkerRecord, now: datetime) -> list[tuple[str, Progress | None]]:
    if state(record, now) == LAPSED:
        return []
    return [(task_id, record.progress.get(task_id)) for task_id in record.running]
