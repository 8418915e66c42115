"""Changing many tasks by id: one write for each batch, and several batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from attrs import define, evolve, field, frozen

from buquet.client import bulk, submit
from buquet.client.submit import SubmitOptions
from buquet.core import keys, transitions
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts
from buquet.errors import (
    BuquetError,
    CannotResubmit,
    Contention,
    InvalidTransition,
    StoreError,
    TaskNotFound,
)
from buquet.ledger.ledger import Ledger

AT_A_TIME = 8
"""How many batches are changed at a time."""

Move = Callable[[Task, Facts], Task]


@frozen(kw_only=True)
class ChangeReport:
    """What became of many tasks that were to be changed."""

    changed: tuple[Task, ...] = ()
    """Those that were changed, as they are now, or the new tasks of `resubmit_many`; in the order
    in which their ids were given."""
    errors: Mapping[str, BuquetError] = field(factory=dict)
    """Why each of the others was not, by its id. After an error of the store itself, what had not
    begun was not tried, and has that error too."""


def change_many(
    ledger: Ledger, task_ids: Iterable[str], move: Move, *, by: str | None, wake: bool = False
) -> ChangeReport:
    """Make the same change to many tasks."""

    def act(batch_id: str, wanted: Sequence[str]) -> _Results:
        refused: dict[str, BuquetError] = {}

        def edit(batch: Batch, facts: Facts) -> Batch:
            refused.clear()
            mine = evolve(facts, by=by or facts.by)

            def change(task: Task) -> Task:
                try:
                    return move(task, mine)
                except InvalidTransition as error:
                    refused[task.id] = error
                    return task

            return transitions.change_chosen(batch, wanted, mine, change, wake=wake)

        batch = ledger.change(batch_id, edit).batch
        return _found(batch, wanted) | refused

    return _for_each_batch(task_ids, act)


def resubmit_many(
    ledger: Ledger, task_ids: Iterable[str], options: SubmitOptions, *, batch_size: int
) -> ChangeReport:
    """Submit new tasks like ones that have ended; those of the same options share a batch."""
    old = _for_each_batch(task_ids, lambda batch_id, wanted: _read(ledger, batch_id, wanted))
    units = list(_units(old.changed, options, batch_size))

    def act(unit: _Unit) -> _Results:
        return dict(zip(unit.old_ids, bulk.store(ledger, unit.items, unit.options), strict=True))

    new = _fan_out([(unit.old_ids, partial(act, unit)) for unit in units])
    return _report([task.id for task in old.changed], {**old.errors, **new})


_Results = dict[str, Task | BuquetError]


def _read(ledger: Ledger, batch_id: str, wanted: Sequence[str]) -> _Results:
    loaded = ledger.load(batch_id)
    found = _found(loaded.batch if loaded else None, wanted)
    return {
        task_id: CannotResubmit(task_id, each.status, "It will still run.")
        if isinstance(each, Task) and not each.status.is_final
        else each
        for task_id, each in found.items()
    }


def _found(batch: Batch | None, wanted: Sequence[str]) -> _Results:
    tasks = {task.id: task for task in batch.tasks} if batch else {}
    return {task_id: tasks.get(task_id) or TaskNotFound(task_id) for task_id in wanted}


@frozen
class _Unit:
    """New tasks that are stored together."""

    old_ids: list[str]
    items: list[submit.Item]
    options: SubmitOptions


def _units(old: Sequence[Task], options: SubmitOptions, batch_size: int) -> Iterator[_Unit]:
    alike: dict[str, tuple[SubmitOptions, list[submit.Item]]] = {}
    for number, task in enumerate(old):
        merged: SubmitOptions = {**submit.options_of(task), **options}
        _, items = alike.setdefault(repr(merged), (merged, []))
        items.append(submit.item(number, task.task_type, task.input))
    for merged, items in alike.values():
        for group in submit.groups(items, batch_size):
            yield _Unit([old[item.number].id for item in group], group, merged)


# --- several at a time


def _for_each_batch(
    task_ids: Iterable[str], act: Callable[[str, Sequence[str]], _Results]
) -> ChangeReport:
    """Call a function for each batch that has some of the tasks."""
    results: _Results = {}
    by_batch: dict[str, list[str]] = {}
    given = (task_ids,) if isinstance(task_ids, str) else task_ids
    order = list(dict.fromkeys(str(task_id).strip().lower() for task_id in given))
    for task_id in order:
        if keys.is_task_id(task_id):
            by_batch.setdefault(keys.batch_id_of_task(task_id), []).append(task_id)
        else:
            results[task_id] = TaskNotFound(task_id)
    calls = [(wanted, partial(act, batch_id, wanted)) for batch_id, wanted in by_batch.items()]
    return _report(order, results | _fan_out(calls))


def _report(order: Iterable[str], results: _Results) -> ChangeReport:
    found = [results[task_id] for task_id in order]
    return ChangeReport(
        changed=tuple(each for each in found if isinstance(each, Task)),
        errors={
            task_id: each for task_id, each in results.items() if isinstance(each, BuquetError)
        },
    )


def _fan_out(calls: Sequence[tuple[Sequence[str], Callable[[], _Results]]]) -> _Results:
    """Make calls, each for some ids, several at a time; whatever is raised, begin no more."""
    outage = _Outage()
    with ThreadPoolExecutor(AT_A_TIME, "buquet-many") as pool:
        futures = [pool.submit(outage.guarded, ids, call) for ids, call in calls]
        try:
            return {
                task_id: each for future in futures for task_id, each in future.result().items()
            }
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@define
class _Outage:
    """Lets calls through until one finds that the store can't be used."""

    error: BuquetError | None = None

    def guarded(self, ids: Sequence[str], call: Callable[[], _Results]) -> _Results:
        """Make a call; an error of buquet is the result for all its ids."""
        if self.error is not None:
            return dict.fromkeys(ids, self.error)
        try:
            return call()
        except TaskNotFound:
            return {task_id: TaskNotFound(task_id) for task_id in ids}
        except BuquetError as error:
            if isinstance(error, StoreError) and not isinstance(error, Contention):
                self.error = error
            return dict.fromkeys(ids, error)
