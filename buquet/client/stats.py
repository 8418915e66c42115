"""Counting tasks: exactly while they are few, else by the index and what the workers report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice

from attrs import evolve, frozen

from buquet.client import listing, metrics
from buquet.client.fan_out import act_on_each
from buquet.core import keys
from buquet.core.index import Backlog, backlog_of
from buquet.core.keys import Entry, minute_of
from buquet.core.model import Batch, TaskStatus, WorkerRecord
from buquet.ledger.ledger import OF_ONE_BATCH, Ledger
from buquet.store import walk

READ_AT_MOST = 100
"""How many batches of unfinished tasks are read to count them exactly."""

READERS = 8
"""How many of them at a time."""

_Counted = tuple[dict[str, Backlog], int]

WINDOW = timedelta(days=1)
"""How far back `stats` counts what has ended."""


@frozen
class Stats:
    """How many tasks there are, and of which kind."""

    unfinished: dict[str, Backlog]
    """What is ready and scheduled, by task type."""
    running: int
    """Tasks that are running; in an estimate, those that live workers reported last."""
    workers: int
    """Workers that have given a sign of life within their lease."""
    ended: dict[TaskStatus, dict[str, int]]
    """Failed, cancelled and expired tasks of the last day, by status and type."""
    is_estimate: bool = False
    """Whether there are too many batches to read them: then the index alone was counted. Of a batch
    that is being worked on, tasks that have just ended or begun may still count as ready."""


def count(ledger: Ledger) -> Stats:
    """Count the unfinished, and what has ended in the last day.

    The batches of the unfinished are read as long as they are few.
    """
    now = ledger.now()
    alive = [record for record in ledger.workers.all() if not record.is_lapsed_at(now)]
    parsed = (keys.parse_entry(listed.key) for listed in walk(ledger.store, keys.READY))
    entries = (entry for entry in parsed if entry is not None)
    first = list(islice(entries, READ_AT_MOST + 1))
    if len(first) <= READ_AT_MOST:
        unfinished, running = _exact({entry.batch_id for entry in first}, ledger, now)
    else:
        unfinished, running = _estimate(chain(first, entries), alive, now)
    metrics.observe_backlog(unfinished)
    return Stats(
        unfinished=unfinished,
        running=running,
        workers=len(alive),
        ended=listing.count_ended(ledger, now - WINDOW),
        is_estimate=len(first) > READ_AT_MOST,
    )


def _exact(batch_ids: Collection[str], ledger: Ledger, now: datetime) -> _Counted:
    """Count the tasks of batches by reading them."""
    read: list[Batch | None] = []
    act_on_each(partial(_load, ledger), sorted(batch_ids), read, threads=READERS, name="stats")
    found: dict[str, Backlog] = {}
    batches = [batch for batch in read if batch is not None and batch.unfinished]
    for batch in batches:
        backlog_of(found, batch.task_type).count_batch(batch, now)
    tasks = (task for batch in batches for task in batch.unfinished)
    return found, sum(task.status is TaskStatus.RUNNING for task in tasks)


def _load(ledger: Ledger, batch_id: str) -> Batch | None:
    try:
        loaded = ledger.load(batch_id)
    except OF_ONE_BATCH as error:
        ledger.pass_over(batch_id, error)
        return None
    return loaded.batch if loaded else None


def _estimate(entries: Iterable[Entry], alive: list[WorkerRecord], now: datetime) -> _Counted:
    """Count by the index alone, but for what live workers say they are running."""
    ids = [task_id for record in alive for task_id in record.running]
    running = Counter(map(keys.batch_id_of_task, ids))
    found: dict[str, Backlog] = {}
    for entry in entries:
        not_pending = running[entry.batch_id]
        is_parked = not_pending > 0 and entry.minute > minute_of(now)
        counted = evolve(entry, minute=minute_of(now)) if is_parked else entry
        backlog_of(found, entry.task_type).count(counted, now, not_pending=not_pending)
    return found, len(ids)
