"""Changing many tasks by id: one write for all of a batch, and several batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from buquet.client import bulk, submit
from buquet.client.fan_out import act_on_each
from buquet.client.submit import SubmitOptions
from buquet.core import keys, transitions
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts, Move
from buquet.errors import (
    BuquetError,
    CannotResubmit,
    Contention,
    InvalidTransition,
    StoreError,
    TaskNotFound,
)
from buquet.ledger.ledger import OF_ONE_BATCH, Ledger

AT_A_TIME = 8
"""How many batches are changed at a time."""

Choice = tuple[str, Sequence[str] | None]
"""A batch, and the ids of the tasks in it that are meant; None for all that have not ended."""


@frozen(kw_only=True)
class ChangeReport:
    """What became of many tasks that were to be changed."""

    changed: tuple[Task, ...] = ()
    """Those that were changed, as they are now, or the new tasks of `resubmit_many`; in the order
    in which their ids were given."""
    errors: Mapping[str, BuquetError] = field(factory=dict)
    """Why each of the others was not, by its id. After an error of the store itself, what had not
    begun was not tried, and has that error too."""


@frozen(kw_only=True)
class BatchChange:
    """What became of the chosen tasks of one batch."""

    batch_id: str
    tasks: tuple[Task, ...] = ()
    """As they are now, whether changed or not."""
    refused: Mapping[str, InvalidTransition] = field(factory=dict)
    missing: tuple[str, ...] = ()
    error: BuquetError | None = None
    """Why the batch could not be read or changed."""


@frozen
class BulkChange:
    """Makes a move with the chosen tasks of one batch after another."""

    ledger: Ledger
    move: Move
    by: str | None = None
    wake: bool = False
    """Whether pollers must read the batches at once."""
    is_dry: bool = False
    """Whether to change nothing, and only report what would be."""

    def __call__(self, choice: Choice) -> BatchChange:
        """BulkChange one batch.

        Raises:
            StoreError: if the store can't be used.
        """
        batch_id, task_ids = choice
        refused: dict[str, InvalidTransition] = {}
        chosen: set[str] = set()

        def edit(batch: Batch, facts: Facts) -> Batch:
            refused.clear()
            chosen.clear()
            chosen.update(task_ids or (task.id for task in batch.unfinished))
            mine = evolve(facts, by=self.by or facts.by)

            def moved(task: Task) -> Task:
                try:
                    return self.move(task, mine) if task.id in chosen else task
                except InvalidTransition as error:
                    refused[task.id] = error
                    return task

            return transitions.change_each(batch, mine, moved, wake=self.wake)

        try:
            batch = self._try_out(batch_id, edit) if self.is_dry else self._do(batch_id, edit)
        except (Contention, *OF_ONE_BATCH) as error:
            return BatchChange(batch_id=batch_id, error=error)
        tasks = tuple(task for task in batch.tasks if task.id in chosen) if batch else ()
        there = {task.id for task in tasks}
        missing = tuple(task_id for task_id in task_ids or () if task_id not in there)
        return BatchChange(batch_id=batch_id, tasks=tasks, refused=refused, missing=missing)

    def _do(self, batch_id: str, edit: Callable[[Batch, Facts], Batch]) -> Batch | None:
        try:
            return self.ledger.change(batch_id, edit).batch
        except TaskNotFound:
            return None

    def _try_out(self, batch_id: str, edit: Callable[[Batch, Facts], Batch]) -> Batch | None:
        loaded = self.ledger.load(batch_id)
        if loaded is None:
            return None
        facts = self.ledger.facts()
        return edit(self.ledger.settle(loaded.batch, facts), facts)


def by_batch(task_ids: Iterable[str]) -> tuple[list[Choice], list[str]]:
    """Sort ids by the batch of their task; return with them those that are no ids."""
    wanted: dict[str, list[str]] = {}
    unknown: list[str] = []
    for task_id in _in_order(task_ids):
        if keys.is_task_id(task_id):
            wanted.setdefault(keys.batch_id_of_task(task_id), []).append(task_id)
        else:
            unknown.append(task_id)
    return list(wanted.items()), unknown


def change_all(change: BulkChange, choices: Sequence[Choice], done: list[BatchChange]) -> None:
    """BulkChange batches, several at a time, until one finds that the store can't be used.

    Whatever breaks it off says in a note how many tasks had been changed by then.

    Args:
        change: what to do.
        choices: to which batches.
        done: is filled with what became of them, also if something is raised.
    """
    try:
        act_on_each(change, choices, done, threads=AT_A_TIME, name="change")
    except BaseException as error:
        tasks = sum(len(each.tasks) - len(each.refused) for each in done)
        error.add_note(f"{tasks:,} tasks in {len(done):,} of {len(choices):,} batches were done.")
        raise


def change_many(
    ledger: Ledger, task_ids: Iterable[str], move: Move, *, by: str | None, wake: bool = False
) -> ChangeReport:
    """Make the same change to many tasks."""
    ids = _in_order(task_ids)
    return _report(ids, _results(BulkChange(ledger, move, by, wake), ids))


def resubmit_many(
    ledger: Ledger, task_ids: Iterable[str], options: SubmitOptions, *, batch_size: int
) -> ChangeReport:
    """Submit new tasks like ones that have ended; those of the same options share a batch."""
    ids = _in_order(task_ids)
    results = _results(BulkChange(ledger, _only_ended, is_dry=True), ids)
    old = [task for task in results.values() if isinstance(task, Task)]
    units = list(_units(ledger, old, options, batch_size))
    stored: list[_Results] = []
    problem: BuquetError = StoreError("It was not tried.")
    try:
        act_on_each(_Unit.store, units, stored, threads=AT_A_TIME, name="submit")
    except StoreError as error:
        problem = error
    results |= dict.fromkeys((task.id for task in old), problem)
    for each in stored:
        results |= each
    return _report(ids, results)


_Results = dict[str, Task | BuquetError]


def _in_order(task_ids: Iterable[str]) -> list[str]:
    given = (task_ids,) if isinstance(task_ids, str) else task_ids
    return list(dict.fromkeys(str(task_id).strip().lower() for task_id in given))


def _results(change: BulkChange, ids: Sequence[str]) -> _Results:
    """Make a change; return what became of each task."""
    choices, unknown = by_batch(ids)
    done: list[BatchChange] = []
    results: _Results = {task_id: TaskNotFound(task_id) for task_id in unknown}
    try:
        change_all(change, choices, done)
    except StoreError as error:
        results |= {task_id: error for _, chosen in choices for task_id in chosen or ()}
    wanted = dict(choices)
    for each in done:
        if each.error is not None:
            results |= dict.fromkeys(wanted[each.batch_id] or (), each.error)
        results |= {task.id: task for task in each.tasks} | dict(each.refused)
        results |= {task_id: TaskNotFound(task_id) for task_id in each.missing}
    return results


def _report(ids: Sequence[str], results: _Results) -> ChangeReport:
    found = [(task_id, results[task_id]) for task_id in ids]
    return ChangeReport(
        changed=tuple(each for _, each in found if isinstance(each, Task)),
        errors={task_id: each for task_id, each in found if isinstance(each, BuquetError)},
    )


def _only_ended(task: Task, _: Facts) -> Task:
    if not task.status.is_final:
        raise CannotResubmit(task.id, task.status, "It will still run.")
    return task


@frozen
class _Unit:
    """New tasks that are stored together."""

    ledger: Ledger
    old_ids: list[str]
    items: list[submit.Item]
    options: SubmitOptions

    def store(self) -> _Results:
        """Store them; return each by the id of the old one."""
        new = bulk.store(self.ledger, self.items, self.options)
        return dict(zip(self.old_ids, new, strict=True))


def _units(
    ledger: Ledger, old: Sequence[Task], options: SubmitOptions, batch_size: int
) -> Iterator[_Unit]:
    alike: dict[str, tuple[SubmitOptions, list[submit.Item]]] = {}
    for number, task in enumerate(old):
        merged = submit.like(task, options)
        _, items = alike.setdefault(repr(merged), (merged, []))
        items.append(submit.item(number, task.task_type, task.input))
    for merged, items in alike.values():
        for group in submit.groups(items, batch_size):
            yield _Unit(ledger, [old[item.number].id for item in group], group, merged)
