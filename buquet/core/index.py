"""Which keys of the index a batch wants, and when its ready entry moves.

Two rules keep every unfinished task in sight (docs/protocol.md): an entry is written before the
batch that wants it and deleted after the batch that no longer does; and no key is used twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

from attrs import define, evolve

from buquet.core.keys import EndedKey, Entry, epoch_seconds_up, minute_of, start_of
from buquet.core.model import Batch, Task, TaskStatus

INDEXED_STATUSES = (TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)
"""The statuses whose tasks can be listed without reading all tasks."""

STRAY_AGE = timedelta(hours=1)
"""How old an entry must be before it is taken for a stray: far beyond any commit's time limit."""


WATERMARK_MINUTES = 6
"""No entry is written further in the past than a commit's time limit, rounded up to minutes."""


PARKED_AFTER = timedelta(minutes=5)
"""For how long all that is left of a batch has been running when its entry is moved ahead."""

PARKED_FOR = timedelta(minutes=10)
"""How far ahead it is moved."""


class Standing(Enum):
    """What an entry in the index is, seen beside its batch."""

    WANTED = "wanted"
    STALE = "stale"
    """Its batch has moved on: to be deleted."""
    EARLY = "early"
    """Somebody may be in the middle of a commit: to be left alone, unless it is old."""


def entry_of(batch: Batch) -> Entry:
    """Return the ready entry that the batch wants, or would want if it had work left."""
    return Entry(
        minute=batch.due,
        batch_id=batch.id,
        generation=batch.generation,
        tail=batch.tail,
        priority=batch.priority,
        count=batch.count,
        expires=batch.expires,
        task_type=batch.task_type,
    )


def ready_key(batch: Batch | None) -> str | None:
    """Return the key of the ready entry that the batch wants; None if it has no work left."""
    return entry_of(batch).key if batch is not None and batch.unfinished else None


def ended_keys(batch: Batch | None) -> frozenset[str]:
    """Return the keys under which the batch's failed, cancelled and expired tasks are listed."""
    if batch is None:
        return frozenset()
    return frozenset(
        EndedKey(task.status, minute_of(task.ended_at), batch.id).key
        for task in batch.tasks
        if task.status in INDEXED_STATUSES and task.ended_at is not None
    )


def entries(batch: Batch | None) -> frozenset[str]:
    """Return all keys of the index that the batch wants."""
    ready = ready_key(batch)
    return ended_keys(batch) | ({ready} if ready else set())


def to_add(old: Batch | None, new: Batch) -> tuple[str, ...]:
    """Return the keys to write before `new` takes the place of `old`."""
    return tuple(sorted(entries(new) - entries(old)))


def to_drop(old: Batch | None, new: Batch) -> tuple[str, ...]:
    """Return the keys to delete after it: never an ended one, which might be wanted again."""
    ready = ready_key(old)
    return (ready,) if ready and ready != ready_key(new) else ()


def standing(entry: Entry, batch: Batch | None) -> Standing:
    """Return what a ready entry is, by its batch."""
    if batch is None or entry.generation > batch.generation:
        return Standing.EARLY
    return Standing.WANTED if entry.key == ready_key(batch) else Standing.STALE


def with_tasks(
    batch: Batch, tasks: Sequence[Task], now: datetime, tail: str, *, wake: bool = False
) -> Batch:
    """Return the batch with its tasks in their new state, its entry moved if need be.

    The entry moves when what is left is all for later, when something is due sooner than the entry
    (which was parked), or when pollers must read it again at once: a finished batch has come back
    to life, or `wake` says so.
    """
    new = evolve(batch, tasks=tuple(tasks))
    left = new.unfinished
    if not left:
        return new
    if wake or not batch.unfinished:
        return moved(new, minute_of(now), tail)
    pending = [task.available_at for task in left if task.status is TaskStatus.PENDING]
    if not pending:
        return new
    minute = max(minute_of(min(pending)), minute_of(now))
    if minute < batch.due:
        return moved(new, minute, tail)
    if not _is_all_for_later(left, now):
        return new
    was_later = _is_all_for_later(batch.unfinished, now)
    return new if was_later and minute == batch.due else moved(new, minute, tail)


