"""Changing many tasks: one write for all of a batch, and several batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from buquet.client.fan_out import act_on_each
from buquet.core import keys, transitions
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts
from buquet.errors import (
    Contention,
    InvalidTransition,
    TaskNotFound,
)
from buquet.ledger.ledger import OF_ONE_BATCH, Ledger

AT_A_TIME = 8
"""How many batches are changed at a time."""

Move = Callable[[Task, Facts], Task]
Choice = tuple[str, Sequence[str] | None]
"""A batch, and the tasks in it that are meant; None for all that have not ended."""


@frozen(kw_only=True)
class ChangeReport:
    """What became of many tasks that were to be changed."""

    changed: tuple[Task, ...] = ()
    """As they are now."""
    refused: Mapping[str, str] = field(factory=dict)
    """Why others could not be changed, by id."""
    not_found: tuple[str, ...] = ()
    """Ids of which there is no task."""
    errors: Mapping[str, str] = field(factory=dict)
    """What is wrong with batches that could not be read or changed, by batch id."""


@frozen(kw_only=True)
class BatchChange:
    """What became of the chosen tasks of one batch."""

    batch_id: str
    tasks: tuple[Task, ...] = ()
    """As they are now, whether changed or not."""
    refused: Mapping[str, str] = field(factory=dict)
    missing: tuple[str, ...] = ()
    error: str | None = None


@frozen
class Change:
    """Makes a move with the chosen tasks of one batch after another."""

    ledger: Ledger
    move: Move
    by: str | None
    wake: bool = False
    """Whether pollers must look at the batches at once."""
    is_dry: bool = False
    """Whether to change nothing, and only tell what would be."""

    def __call__(self, choice: Choice) -> BatchChange:
        """Change one batch."""
        batch_id, task_ids = choice
        refused: dict[str, str] = {}
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
                    refused[task.id] = str(error)
                    return task

            return transitions.change_each(batch, mine, moved, wake=self.wake)

        try:
            batch = self._try_out(batch_id, edit) if self.is_dry else self._do(batch_id, edit)
        except (Contention, *OF_ONE_BATCH) as error:
            return BatchChange(batch_id=batch_id, error=str(error))
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


def change_all(change: Change, choices: Sequence[Choice]) -> list[BatchChange]:
    """Change batches, several at a time, until one finds that the store can't be used.

    Whatever breaks it off says in a note how many tasks had been changed by then.
    """
    done: list[BatchChange] = []
    try:
        act_on_each(change, choices, done, threads=AT_A_TIME, name="change")
    except BaseException as error:
        tasks = sum(len(each.tasks) - len(each.refused) for each in done)
        error.add_note(f"{tasks:,} tasks in {len(done):,} of {len(choices):,} batches were done.")
        raise
    return done


def by_batch(task_ids: Iterable[str]) -> tuple[list[Choice], list[str]]:
    """Sort ids by the batch of their task; return with them those that are no ids."""
    wanted: dict[str, list[str]] = {}
    unknown: list[str] = []
    for task_id in dict.fromkeys((task_ids,) if isinstance(task_ids, str) else task_ids):
        try:
            known_id = keys.check_task_id(task_id)
        except TaskNotFound:
            unknown.append(task_id)
        else:
            wanted.setdefault(keys.batch_id_of_task(known_id), []).append(known_id)
    return list(wanted.items()), unknown


def change_many(change: Change, task_ids: Iterable[str]) -> ChangeReport:
    """Make a move with tasks, by their ids.

    Raises:
        StoreError: if the store can't be used; some may have been changed by then.
    """
    choices, unknown = by_batch(task_ids)
    done = change_all(change, choices)
    return ChangeReport(
        changed=tuple(task for each in done for task in each.tasks if task.id not in each.refused),
        refused={task_id: why for each in done for task_id, why in each.refused.items()},
        not_found=(*unknown, *(task_id for each in done for task_id in each.missing)),
        errors={each.batch_id: each.error for each in done if each.error is not None},
    )


def read_many(ledger: Ledger, task_ids: Iterable[str]) -> ChangeReport:
    """Read tasks by their ids, with one request for all of a batch."""
    return change_many(Change(ledger, lambda task, _: task, None, is_dry=True), task_ids)
