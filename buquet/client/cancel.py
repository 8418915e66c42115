"""Cancelling many tasks: one write for all of a batch, and several batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import evolve, field, frozen

from buquet.core import keys, transitions
from buquet.core.model import Batch, Task, TaskStatus
from buquet.core.transitions import Facts
from buquet.errors import BuquetError, Contention, DamagedObject, TaskNotFound
from buquet.ledger.ledger import Ledger
from buquet.store import walk

AT_A_TIME = 8
"""How many batches are changed at a time."""

Edit = Callable[[Batch, Facts], Batch]


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
        StoreError: if the store can't be reached; some may have been cancelled by then.
    """
    wanted: dict[str, list[str]] = {}
    unknown: list[str] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            known_id = keys.check_task_id(task_id)
        except TaskNotFound:
            unknown.append(task_id)
        else:
            wanted.setdefault(keys.batch_id_of_task(known_id), []).append(known_id)
    found = _each(_Act(ledger, by), list(wanted.items()))
    return _merged([CancelReport(not_found=tuple(unknown)), *found])


def cancel_by_type(ledger: Ledger, task_type: str, *, by: str | None, is_dry: bool) -> CancelReport:
    """Cancel all unfinished tasks of a type; their batches are found by the keys of the index.

    Raises:
        InvalidOptions: if it is no task type.
        StoreError: if the store can't be reached; some may have been cancelled by then.
    """
    known_type = keys.check_task_type(task_type)
    entries = (keys.parse_entry(each.key) for each in walk(ledger.store, keys.READY))
    batch_ids = dict.fromkeys(
        entry.batch_id for entry in entries if entry and entry.task_type == known_type
    )
    act = _Act(ledger, by, is_dry=is_dry)
    return _merged(_each(act, [(batch_id, None) for batch_id in batch_ids]))


@frozen
class _Act:
    """Cancels in one batch after another."""

    ledger: Ledger
    by: str | None
    is_dry: bool = False
    """Whether to change nothing, and only tell what would be."""

    def __call__(self, batch_id: str, task_ids: Sequence[str] | None) -> CancelReport:
        """Cancel the tasks with these ids, or all that have not ended."""
        chosen = set(task_ids or ())

        def edit(batch: Batch, facts: Facts) -> Batch:
            if task_ids is None:
                chosen.clear()
                chosen.update(task.id for task in batch.unfinished)
            mine = evolve(facts, by=self.by or facts.by)
            return transitions.change_tasks(
                batch,
                mine,
                lambda task: transitions.cancel(task, mine) if task.id in chosen else task,
            )

        try:
            batch = self._try_out(batch_id, edit) if self.is_dry else self._do(batch_id, edit)
        except (Contention, DamagedObject) as error:
            return CancelReport(errors={batch_id: str(error)})
        tasks = [task for task in batch.tasks if task.id in chosen] if batch else []
        there = {task.id for task in tasks}
        return _report(tasks, [task_id for task_id in task_ids or () if task_id not in there])

    def _do(self, batch_id: str, edit: Edit) -> Batch | None:
        try:
            return self.ledger.change(batch_id, edit).batch
        except TaskNotFound:
            return None

    def _try_out(self, batch_id: str, edit: Edit) -> Batch | None:
        loaded = self.ledger.load(batch_id)
        if loaded is None:
            return None
        facts = self.ledger.facts()
        return edit(self.ledger.settle(loaded.batch, facts), facts)


def _report(tasks: Sequence[Task], missing: Sequence[str]) -> CancelReport:
    """Sort tasks by what they are after the act."""
    ended = [task for task in tasks if task.status.is_final]
    return CancelReport(
        cancelled=tuple(task.id for task in ended if task.status is TaskStatus.CANCELLED),
        requested=tuple(task.id for task in tasks if not task.status.is_final),
        ended=tuple(task.id for task in ended if task.status is not TaskStatus.CANCELLED),
        not_found=tuple(missing),
    )


def _each(act: _Act, batches: Sequence[tuple[str, Sequence[str] | None]]) -> list[CancelReport]:
    """Act on batches, several at a time, until one finds that the store can't be reached."""
    with ThreadPoolExecutor(AT_A_TIME, "buquet-cancel") as pool:
        futures = [pool.submit(act, batch_id, task_ids) for batch_id, task_ids in batches]
        try:
            return [future.result() for future in futures]
        except BuquetError:
            pool.shutdown(cancel_futures=True)
            raise


def _merged(reports: Sequence[CancelReport]) -> CancelReport:
    return CancelReport(
        cancelled=tuple(task_id for each in reports for task_id in each.cancelled),
        requested=tuple(task_id for each in reports for task_id in each.requested),
        ended=tuple(task_id for each in reports for task_id in each.ended),
        not_found=tuple(task_id for each in reports for task_id in each.not_found),
        errors={batch_id: text for each in reports for batch_id, text in each.errors.items()},
    )
