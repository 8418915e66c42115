"""The command `stats`, which counts the tasks of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from buquet.cli import show
from buquet.cli.session import Session
from buquet.cli.tables import cell, squeezed
from buquet.client.stats import Stats
from buquet.core.index import INDEXED_STATUSES, Backlog
from buquet.core.model import rfc3339

_ENDED = sorted(INDEXED_STATUSES)
_HEADER = ("TYPE", "READY", "SCHEDULED", "NEAR", "OLDEST", *(each.upper() for each in _ENDED))
_NUMBER_STYLES = ("", "", "", "", *(show.STYLES[each] for each in _ENDED))
_LEAST_TYPE = 8
"""The least width of the type column. A narrow terminal gets lines that are too wide."""
_LEGEND = "NEAR: deadline within 5 minutes. CANCELLED, EXPIRED, FAILED: in the last day."


def stats(session: Session) -> None:
    """Count tasks by type: those that wait, and those that ended badly."""
    with session.queue() as queue:
        found = queue.stats()
        if session.as_json:
            show.say_json(stats_as_json(found))
        else:
            show_stats(found, queue.now())


def backlog_as_json(found: Mapping[str, Backlog]) -> dict[str, Any]:
    """Return backlogs by task type as JSON values."""
    return {
        task_type: {
            "ready": each.ready,
            "scheduled": each.scheduled,
            "near_expiration": each.near_expiration,
            "oldest_due_at": rfc3339(each.oldest_due_at) if each.oldest_due_at else None,
        }
        for task_type, each in sorted(found.items())
    }


def stats_as_json(found: Stats) -> dict[str, Any]:
    """Return the counts of a queue as JSON values."""
    return {
        "workers": found.workers,
        "running": found.running,
        "is_estimate": found.is_estimate,
        "unfinished": backlog_as_json(found.unfinished),
        "ended": {str(status): dict(found.ended.get(status, {})) for status in _ENDED},
    }


def show_stats(found: Stats, now: datetime) -> None:
    """Show the counts of a queue: as a table on a terminal, else one number per line."""
    console = show.terminal()
    if console is None:
        for row in _numbers(found):
            show.say_fields(*row)
        return
    console.print(
        f"{show.count(found.workers, 'worker')} alive, {show.count(found.running, 'task')} running"
    )
    if lines := list(_table(found, now, console.width)):
        console.print(*lines, sep="\n")
        console.print(Text(_LEGEND, "dim"))
    else:
        show.note(
            "No unfinished tasks, and none that failed, expired or were cancelled in the last day."
        )


def _numbers(found: Stats) -> Iterator[tuple[str, str, int]]:
    yield "workers", "-", found.workers
    yield "running", "-", found.running
    for task_type, each in sorted(found.unfinished.items()):
        name = show.clean(task_type)
        yield "ready", name, each.ready
        yield "scheduled", name, each.scheduled
        yield "near_expiration", name, each.near_expiration
    for status in _ENDED:
        for task_type, number in sorted(found.ended.get(status, {}).items()):
            yield str(status), show.clean(task_type), number


def _table(found: Stats, now: datetime, width: int) -> Iterator[Text]:
    """Return the lines of a table. To make it fit, types are shortened, and numbers never."""
    types = {name for status in _ENDED for name in found.ended.get(status, {})}
    types |= found.unfinished.keys()
    if not types:
        return
    rows = [_HEADER, *(_row(found, task_type, now) for task_type in sorted(types))]
    longest, *widths = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
    room = max(width - sum(2 + each for each in widths), _LEAST_TYPE)
    for row in rows:
        line = Text(cell(squeezed(row[0], room), min(room, longest)))
        for text, each, style in zip(row[1:], widths, _NUMBER_STYLES, strict=True):
            line.append(f"  {text:>{each}}", "" if row is _HEADER else style)
        if row is _HEADER:
            line.stylize("bold")
        yield line


def _row(found: Stats, task_type: str, now: datetime) -> tuple[str, ...]:
    each = found.unfinished.get(task_type, Backlog(task_type))
    oldest = each.oldest_due_at
    return (
        show.clean(task_type),
        *(_number(number) for number in (each.ready, each.scheduled, each.near_expiration)),
        show.relative(oldest, now, units=1).removesuffix(" ago") if oldest else "",
        *(_number(found.ended.get(status, {}).get(task_type, 0)) for status in _ENDED),
    )


def _number(number: int) -> str:
    return f"{number:,}" if number else ""
