"""Finding tasks: those that changed last first, lazily, and by the index wherever it serves."""

from __future__ import annotations

import heapq
import logging
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import chain, groupby, islice

from attrs import frozen

from buquet.core import keys
from buquet.core.index import INDEXED_STATUSES, STRAY_AGE
from buquet.core.keys import EndedKey, minute_of
from buquet.core.model import Batch, Task, TaskStatus
from buquet.errors import StoreAccessDenied
from buquet.ledger.ledger import OF_ONE_BATCH, Ledger, Loaded
from buquet.store import Listed, walk

logger = logging.getLogger(__name__)

SORTED_TOGETHER = 50
"""How many ended entries of a minute are read and put into order before the first is given out."""

KEPT_BATCHES = 64
"""How many batches are kept at hand while the index is walked, since it may lead to one again."""


def last_changed_first(
    ledger: Ledger, statuses: Collection[TaskStatus], task_type: str | None
) -> Iterator[Task]:
    """Walk the tasks of some statuses, and of a type; None for any.

    Failed, cancelled and expired ones come in the order in which they ended, by their index (where
    more than `SORTED_TOGETHER` batches have some in the same minute, to the minute). Others come in
    the order in which their batches last changed.
    """
    unfinished = [each for each in statuses if not each.is_final]
    indexed = [each for each in statuses if each in INDEXED_STATUSES]
    if len(unfinished) + len(indexed) < len(statuses):
        found = _tasks(ledger, _all_batches(ledger))
    else:
        ended = (_ended(ledger, status, since=0) for status in sorted(indexed))
        found = chain(
            _tasks(ledger, _unfinished_batches(ledger, task_type)) if unfinished else (),
            heapq.merge(*ended, key=_ended_at, reverse=True),
        )
    for task in found:
        if task.status in statuses and task_type in (None, task.task_type):
            yield task


def count_ended(ledger: Ledger, since: datetime) -> dict[TaskStatus, dict[str, int]]:
    """Count failed, cancelled and expired tasks that ended since a time, by status and type."""
    return {
        status: dict(
            Counter(task.task_type for task in _ended(ledger, status, since=minute_of(since)))
        )
        for status in INDEXED_STATUSES
    }


def _ended(ledger: Ledger, status: TaskStatus, *, since: int) -> Iterator[Task]:
    """Walk what has ended in a status, newest first, down to a minute."""
    at_hand: OrderedDict[str, _Read] = OrderedDict()
    for _, hints in groupby(_hints(ledger, status, since), key=lambda hint: hint.key.minute):
        # The keys of a minute are in no order of time: so many are put into order together.
        while some := list(islice(hints, SORTED_TOGETHER)):
            found = [task for hint in some for task in _tasks_of(ledger, hint, at_hand)]
            yield from sorted(found, key=_ended_at, reverse=True)


@frozen
class _Hint:
    """An ended entry as it was found."""

    key: EndedKey
    modified: datetime


def _hints(ledger: Ledger, status: TaskStatus, since: int) -> Iterator[_Hint]:
    for listed in walk(ledger.store, keys.ended_prefix(status)):
        key = keys.parse_ended(listed.key)
        if key is None:
            continue
        if key.minute < since:
            return
        yield _Hint(key, listed.modified)


@frozen
class _Read:
    """A batch as it was read; None if there is none."""

    batch: Batch | None
    since: datetime
    """When the read began: an entry that was young then may have become wanted since."""


def _tasks_of(ledger: Ledger, hint: _Hint, at_hand: OrderedDict[str, _Read]) -> list[Task]:
    """Return the tasks that an ended entry stands for; delete an old one that stands for none."""
    key = hint.key
    if key.batch_id not in at_hand:
        since = ledger.now()
        try:
            loaded = ledger.load(key.batch_id)
        except OF_ONE_BATCH as error:
            ledger.pass_over(key.batch_id, error)
            return []
        at_hand[key.batch_id] = _Read(loaded.batch if loaded else None, since)
        if len(at_hand) > KEPT_BATCHES:
            at_hand.popitem(last=False)
    read = at_hand[key.batch_id]
    tasks = [
        task
        for task in (read.batch.tasks if read.batch else ())
        if task.status is key.status and minute_of(_ended_at(task)) == key.minute
    ]
    if not tasks and read.since - hint.modified > STRAY_AGE:
        _tidy(ledger, key)
    return tasks


def _tidy(ledger: Ledger, key: EndedKey) -> None:
    try:
        ledger.store.delete([key.key])
    except StoreAccessDenied as error:  # without the right to delete it is left to others
        logger.debug("The key %s, which leads nowhere, is left: %s", key.key, error)


def _ended_at(task: Task) -> datetime:
    return task.ended_at or task.updated_at


def _tasks(ledger: Ledger, batch_ids: Iterable[str]) -> Iterator[Task]:
    for batch_id in batch_ids:
        loaded = _load(ledger, batch_id)
        if loaded is not None:
            yield from reversed(loaded.batch.tasks)


def _unfinished_batches(ledger: Ledger, task_type: str | None) -> Iterator[str]:
    seen: set[str] = set()
    for listed in _newest(walk(ledger.store, keys.READY)):
        entry = keys.parse_entry(listed.key)
        if entry is None or entry.batch_id in seen or task_type not in (None, entry.task_type):
            continue
        seen.add(entry.batch_id)
        yield entry.batch_id


def _all_batches(ledger: Ledger) -> Iterator[str]:
    for listed in _newest(walk(ledger.store, keys.BATCHES)):
        batch_id = keys.batch_id_of(listed.key)
        if batch_id is not None:
            yield batch_id


def _newest(found: Iterable[Listed]) -> list[Listed]:
    return sorted(found, key=lambda listed: listed.modified, reverse=True)


def _load(ledger: Ledger, batch_id: str) -> Loaded | None:
    try:
        return ledger.load(batch_id)
    except OF_ONE_BATCH as error:
        ledger.pass_over(batch_id, error)
        return None
