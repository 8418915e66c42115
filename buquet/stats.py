"""How a queue stands: counted by the index, and by what the workers say of themselves."""

from __future__ import annotations

from datetime import timedelta

from attrs import frozen

from buquet import census, keys, listing
from buquet.ledger import Ledger
from buquet.model import TaskStatus

WINDOW = timedelta(days=1)
"""How far back `stats` counts what has ended."""


@frozen
class Stats:
    """How a queue stands."""

    unfinished: dict[str, census.Backlog]
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
    entries = (keys.parse_entry(each.key) for each in ledger.listing(keys.READY))
    alive = [record for record in ledger.workers() if not record.is_lapsed_at(now)]
    return Stats(
        unfinished=census.census((entry for entry in entries if entry), now),
        running=sum(len(record.running) for record in alive),
        workers=len(alive),
        ended=listing.count_ended(ledger, now - WINDOW),
    )
