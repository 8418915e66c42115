"""How a queue stands: what `stats` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from buquet.census import Backlog
from buquet.cli import show
from buquet.entries import INDEXED_STATUSES
from buquet.model import rfc3339
from buquet.stats import Stats

_ENDED = sorted(INDEXED_STATUSES)
_NUMBERS_WIDTH = 62
"""What the columns of numbers take of the width of a table."""
_LEGEND = "NEAR: deadline within 5 minutes. CANCELLED, EXPIRED, FAILED: in the last day."


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
    """Return how a queue stands as JSON values."""
    return {
        "workers": found.workers,
        "running": found.running,
        "unfinished": backlog_as_json(found.unfinished),
        "ended": {str(status): dict(found.ended.get(status, {})) for status in _ENDED},
    }


def show_stats(found: Stats, now: datetime) -> None:
    """Show how a queue stands: a table on a terminal, else a line for each number."""
    console = show.terminal()
    if console is None:
        for row in _numbers(found):
            print(*row, sep="\t")
        return
    console.print(
        f"{show.count(found.workers, 'worker')} alive, {show.count(found.running, 'task')} running"
    )
    if table := _table(found, now, console.width):
        console.print(table, soft_wrap=False)
        console.print(Text(_LEGEND, "dim"))
    else:
        show.note("Nothing is unfinished, and nothing failed, expired or was cancelled today.")


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


def _table(found: Stats, now: datetime, width: int) -> Table | None:
    ended = {status: found.ended.get(status, {}) for status in _ENDED}
    types = sorted(found.unfinished.keys() | {name for each in ended.values() for name in each})
    if not types:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("TYPE", no_wrap=True, max_width=max(width - _NUMBERS_WIDTH, 8))
    for name in ("READY", "SCHEDULED", "NEAR", "OLDEST"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for status in _ENDED:
        name = str(status).upper()
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for task_type in types:
        each = found.unfinished.get(task_type, Backlog(task_type))
        oldest = each.oldest_due_at
        table.add_row(
            Text(show.clean(task_type)),
            *(_number(number) for number in (each.ready, each.scheduled, each.near_expiration)),
            show.relative(oldest, now, units=1).removesuffix(" ago") if oldest else "",
            *(
                Text(_number(ended[status].get(task_type, 0)), show.STYLES[status])
                for status in _ENDED
            ),
        )
    return table


def _number(number: int) -> str:
    return f"{number:,}" if number else ""
