"""How a queue stands: counted by the index, and by what the workers say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from attrs import evolve, frozen

from buquet.client import listing
from buquet.core import index, keys
from buquet.core.keys import Entry, minute_of
from buquet.core.model import TaskStatus, WorkerRecord
from buquet.ledger.ledger import Ledger
from buquet.store import walk

WINDOW = timedelta(days=1)
"""How far back `stats` counts what has ended."""


@frozen
class Stats:
    """How a queue stands."""

    unfinished: dict[str, index.Backlog]
    """What is ready and scheduled, by task type, as counted by the index."""
    running: int
    """Tasks that live workers say they are running, as of their last heartbeat."""
    workers: int
    """Workers that have given a sign of life within their lease."""
    ended: dict[TaskStatus, dict[str, int]]
    """Failed, cancelled and expired tasks of the last day, by status and type."""


def count(ledger: Ledger) -> Stats:
    """Count: the unfinished by the index alone, the ended of the last day by their batches."""
    now = ledger.now()
    alive = [record for record in ledger.workers.all() if not record.is_lapsed_at(now)]
    return Stats(
        unfinished=index.census(_entries(ledger, alive, now), now),
        running=sum(len(record.running) for record in alive),
        workers=len(alive),
        ended=listing.count_ended(ledger, now - WINDOW),
    )


def _entries(ledger: Ledger, alive: list[WorkerRecord], now: datetime) -> Iterator[Entry]:
    """Walk the entries; those of running batches that lie ahead are given as due."""
    running = {keys.batch_id_of_task(task_id) for record in alive for task_id in record.running}
    for listed in walk(ledger.store, keys.READY):
        entry = keys.parse_entry(listed.key)
        if entry is not None:
            is_parked = entry.batch_id in running
            minute = min(entry.minute, minute_of(now)) if is_parked else entry.minute
            yield evolve(entry, minute=minute)