def parked(batch: Batch, now: datetime, tail: str) -> Batch | None:
    """Return the batch with its entry moved ahead, out of everyone's way; None if it is to stay.

    It is moved when all that is left has been running for long, and again before its minute comes.
    Only the worker that holds all of these tasks may write that: it sees to retries, and if it dies
    the sweeper goes by its record.
    """
    left = batch.unfinished
    if not left or any(not _has_run_for_long(task, now) for task in left):
        return None
    if batch.due > minute_of(now) + 1:
        return None  # it still lies ahead
    return moved(batch, minute_of(now + PARKED_FOR), tail)


def moved(batch: Batch, minute: int, tail: str) -> Batch:
    """Return the batch with its entry at a minute, under a key never used before."""
    left = batch.unfinished
    deadlines = [task.expires_at for task in left if task.expires_at is not None]
    return evolve(
        batch,
        due=minute,
        generation=batch.generation + 1,
        tail=tail,
        count=len(left),
        expires=max(epoch_seconds_up(min(deadlines)), 0) if deadlines else None,
    )


def next_event(batch: Batch, leases: Mapping[str, datetime]) -> datetime | None:
    """Return when the batch next has something for anybody to do; None if it has ended.

    That is: a task is due, a deadline passes, or a claim lapses (`leases` has the workers whose
    record is known).
    """
    return min((_event_of(task, leases) for task in batch.unfinished), default=None)


def next_settling(batch: Batch, leases: Mapping[str, datetime]) -> datetime | None:
    """Return when the batch next has something to settle: a deadline, or a lapsing claim."""
    moments = [
        held_until(task, leases) if task.status is TaskStatus.RUNNING else task.expires_at
        for task in batch.unfinished
    ]
    return min((moment for moment in moments if moment is not None), default=None)


def _event_of(task: Task, leases: Mapping[str, datetime]) -> datetime:
    if task.status is TaskStatus.PENDING:
        return task.available_at
    return held_until(task, leases)


def held_until(task: Task, leases: Mapping[str, datetime]) -> datetime:
    """Return until when a running task's claim holds: its own word, or its worker's later one."""
    own = task.lease_expires_at or task.updated_at
    return max(own, leases.get(task.worker_id, own)) if task.worker_id else own


def _is_all_for_later(left: Sequence[Task], now: datetime) -> bool:
    return all(task.status is TaskStatus.PENDING and task.available_at > now for task in left)


def _has_run_for_long(task: Task, now: datetime) -> bool:
    is_running = task.status is TaskStatus.RUNNING
    return is_running and task.started_at is not None and now - task.started_at >= PARKED_AFTER


# --- what the keys show without a read


NEAR = timedelta(minutes=5)
"""A deadline is near when it is no further away than this."""


@define
class Backlog:
    """The pending tasks of one type."""

    task_type: str
    ready: int = 0
    """Due now."""
    scheduled: int = 0
    """For later."""
    near_expiration: int = 0
    """With a deadline within the next five minutes; in an estimate, all of a batch with one."""
    oldest_due_at: datetime | None = None
    """When the oldest of the ready ones was due; in an estimate, to the minute."""

    def count(self, entry: Entry, now: datetime, *, not_pending: int = 0) -> None:
        """Take one entry into account: an estimate.

        An entry counts the tasks that were unfinished when it was written. Some may have ended
        since, or be running; `not_pending` says of how many that is known.
        """
        number = max(entry.count - not_pending, 0)
        if entry.minute > minute_of(now):
            self.scheduled += number
        elif number:
            self.ready += number
            self._note_due(start_of(entry.minute))
        if entry.has_expired_at(now + NEAR) and not entry.has_expired_at(now):
            self.near_expiration += number

    def count_batch(self, batch: Batch, now: datetime) -> None:
        """Take the tasks of a batch into account, each by itself."""
        for task in batch.unfinished:
            if task.status is not TaskStatus.PENDING:
                continue
            if task.available_at > now:
                self.scheduled += 1
            else:
                self.ready += 1
                self._note_due(task.available_at)
            self.near_expiration += task.is_expired_at(now + NEAR) and not task.is_expired_at(now)

    def _note_due(self, due_at: datetime) -> None:
        self.oldest_due_at = min(self.oldest_due_at or due_at, due_at)


def backlog_of(found: dict[str, Backlog], task_type: str) -> Backlog:
    """Return the backlog of a type in a count by types; a new one if there is none."""
    return found.setdefault(task_type, Backlog(task_type))
