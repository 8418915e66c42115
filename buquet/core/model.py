"""The nouns: a task, its history, the batch that holds it, and what a worker says of itself.

All are frozen values. Nothing here reads the time, draws lots or talks to a store; how a task
changes stands in `transitions`, how it is written down in `codec`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from attrs import Attribute, asdict, field, frozen

from buquet.errors import (
    ConfigurationError,
    InvalidOptions,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskUnfinished,
)

LONGEST_WAIT = 366 * 86400
"""No retry policy waits longer, in seconds."""

TASK_NUMBERS = 0x10000
"""How many tasks a batch can hold: the last 16 bits of an id number them."""


class TaskStatus(StrEnum):
    """Where a task is in its life."""

    PENDING = "pending"
    """Waits to be started."""
    RUNNING = "running"
    """Claimed by a worker."""
    COMPLETED = "completed"
    """The handler returned."""
    FAILED = "failed"
    """The handler raised, and no retries are left."""
    CANCELLED = "cancelled"
    """Somebody cancelled it."""
    EXPIRED = "expired"
    """Nobody started it by its deadline."""
    ARCHIVED = "archived"
    """It had ended, and an operator laid it aside."""

    Pending = PENDING
    Running = RUNNING
    Completed = COMPLETED
    Failed = FAILED
    Cancelled = CANCELLED
    Expired = EXPIRED
    Archived = ARCHIVED

    @property
    def is_final(self) -> bool:
        """Return whether the task has ended."""
        return self not in (TaskStatus.PENDING, TaskStatus.RUNNING)


def _aware(instance: object, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and value.tzinfo is None:
        raise ValueError(f"{attribute.name} must be an aware datetime, not {value!r}.")


def _when(*, default: Any = None) -> Any:
    return field(default=default, validator=_aware)


def _number(instance: object, attribute: Attribute[float], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"RetryPolicy({attribute.name}=…) must be a number, not {value!r}."
        )


def _positive(instance: object, attribute: Attribute[float], value: float) -> None:
    if not 0 < value <= LONGEST_WAIT:
        raise ConfigurationError(
            f"RetryPolicy({attribute.name}=…) must be above 0 and at most a year, not {value!r}."
        )


def _fraction(instance: object, attribute: Attribute[float], value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigurationError(f"RetryPolicy({attribute.name}=…) must be 0 to 1, not {value!r}.")


def _factor(instance: object, attribute: Attribute[float], value: float) -> None:
    if not 1 <= value <= sys.float_info.max:  # a whole number may be larger
        raise ConfigurationError(
            f"RetryPolicy({attribute.name}=…) must be at least 1, not {value!r}."
        )


@frozen
class RetryPolicy:
    """How long to wait before a task is tried again: exponential, capped, with jitter."""

    initial_seconds: float = field(default=1.0, validator=[_number, _positive])
    """The wait before the first retry."""
    factor: float = field(default=2.0, validator=[_number, _factor])
    """By how much each wait is longer than the one before."""
    max_seconds: float = field(default=3600.0, validator=[_number, _positive])
    """No wait is longer than this."""
    jitter: float = field(default=0.5, validator=[_number, _fraction])
    """Which part of a wait is left to chance: 0 none of it, 1 all of it."""

    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, repr=False)
    """Fields of a newer version, kept as they came."""

    def delay_seconds(self, retry: int, chance: float) -> float:
        """Return the wait before the `retry`-th retry (from 1), with `chance` in [0, 1).

        Above some retry the exponential would overflow; by then it is at the cap for long.
        """
        try:
            grown = self.initial_seconds * float(self.factor) ** max(retry - 1, 0)
        except OverflowError:
            grown = self.max_seconds
        wait = min(grown, self.max_seconds)
        return wait * (1 - self.jitter * chance)


@frozen
class Revision:
    """One entry of a task's history: what became of it, when, and by whom."""

    version: int
    status: TaskStatus
    at: datetime = field(validator=_aware)
    by: str
    event: str
    """What happened: `created`, `claimed`, `completed`, `retried`, …"""
    details: Mapping[str, Any] = field(factory=dict)
    """What changed with it, as JSON."""
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Task:
    """One unit of work: a task type, an input, and what became of it.

    All times are aware datetimes in UTC, by the store's clock.
    """

    id: str
    task_type: str
    input: Any = field(default=None, repr=False)
    """What the handler gets: any JSON value."""
    status: TaskStatus = TaskStatus.PENDING
    output: Any = field(default=None, repr=False)
    """What the handler returned, once `completed`."""
    priority: int = 0
    """-100 to 100: among the tasks at hand the higher goes first."""

    created_at: datetime = field(validator=_aware)
    available_at: datetime = field(validator=_aware)
    """Not to be started before."""
    updated_at: datetime = field(validator=_aware)
    started_at: datetime | None = _when()
    """When the latest attempt began."""
    completed_at: datetime | None = _when()
    """When it completed or failed."""
    expires_at: datetime | None = _when()
    """The deadline: to be started before this or not at all."""
    expired_at: datetime | None = _when()
    cancelled_at: datetime | None = _when()
    cancelled_by: str | None = None
    cancel_requested: bool = False
    """Somebody asked to cancel it while it was running."""

    timeout_seconds: float | None = None
    """How long one attempt may run."""
    max_retries: int = 3
    """How often it may be tried again: 3 means four attempts."""
    retry_policy: RetryPolicy = RetryPolicy()
    attempt: int = 0
    """How many attempts have begun."""
    retry_count: int = 0
    lost_count: int = 0
    """How often a worker died, or fell silent, while it had it."""
    reschedule_count: int = 0
    max_reschedules: int | None = None
    """How often a handler may put it off; None for any number of times."""
    last_error: str | None = field(default=None, repr=False)
    """What the latest attempt died of; None once it has completed."""

    worker_id: str | None = None
    lease_id: str | None = None
    """Names the claim under which it runs: a result is taken only under the same."""
    lease_expires_at: datetime | None = _when()
    """Until when the claim holds without a sign of life of the worker."""

    version: int = 0
    """Counts its changes."""
    history: tuple[Revision, ...] = field(default=(), repr=False)
    """Its changes: the first, and the last 50."""
    extra: Mapping[str, Any] = field(factory=dict, repr=False)
    """Fields of a newer version, kept as they came."""
    memo: str | None = field(default=None, init=False, eq=False, repr=False)
    """Its JSON, kept by the codec: a batch is written often, most of its tasks as before."""

    @property
    def batch_id(self) -> str:
        """The id of the batch that holds it."""
        return self.id[:-4] + "0000"

    @property
    def history_omitted(self) -> int:
        """How many changes between the first and the rest are not kept in the history."""
        return self.version - len(self.history)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, whichever way; None as long as it has not."""
        return self.expired_at or self.cancelled_at or self.completed_at

    def is_available_at(self, now: datetime) -> bool:
        """Return whether it may be started: pending, due, and before its deadline.

        Here and below, a `now` without a zone is local time.

        Raises:
            InvalidOptions: for a `now` that is no datetime.
        """
        return (
            self.status is TaskStatus.PENDING
            and self.available_at <= moment(now)
            and not self.is_expired_at(now)
        )

    def is_expired_at(self, now: datetime) -> bool:
        """Return whether its deadline has passed: `now >= expires_at`."""
        return self.expires_at is not None and moment(now) >= self.expires_at

    def is_lease_expired_at(self, now: datetime) -> bool:
        """Return whether its claim has lapsed, as far as the task itself knows.

        Its worker's record may say otherwise.
        """
        return self.lease_expires_at is not None and moment(now) >= self.lease_expires_at

    def result(self) -> Any:
        """Return the output of a completed task.

        Raises:
            TaskFailed: with what the last attempt died of.
            TaskExpired: with the time when it was marked expired.
            TaskCancelled: if it was cancelled.
            TaskUnfinished: if it has not ended yet.
        """
        if not self.status.is_final:
            raise TaskUnfinished(self.id, self.status)
        if self.expired_at:
            raise TaskExpired(self.id, self.expired_at, self.last_error)
        if self.cancelled_at:
            raise TaskCancelled(self.id)
        if self.last_error is not None:
            raise TaskFailed(self.id, self.last_error)
        return self.output

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known of it as JSON values, times as RFC 3339."""
        return asdict(
            self,
            filter=lambda attribute, _: attribute.name not in ("extra", "memo"),
            value_serializer=lambda _, __, value: (
                rfc3339(value) if isinstance(value, datetime) else value
            ),
        )


