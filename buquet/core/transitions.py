"""Every way in which a task can change, as pure functions: a task and the facts in, a task out.

Two rules: all that changes a status lives here; and nothing here reads a clock, draws lots or does
I/O. What may happen from where stands in `ALLOWED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from attrs import Attribute, Factory, evolve, field, frozen

from buquet.core import durations, index
from buquet.core.model import Batch, Revision, Task, TaskStatus, rfc3339
from buquet.errors import (
    CannotArchive,
    CannotCancel,
    CannotExpire,
    CannotReplay,
    InvalidOptions,
    InvalidTransition,
)

KEPT_REVISIONS = 50
"""How many of the latest changes a history keeps, beside the first."""

FREE: Mapping[str, Any] = {"lease_id": None, "lease_expires_at": None}
"""What takes a task from its worker. The worker that ran it last stays on record."""

_ENDED = frozenset(status for status in TaskStatus if status.is_final)

ALLOWED: Mapping[str, frozenset[TaskStatus]] = {
    "claim": frozenset({TaskStatus.PENDING}),
    "complete": frozenset({TaskStatus.RUNNING}),
    "fail": frozenset({TaskStatus.RUNNING}),
    "retry": frozenset({TaskStatus.RUNNING}),
    "reschedule": frozenset({TaskStatus.RUNNING}),
    "release": frozenset({TaskStatus.RUNNING}),
    "recover": frozenset({TaskStatus.RUNNING}),
    "give in": frozenset({TaskStatus.RUNNING}),
    "expire": frozenset({TaskStatus.PENDING, TaskStatus.RUNNING}),
    "cancel": frozenset({TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.CANCELLED}),
    "replay": frozenset({TaskStatus.FAILED, TaskStatus.CANCELLED}),
    "archive": _ENDED,
}
"""From which statuses each move may be made. `expire` takes a running task only when its handler
has not begun, or when it would have to begin again after the deadline."""


def _text(_: object, attribute: Attribute[str], value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidOptions(f"{attribute.name} must be text, not {value!r}.")


@frozen(kw_only=True)
class Facts:
    """What a move must know of the world: the time, whose name it bears, and a random number."""

    now: datetime
    latest: datetime = field(default=Factory(lambda self: self.now, takes_self=True))
    """The latest that it may be by the store's clock: deadlines are judged by it, so that what is
    not known of that clock can make a task expire a moment early, and never start late."""
    by: str = field(validator=_text)
    chance: float = 0.0
    """In [0, 1): the jitter of a wait."""
    tail: str = "0"
    """Random hex digits, for the key of an entry that moves."""
    begun: float = 0.0
    """When they were gathered, in local monotonic seconds: a commit has a time limit."""


Move = Callable[[Task, Facts], Task]
"""How a task changes: one of the functions below, its other arguments being settled."""

LEAST_RESCHEDULE = timedelta(seconds=1)
"""By how much a task is put off at least."""


def create(task: Task, facts: Facts) -> Task:
    """Begin the history of a new task."""
    details: dict[str, Any] = {}
    if task.available_at > facts.now:
        details["schedule_at"] = rfc3339(task.available_at)
    if task.expires_at is not None:
        details["expires_at"] = rfc3339(task.expires_at)
    return _become(task, facts, "created", details=details)


def claim(task: Task, facts: Facts, *, lease_id: str, lease_expires_at: datetime) -> Task:
    """Make a pending task running under the worker `facts.by`; the attempt counts from now on."""
    _check(task, "claim")
    return _become(
        task,
        facts,
        "claimed",
        TaskStatus.RUNNING,
        {"attempt": task.attempt + 1},
        attempt=task.attempt + 1,
        started_at=facts.now,
        worker_id=facts.by,
        lease_id=lease_id,
        lease_expires_at=lease_expires_at,
    )


def complete(task: Task, facts: Facts, *, output: Any) -> Task:
    """Take the output of a handler that returned."""
    _check(task, "complete")
    return _become(
        task,
        facts,
        "completed",
        TaskStatus.COMPLETED,
        output=output,
        completed_at=facts.now,
        last_error=None,
        **FREE,
    )


def fail(task: Task, facts: Facts, *, error: str) -> Task:
    """End a task for good with the error of its last attempt."""
    _check(task, "fail")
    return _become(
        task,
        facts,
        "failed",
        TaskStatus.FAILED,
        {"error": error},
        completed_at=facts.now,
        last_error=error,
        **FREE,
    )


def retry(task: Task, facts: Facts, *, error: str, event: str = "retried") -> Task:
    """Have a failed attempt made again later, with backoff, if there are attempts and time left."""
    _check(task, "retry")
    if task.attempt > task.max_retries:
        return fail(task, facts, error=error)
    wait = task.retry_policy.delay_seconds(task.retry_count + 1, facts.chance)
    again = evolve(task, retry_count=task.retry_count + 1, last_error=error)
    due = durations.later(facts.now, timedelta(seconds=wait), what="The wait before the retry")
    return _put_off(again, facts, event, due, {"error": error})


def reschedule(
    task: Task, facts: Facts, *, delay: timedelta, extend: timedelta = timedelta(0)
) -> Task:
    """Put a task off because its handler asked for it; the attempt does not count.

    It is put off by a second at least: each turn is paid for, and others wait for theirs.
    """
    _check(task, "reschedule")
    delay = max(delay, LEAST_RESCHEDULE)
    if task.max_reschedules is not None and task.reschedule_count >= task.max_reschedules:
        return fail(task, facts, error=f"It was put off more than {task.max_reschedules} times.")
    deadline = task.expires_at
    try:
        due = durations.later(facts.now, delay, what="delay_seconds")
        if deadline is not None:
            deadline = durations.later(deadline, extend, what="extend_expiration_seconds")
    except InvalidOptions as error:
        return fail(task, facts, error=str(error))
    details = {"expires_at": rfc3339(deadline)} if deadline is not None and extend else {}
    again = evolve(
        task,
        attempt=task.attempt - 1,
        reschedule_count=task.reschedule_count + 1,
        expires_at=deadline,
    )
    return _put_off(again, facts, "rescheduled", due, details)


def release(task: Task, facts: Facts) -> Task:
    """Give a claimed task back as it was; the attempt does not count."""
    _check(task, "release")
    return _put_off(evolve(task, attempt=task.attempt - 1), facts, "released", facts.now, {})


def recover(task: Task, facts: Facts) -> Task:
    """Take a task back from a worker whose lease has lapsed; the attempt is used up."""
    _check(task, "recover")
    error = f"worker lost: {task.worker_id} gave no sign of life in time."
    task = evolve(task, lost_count=task.lost_count + 1)
    if task.is_expired_at(facts.latest):
        return expire(evolve(task, last_error=error), facts, reason="worker lost")
    return retry(task, facts, error=error, event="recovered")


def give_in(task: Task, facts: Facts) -> Task:
    """End a running task whose handler gave in to a cancel request."""
    _check(task, "give in")
    return _cancelled(task, facts)


def expire(task: Task, facts: Facts, *, reason: str = "") -> Task:
    """End a task that was not started by its deadline."""
    _check(task, "expire")
    return _become(
        task,
        facts,
        "expired",
        TaskStatus.EXPIRED,
        {"expired_at": rfc3339(facts.now)} | ({"reason": reason} if reason else {}),
        expired_at=facts.now,
        **FREE,
    )


def mark_expired(task: Task, facts: Facts) -> Task:
    """Expire a pending task at once, whatever its deadline; fine too if that has just been done.

    Raises:
        CannotExpire: if it is not pending.
    """
    if task.expired_at == facts.now:
        return task
    if task.status is not TaskStatus.PENDING:
        raise CannotExpire(task.id, task.status)
    return expire(task, facts, reason="marked by an operator")


def cancel(task: Task, facts: Facts) -> Task:
    """Cancel a pending task; ask the handler of a running one. Doing it twice is fine.

    Raises:
        CannotCancel: if the task has ended otherwise.
    """
    _check(task, "cancel", CannotCancel)
    if task.status is TaskStatus.CANCELLED or task.cancel_requested:
        return task
    if task.status is TaskStatus.PENDING:
        return _cancelled(evolve(task, cancelled_by=facts.by), facts)
    return _become(task, facts, "cancel requested", cancel_requested=True, cancelled_by=facts.by)


def replay(task: Task, facts: Facts, *, expires_at: datetime | None) -> Task:
    """Make a failed or cancelled task pending again, as if it were new; its id is kept.

    Args:
        task: the task.
        facts: the time, and whose name it bears.
        expires_at: a new deadline; None keeps the old one.

    Raises:
        CannotReplay: if it is neither, or if its deadline has passed and no new one is given.
    """
    if task.status is TaskStatus.EXPIRED:
        raise CannotReplay(task.id, task.status, "Resubmit it with a new deadline.")
    _check(task, "replay", CannotReplay)
    deadline = expires_at or task.expires_at
    if deadline is not None and facts.now >= deadline:
        raise CannotReplay(
            task.id, task.status, f"Its deadline was {rfc3339(deadline)}; give it a new one (ttl)."
        )
    return _become(
        task,
        facts,
        "replayed",
        TaskStatus.PENDING,
        {"expires_at": rfc3339(deadline)} if deadline else {},
        worker_id=None,
        available_at=facts.now,
        started_at=None,
        completed_at=None,
        cancelled_at=None,
        cancelled_by=None,
        cancel_requested=False,
        expires_at=deadline,
        attempt=0,
        retry_count=0,
        lost_count=0,
        reschedule_count=0,
        last_error=None,
    )


def archive(task: Task, facts: Facts) -> Task:
    """Lay a task aside that has ended. Doing it twice is fine.

    Raises:
        CannotArchive: if it has not ended.
    """
    _check(task, "archive", CannotArchive)
    if task.status is TaskStatus.ARCHIVED:
        return task
    return _become(task, facts, "archived", TaskStatus.ARCHIVED)


def settle(batch: Batch, facts: Facts, leases: Mapping[str, datetime]) -> Batch:
    """Do the housekeeping that is due in a batch: expire what is late, take back what was lost.

    Args:
        batch: as it was loaded.
        facts: the time, and whose name it bears.
        leases: until when workers are known to be alive, by their records.
    """
    return change_tasks(batch, facts, lambda task: _settled(task, facts, leases))


def change_tasks(
    batch: Batch, facts: Facts, change: Callable[[Task], Task], *, wake: bool = False
) -> Batch:
    """Return the batch with `change` made to its unfinished tasks; the same object if none changed.

    With `wake` pollers read it at once.
    """

    def changed(task: Task) -> Task:
        return task if task.status.is_final else change(task)

    return change_each(batch, facts, changed, wake=wake)


def change_task(
    batch: Batch, task_id: str, facts: Facts, change: Callable[[Task], Task], *, wake: bool = False
) -> Batch:
    """Return the batch with `change` made to one task, as `change_each` does."""
    return change_each(
        batch, facts, lambda task: change(task) if task.id == task_id else task, wake=wake
    )


def change_each(
    batch: Batch, facts: Facts, change: Callable[[Task], Task], *, wake: bool = False
) -> Batch:
    """Return the batch with `change` made to its tasks, ended or not, as `change_tasks` does."""
    return _with_tasks(batch, tuple(map(change, batch.tasks)), facts, wake=wake)


def _with_tasks(
    batch: Batch, tasks: tuple[Task, ...], facts: Facts, *, wake: bool = False
) -> Batch:
    if all(new is old for new, old in zip(tasks, batch.tasks, strict=True)):
        return batch
    return index.with_tasks(batch, tasks, facts.now, facts.tail, wake=wake)


def _settled(task: Task, facts: Facts, leases: Mapping[str, datetime]) -> Task:
    if task.status is TaskStatus.RUNNING:
        return recover(task, facts) if facts.now >= index.held_until(task, leases) else task
    return expire(task, facts) if task.is_expired_at(facts.latest) else task


def _put_off(
    task: Task, facts: Facts, event: str, due: datetime, details: Mapping[str, Any]
) -> Task:
    """Make a running task pending again: unless it was to be cancelled, or would come too late."""
    if task.cancel_requested:
        return _cancelled(task, facts)
    if task.is_expired_at(due):
        return expire(
            task, facts, reason=f"it could begin again at {rfc3339(due)}, not before its deadline"
        )
    details = dict(details) | ({"available_at": rfc3339(due)} if due > facts.now else {})
    return _become(task, facts, event, TaskStatus.PENDING, details, available_at=due, **FREE)


def _cancelled(task: Task, facts: Facts) -> Task:
    return _become(
        task,
        facts,
        "cancelled",
        TaskStatus.CANCELLED,
        {"by": task.cancelled_by} if task.cancelled_by else {},
        cancelled_at=facts.now,
        **FREE,
    )


def _check(task: Task, move: str, error: type[InvalidTransition] = InvalidTransition) -> None:
    if task.status not in ALLOWED[move]:
        raise error(task.id, task.status)


def _become(
    task: Task,
    facts: Facts,
    event: str,
    status: TaskStatus | None = None,
    details: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Task:
    """Return the task after one change, with a revision in its history."""
    status = status or task.status
    version = task.version + 1
    revision = Revision(version, status, facts.now, facts.by, event, details or {})
    history = (*task.history, revision)
    if len(history) > KEPT_REVISIONS + 1:
        history = (history[0], *history[-KEPT_REVISIONS:])
    return evolve(
        task, status=status, version=version, updated_at=facts.now, history=history, **changes
    )
