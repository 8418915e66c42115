"""How many tasks of a batch a worker claims, and which: as many as room and limits permit.

A task that was once with a dying worker is claimed only when a thread is free for it, so that its
next death takes few with it. One that was twice has no other begin beside it: its third death takes
only what was running already.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, frozen

from buquet.core.model import Batch, Task
from buquet.worker.dispatcher import Dispatcher, Room
from buquet.worker.jobs import Claim
from buquet.worker.pacer import Pacer
from buquet.worker.registry import Registry


@frozen(kw_only=True)
class Permit:
    """The tasks that may be claimed, and what was set aside for them."""

    chosen: tuple[Task, ...]
    room: Room
    limited: int
    """How many the limit of their type has set aside."""
    is_limited: bool
    """Whether there are tasks that could be claimed, but for the limit of their type."""
    is_blocked: bool
    """Whether there are tasks that could be claimed, but for their past."""
    is_careful: bool
    """Whether all that could be claimed needs free threads."""


@define(eq=False)
class Admission:
    """Gives permits to claim."""

    _dispatcher: Dispatcher
    """Knows how many threads are free."""
    _registry: Registry
    """Knows how long tasks take, and their limits."""
    _pacer: Pacer
    """Polls when a limit opens again."""
    _threads: int

    def permit(self, batch: Batch, tasks: Sequence[Task], *, ending: int) -> Permit:
        """Choose tasks to claim; each permit is followed by one `hand_over`.

        Args:
            batch: the batch.
            tasks: those in it that could be claimed.
            ending: how many claims the same write ends.
        """
        limit = self._registry.limits.get(batch.task_type)
        allowed = limit.take(len(tasks), ending=ending) if limit else len(tasks)
        plain, careful, alone = _by_past(tasks[:allowed])
        room = self._dispatcher.reserve(
            Room(len(plain), len(careful), len(alone)),
            ahead=self._registry.ahead(batch.task_type, self._threads),
            priority=batch.priority,
        )
        chosen = (*plain[: room.plain], *careful[: room.careful], *alone[: room.alone])
        is_suspect = bool(alone) and not (plain or careful)
        return Permit(
            chosen=chosen,
            room=room,
            limited=allowed if limit else 0,
            is_careful=bool(careful) and not plain,
            is_limited=bool(tasks) and allowed == 0,
            is_blocked=is_suspect and not chosen,
        )

    def hand_over(self, batch: Batch, permit: Permit, claimed: Sequence[Claim]) -> Sequence[Claim]:
        """Hand claimed tasks to the threads, and give back what was set aside in vain.

        Returns:
            Those for which no thread will come, because the worker is stopping.
        """
        limit = self._registry.limits.get(batch.task_type)
        if limit is not None:
            limit.refund(permit.limited - len(claimed))
        return self._dispatcher.assign(claimed, permit.room)

    def end(self, batch: Batch, count: int) -> None:
        """Say that claims have ended."""
        limit = self._registry.limits.get(batch.task_type)
        if limit is None or count == 0:
            return
        was_reached = limit.opens_in() > 0
        limit.end(count)
        if was_reached:
            self._dispatcher.reopen()
            self._pacer.relax()


def _by_past(tasks: Sequence[Task]) -> tuple[list[Task], list[Task], list[Task]]:
    """Sort tasks by how careful one must be: plain, careful, alone."""
    alone = [task for task in tasks if task.lost_count > 1]
    careful = [task for task in tasks if task.lost_count <= 1 and _needs_care(task)]
    plain = [task for task in tasks if not _needs_care(task)]
    return plain, careful, alone


def _needs_care(task: Task) -> bool:
    """Return whether a task is not to be lost with others: for it, or by it."""
    return task.lost_count > 0 or task.max_retries == 0
