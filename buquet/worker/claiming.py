"""How many tasks of a batch a worker claims, and which: as many as it has room and leave for.

A task that was once with a dying worker is claimed only when a thread is free for it, so that its
next death takes few with it. One that was twice has no other begin beside it: its third death takes
only what was running already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from buquet.core.model import Batch, Task
from buquet.worker.agenda import Agenda, Assignment, Granted, Wanted
from buquet.worker.registry import Registry

NOTHING = Granted()


@frozen(kw_only=True)
class Grant:
    """The tasks that may be claimed, and what was set aside for them."""

    chosen: tuple[Task, ...] = ()
    room: Granted = NOTHING
    leave: int = 0
    """How many its type's limit was asked for."""
    is_blocked: bool = False
    """Whether there are tasks that could be claimed, but for a limit or for their past."""
    is_careful: bool = False
    """Whether all that could be claimed needs free threads."""


class Claiming:
    """Grants claims to the holdings of a worker.

    Args:
        agenda: knows how many threads are free.
        registry: knows how long tasks take, and their limits.
        threads: how many there are.
        on_opened: is called when a limit that was reached opens again.
    """

    def __init__(
        self, agenda: Agenda, registry: Registry, threads: int, on_opened: Callable[[], None]
    ) -> None:
        self._agenda = agenda
        self._registry = registry
        self._threads = threads
        self._on_opened = on_opened

    def grant(self, batch: Batch, tasks: Sequence[Task], *, ending: int) -> Grant:
        """Choose tasks to claim; each grant is followed by one `settle`.

        Args:
            batch: the batch.
            tasks: those in it that could be claimed.
            ending: how many claims the same write ends.
        """
        limit = self._registry.limits.get(batch.task_type)
        leave = limit.take(len(tasks), ending=ending) if limit else len(tasks)
        allowed = tasks[:leave]
        alone = [task for task in allowed if task.lost_count > 1]
        careful = [task for task in allowed if task.lost_count <= 1 and _needs_care(task)]
        plain = [task for task in allowed if not _needs_care(task)]
        room = self._agenda.reserve(
            Wanted(len(plain), len(careful), len(alone)),
            ahead=self._registry.ahead(batch.task_type, self._threads),
            priority=batch.priority,
        )
        chosen = (*plain[: room.plain], *careful[: room.careful], *alone[: room.alone])
        is_suspect = bool(alone) and not (plain or careful)
        return Grant(
            chosen=chosen,
            room=room,
            leave=leave if limit else 0,
            is_careful=bool(careful) and not plain,
            is_blocked=bool(tasks) and (leave == 0 or (is_suspect and not chosen)),
        )

    def settle(
        self, batch: Batch, grant: Grant, claimed: Sequence[Assignment]
    ) -> Sequence[Assignment]:
        """Hand claimed tasks to the threads, and give back what was set aside in vain.

        Returns:
            Those for which no thread will come: the worker has been told to stop.
        """
        limit = self._registry.limits.get(batch.task_type)
        if limit is not None:
            limit.give_back(grant.leave - len(claimed))
        return self._agenda.assign(claimed, grant.room)

    def end(self, batch: Batch, count: int) -> None:
        """Say that claims have ended."""
        limit = self._registry.limits.get(batch.task_type)
        if limit is None or count == 0:
            return
        was_reached = limit.opens_in() > 0
        limit.end(count)
        if was_reached:
            self._on_opened()


def _needs_care(task: Task) -> bool:
    """Tell whether a task is not to be lost with others: for it, or by it."""
    return task.lost_count > 0 or task.max_retries == 0