@frozen(kw_only=True)
class Batch:
    """The tasks that were submitted together: the unit of atomic change.

    The last six fields make its entry in the index: they change only when the entry moves.
    """

    id: str
    task_type: str
    priority: int = 0
    tasks: tuple[Task, ...]
    writes: tuple[str, ...] = ()
    """The ids of its last 16 writes."""

    due: int
    """The minute since the epoch at which it is due."""
    generation: int = 0
    """Counts the moves of its entry."""
    tail: str = ""
    """Random digits of the writer that moved it last: no key is ever used twice."""
    count: int = 0
    """How many tasks were unfinished when the entry moved."""
    expires: int | None = None
    """The earliest deadline among these, in epoch seconds."""

    extra: Mapping[str, Any] = field(factory=dict, repr=False)

    @cached_property
    def unfinished(self) -> tuple[Task, ...]:
        """The tasks that have not ended."""
        return tuple(task for task in self.tasks if not task.status.is_final)

    def task(self, task_id: str) -> Task | None:
        """Return the task with this id, if it is in here."""
        return next((task for task in self.tasks if task.id == task_id), None)


@frozen
class Progress:
    """How far an attempt is, as its handler has reported."""

    fraction: float
    """From 0 to 1."""
    text: str
    at: datetime = field(validator=_aware)
    """When it was reported."""
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class WorkerRecord:
    """What a worker writes at each heartbeat."""

    id: str
    host: str
    pid: int
    threads: int
    task_types: tuple[str, ...]
    started_at: datetime = field(validator=_aware)
    heartbeat_at: datetime = field(validator=_aware)
    lease_expires_at: datetime = field(validator=_aware)
    """Until when its claims hold without another heartbeat."""
    running: tuple[str, ...] = ()
    """The ids of the tasks that it has claimed."""
    progress: Mapping[str, Progress] = field(factory=dict)
    """How far those of them are whose handlers have reported, by task id."""
    counters: Mapping[str, int] = field(factory=dict)
    """How many tasks it has completed, failed, …"""
    extra: Mapping[str, Any] = field(factory=dict, repr=False)

    def is_lapsed_at(self, now: datetime) -> bool:
        """Return whether the worker has given no sign of life in time.

        Raises:
            InvalidOptions: for a `now` that is no datetime.
        """
        return moment(now) >= self.lease_expires_at


def moment(value: Any, name: str = "now") -> datetime:
    """Return a datetime in UTC; one without a zone is local time, as Python has it.

    Raises:
        InvalidOptions: if it is no datetime, or has no counterpart in UTC.
    """
    if not isinstance(value, datetime):
        hint = " Use datetime.fromisoformat()." if isinstance(value, str) else ""
        raise InvalidOptions(f"{name} must be a datetime, not {value!r}.{hint}")
    if value.tzinfo is UTC:
        return value
    try:
        return value.astimezone(UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise InvalidOptions(f"{name}={value!r} has no counterpart in UTC.") from error


@lru_cache(maxsize=256)
def rfc3339(moment: datetime) -> str:
    """Write a moment as it stands in the store: in UTC, with microseconds."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
