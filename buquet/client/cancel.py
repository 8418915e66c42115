"""Cancelling many tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from buquet.client.many import BatchChange, BulkChange, Choice, by_batch, change_all
from buquet.core import keys, transitions
from buquet.core.model import TaskStatus
from buquet.ledger.ledger import Ledger
from buquet.store import walk


@frozen(kw_only=True)
class CancelReport:
    """What became of many tasks that were to be cancelled; all but `errors` are their ids."""

    cancelled: tuple[str, ...] = ()
    """Are cancelled now; those that had been before too."""
    requested: tuple[str, ...] = ()
    """Are running: their handlers have been asked to give in."""
    ended: tuple[str, ...] = ()
    """Had ended otherwise, and were left alone."""
    not_found: tuple[str, ...] = ()
    """Do not exist."""
    errors: Mapping[str, str] = field(factory=dict)
    """What is wrong with batches that could not be read or changed, by batch id."""


def cancel_many(ledger: Ledger, task_ids: Iterable[str], *, by: str | None) -> CancelReport:
    """Cancel tasks by their ids.

    Raises:
        StoreError: if the store can't be used; some may have been cancelled by then.
    """
    choices, unknown = by_batch(task_ids)
    return _cancel(BulkChange(ledger, transitions.cancel, by), choices, unknown)


def cancel_by_type(ledger: Ledger, task_type: str, *, by: str | None, is_dry: bool) -> CancelReport:
    """Cancel all unfinished tasks of a type; their batches are found by the keys of the index.

    Raises:
        InvalidOptions: if it is no task type.
        StoreError: if the store can't be used; some may have been cancelled by then.
    """
    known_type = keys.check_task_type(task_type)
    entries = (keys.parse_entry(each.key) for each in walk(ledger.store, keys.READY))
    batch_ids = dict.fromkeys(
        entry.batch_id for entry in entries if entry and entry.task_type == known_type
    )
    change = BulkChange(ledger, transitions.cancel, by, is_dry=is_dry)
    return _cancel(change, [(batch_id, None) for batch_id in batch_ids], ())


def _cancel(change: BulkChange, choices: Sequence[Choice], unknown: Sequence[str]) -> CancelReport:
    done: list[BatchChange] = []
    change_all(change, choices, done)
    return _report(done, unknown)


def _report(changes: Sequence[BatchChange], unknown: Sequence[str]) -> CancelReport:
    """Sort tasks by what they are after the act."""
    tasks = [task for each in changes for task in each.tasks]
    ended = [task for task in tasks if task.status.is_final]
    return CancelReport(
        cancelled=tuple(task.id for task in ended if task.status is TaskStatus.CANCELLED),
        requested=tuple(task.id for task in tasks if not task.status.is_final),
        ended=tuple(task.id for task in ended if task.status is not TaskStatus.CANCELLED),
        not_found=(*unknown, *(task_id for each in changes for task_id in each.missing)),
        errors={each.batch_id: str(each.error) for each in changes if each.error is not None},
    )
