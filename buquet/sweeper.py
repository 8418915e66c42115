"""The sweeper: expires what is late, and takes back what dead workers left behind."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

from attrs import define, field, frozen

from buquet.client import metrics
from buquet.client.fan_out import act_on_each
from buquet.client.queue import Queue
from buquet.clock import Event
from buquet.core import index, keys
from buquet.core.batch import Commit
from buquet.core.index import Backlog, Standing, backlog_of
from buquet.core.keys import Entry, minute_of
from buquet.core.model import Batch, TaskStatus, WorkerRecord
from buquet.errors import BuquetError, DamagedObject, StoreError
from buquet.ledger.compare_and_set import Lost
from buquet.ledger.ledger import Ledger, Loaded
from buquet.ledger.lock import Lock
from buquet.store import Listed, walk
from buquet.store.check import PREFIX as CHECK_PREFIX

logger = logging.getLogger(__name__)

OLDEST = 1000
"""How many of the oldest due batches a sweep reads, whatever their keys say."""

FORGET_WORKER = timedelta(hours=1)
"""How long after its lease the record of a dead worker is kept."""

LOOK_BACK_EVERY = timedelta(hours=1)
"""How often a sweep starts at the very beginning of the index, not at the watermark."""

_CHUNK = 256

_T = TypeVar("_T")


@define(kw_only=True)
class SweepReport:
    """What a sweep has done and seen."""

    visited: int = 0
    """Batches read."""
    expired: int = 0
    recovered: int = 0
    """Tasks of lost workers that are pending again."""
    failed: int = 0
    """Tasks of lost workers that had no attempts left."""
    tidied: int = 0
    """Entries and records deleted that led nowhere, and entries written that were missing."""
    errors: int = 0
    """Batches that could not be read or written; each is in the log."""
    backlog: dict[str, Backlog] = field(factory=dict)
    """What is due, by task type."""

    def add(self, visit: Visit) -> None:
        """Take the outcome of one visit into account."""
        self.visited += visit.visited
        self.tidied += visit.tidied
        self.errors += visit.errors
        self.expired += visit.events["expired"]
        self.recovered += visit.events["recovered"]
        self.failed += visit.events["failed"]


@frozen(kw_only=True)
class Visit:
    """What a visit to one batch has done."""

    visited: int = 0
    tidied: int = 0
    errors: int = 0
    events: Counter[str] = field(factory=Counter)


@frozen
class _Found:
    """An entry found in the index."""

    entry: Entry
    modified: datetime


class Sweeper:
    """Sweeps a queue.

    Sweeps may overlap with each other and with workers: whoever writes first has done it.

    Args:
        queue: the queue.
        threads: how many batches are visited at a time.
    """

    def __init__(self, queue: Queue, *, threads: int = 8) -> None:
        self._ledger: Ledger = queue.ledger
        self._hooks = queue.hooks
        self._threads = threads
        self._read_after: dict[str, datetime] = {}
        self._not_pending: dict[str, int] = {}
        """How many tasks that an entry counts are not pending, as of the last visit."""
        self._recovered: dict[str, datetime] = {}
        """The dead workers whose batches have been visited, by id, with their lease's end."""
        self._watermark = 0
        self._looked_back_at: datetime | None = None

    def sweep_once(self, *, full: bool = False) -> SweepReport:
        """Expire what is late, take back what lapsed, tidy what leads nowhere.

        Args:
            full: read every batch there is, and write the entries that are missing.

        Raises:
            StoreError: if the index can't be read; a batch that can't be is counted as an error.
        """
        with self._hooks.called_after():
            return self._sweep(full=full)

    def _sweep(self, *, full: bool) -> SweepReport:
        report = SweepReport()
        now = self._ledger.now()
        lapsed = [each for each in self._ledger.workers.silent(now) if each.is_lapsed_at(now)]
        self._recover_lost(lapsed, report)
        place = 0
        for chunk in _chunks(self._due(now, everything=full), _CHUNK):
            chosen = []
            for found_entry in chunk:
                place += 1
                if full or self._is_worth_a_visit(found_entry.entry, place, now):
                    chosen.append(found_entry)
            self._visit_all(self._visit, chosen, report)
            for found_entry in chunk:
                not_pending = self._not_pending.get(found_entry.entry.key, 0)
                backlog = backlog_of(report.backlog, found_entry.entry.task_type)
                backlog.count(found_entry.entry, now, not_pending=not_pending)
        if full:
            self._reindex(report)
            self._tidy_locks(now, report)
        self._forget(lapsed, now, report)
        self._read_after = {key: look for key, look in self._read_after.items() if look > now}
        self._not_pending = {key: self._not_pending[key] for key in self._read_after}
        metrics.observe_backlog(report.backlog)
        return report

    def run(self, stop: Event, *, interval: timedelta = timedelta(seconds=60)) -> None:
        """Sweep again and again until `stop` is set, unless another sweeper has just done it."""
        lock = Lock(self._ledger, "sweep")
        while not stop.wait(interval.total_seconds()):
            try:
                if lock.try_acquire(interval * 1.9):
                    self.sweep_once()
            except BuquetError as error:
                logger.warning("A sweep broke off and will be made again: %s", error)

    # --- what to visit

    def _due(self, now: datetime, *, everything: bool) -> Iterator[_Found]:
        """Walk the entries that are due, oldest first."""
        look_back = (
            everything
            or self._looked_back_at is None
            or now - self._looked_back_at >= LOOK_BACK_EVERY
            or self._watermark > minute_of(now) - index.WATERMARK_MINUTES  # the clock was set back
        )
        start = 0 if look_back else self._watermark
        first: int | None = None
        for listed in walk(self._ledger.store, keys.READY, after=keys.ready_after(start)):
            entry = keys.parse_entry(listed.key)
            if entry is None:
                continue
            first = entry.minute if first is None else first
            if entry.minute > minute_of(now) and not everything:
                break
            yield _Found(entry, listed.modified)
        floor = minute_of(now) - index.WATERMARK_MINUTES
        self._watermark = floor if first is None else min(first, floor)
        if look_back:
            self._looked_back_at = now

    def _is_worth_a_visit(self, entry: Entry, place: int, now: datetime) -> bool:
        if self._read_after.get(entry.key, now) > now:
            return False
        return entry.has_expired_at(now) or place <= OLDEST

    # --- visits

    def _recover_lost(self, lapsed: list[WorkerRecord], report: SweepReport) -> None:
        """Visit the batches of workers that have died: a parked one has no entry that is due."""
        lost = {
            keys.batch_id_of_task(task_id)
            for record in lapsed
            if self._recovered.get(record.id) != record.lease_expires_at
            for task_id in record.running
        }
        before = report.errors
        self._visit_all(self._visit_lost, sorted(lost), report)
        if report.errors == before:
            self._recovered = {record.id: record.lease_expires_at for record in lapsed}

    def _visit_all(
        self, visit: Callable[[_T], Visit], chosen: Sequence[_T], report: SweepReport
    ) -> None:
        done: list[Visit] = []
        try:
            act_on_each(visit, chosen, done, threads=self._threads, name="sweep")
        finally:
            for each in done:
                report.add(each)

    def _visit(self, found_entry: _Found) -> Visit:
        def act() -> Visit:
            found = self._ledger.read_entry(found_entry.entry, found_entry.modified)
            if isinstance(found, Loaded):
                return self._heal(found)
            return Visit(visited=1, tidied=int(found is Standing.STALE))

        return self._guarded(found_entry.entry.batch_id, act)

    def _visit_lost(self, batch_id: str) -> Visit:
        return self._guarded(batch_id, lambda: self._heal(self._ledger.load(batch_id)))

    def _guarded(self, batch_id: str, visit: Callable[[], Visit]) -> Visit:
        """Visit a batch; one that can't be read or written is logged, and counted."""
        try:
            return visit()
        except (StoreError, DamagedObject) as error:
            self._ledger.pass_over(batch_id, error)
            return Visit(visited=1, errors=1)

    def _heal(self, current: Loaded | None) -> Visit:
        """Write what `settle` finds to do, as often as others are faster."""
        for _ in self._ledger.tries(10):
            if current is None:
                break
            facts = self._ledger.facts()
            settled = self._ledger.settle(current.batch, facts)
            self._remember(settled, facts.now)
            if settled is current.batch:
                break
            result = self._ledger.commit(current, settled, facts)
            if isinstance(result, Lost):
                current = result.current
                continue
            changes = Commit.of(current.batch, settled).revisions
            return Visit(visited=1, events=Counter(revision.event for _, revision in changes))
        return Visit(visited=1)

    def _remember(self, batch: Batch, now: datetime) -> None:
        """Remember when the batch next has something to do, so that it is not read before."""
        # What is due may be claimed at any moment by a worker that dies, so it is always read.
        look = index.next_event(batch, self._ledger.workers.leases(batch, now))
        key = index.ready_key(batch)
        if key is not None and look is not None:
            # What runs may be pending again by its deadline, with the entry still where it was.
            deadlines = [task.expires_at for task in batch.unfinished if task.expires_at]
            self._read_after[key] = min([look, *(each for each in deadlines if each > now)])
            pending = sum(task.status is TaskStatus.PENDING for task in batch.unfinished)
            self._not_pending[key] = max(batch.count - pending, 0)

    # --- the rest

    def _reindex(self, report: SweepReport) -> None:
        """Write the entries that batches want and that are not there."""
        there = {
            listed.key
            for prefix in (keys.READY, keys.ENDED)
            for listed in walk(self._ledger.store, prefix)
        }
        for listed in walk(self._ledger.store, keys.BATCHES):
            try:
                report.tidied += self._index(listed, there)
            except (StoreError, DamagedObject) as error:
                self._ledger.pass_over(listed.key, error)
                report.errors += 1

    def _index(self, listed: Listed, there: set[str]) -> int:
        batch_id = keys.batch_id_of(listed.key)
        loaded = self._ledger.load(batch_id) if batch_id else None
        if loaded is None:
            return 0
        missing = index.entries(loaded.batch) - there
        for key in missing:
            if key == index.ready_key(loaded.batch):
                self._bring_back(loaded, key)
            else:
                self._ledger.store.put(key, b"")
        return len(missing)

    def _bring_back(self, loaded: Loaded, key: str) -> None:
        """Write the entry of a batch that has none, and not in the past: nobody looks there."""
        if self._ledger.store.list(key):
            return  # it has been written since the index was read
        facts = self._ledger.facts()
        minute = max(loaded.batch.due, minute_of(facts.now))
        self._ledger.commit(loaded, index.moved(loaded.batch, minute, facts.tail), facts)

    def _tidy_locks(self, now: datetime, report: SweepReport) -> None:
        """Delete what workers left behind that died while they tried the store."""
        old = [
            listed.key
            for listed in walk(self._ledger.store, CHECK_PREFIX)
            if now - listed.modified > FORGET_WORKER
        ]
        if old:
            self._ledger.store.delete(old)
            report.tidied += len(old)

    def _forget(self, lapsed: list[WorkerRecord], now: datetime, report: SweepReport) -> None:
        """Delete the records of workers that are long dead and whose tasks have been taken back."""
        for record in lapsed:
            if now - record.lease_expires_at > FORGET_WORKER:
                self._ledger.workers.forget(record.id)
                report.tidied += 1


def _chunks(items: Iterable[_Found], size: int) -> Iterator[list[_Found]]:
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk
