"""Everything that buquet raises on purpose.

```
BuquetError
├── ConfigurationError     the URL, a setting or an argument of connect() is wrong: mend it
├── InvalidOptions         an option of submit() contradicts itself or another (a ValueError)
├── InvalidPayload         an input or output is not JSON; names the path (a TypeError)
│   └── PayloadTooLarge    … or is larger than a task may carry
├── TaskError              about one task
│   ├── TaskNotFound
│   ├── InvalidTransition  its status does not allow the act
│   │   └── CannotCancel, CannotReplay, CannotExpire, CannotArchive, CannotResubmit
│   └── TaskNotCompleted   there is no output to give
│       └── TaskFailed, TaskExpired, TaskCancelled, TaskUnfinished
├── WaitTimeout            wait() ran out of time; the tasks go on (a TimeoutError)
├── SubmitUnclear          the store broke off: the task may or may not be stored
├── SubmitManyError        submit_many() broke in the middle; says what is stored
├── TooManyLostThreads     a worker's handlers are stuck: start its process anew
├── StoreError             about the store
│   ├── StoreUnavailable   try again later
│   │   └── StoreUnclear   … and whether the write took effect is not known
│   ├── StoreRefused       it refuses this request for good: too large, for example
│   ├── StoreAccessDenied  credentials or rights are missing
│   ├── StoreNotFound      there is no such bucket, or no such folder for the file
│   ├── StoreUnsuitable    the store lacks a feature that buquet needs
│   └── Contention         others kept changing the same batch
└── DamagedObject          an object in the store can't be read

HandlerSignal              what a handler raises on purpose
├── RetryableError         try again, with backoff
├── PermanentError         failed, do not try again
├── RescheduleError        pending again, later; no attempt is used up
└── CancelledError         the handler gives in to a cancel request

TaskTimeout                what a handler gets that runs for too long
```
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any


class BuquetError(Exception):
    """The root of all errors that buquet raises on purpose."""


class ConfigurationError(BuquetError, ValueError):
    """Raised when a URL, a setting or an argument of `connect` is wrong."""


class InvalidOptions(BuquetError, ValueError):
    """Raised by `submit` when an option is out of range or contradicts another."""


class InvalidPayload(BuquetError, TypeError):
    """Raised when a value is not JSON.

    Attributes:
        path: where in the value the culprit is, e.g. `input.users[3].born`.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}."


class PayloadTooLarge(InvalidPayload):
    """Raised when an input or output is larger than a task may carry.

    Attributes:
        size: its size as JSON in bytes, as far as it was counted.
        limit: the largest size allowed, in bytes.
    """

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(path, f"is at least {size:,} bytes as JSON, and {limit:,} are allowed")
        self.args = (path, size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.path} {self.reason}. Store it elsewhere and pass a reference to it."


class TaskError(BuquetError):
    """About one task.

    Attributes:
        task_id: the task's id.
    """

    def __init__(self, task_id: str, *args: Any) -> None:
        super().__init__(task_id, *args)
        self.task_id = task_id


class TaskNotFound(TaskError):
    """Raised when there is no task with this id in this queue."""

    def __str__(self) -> str:
        return f"There is no task {self.task_id!r} in this queue."


class InvalidTransition(TaskError):
    """Raised when a task's status does not allow what was asked of it.

    Attributes:
        status: the status that stands in the way.
        reason: one more sentence, or empty.
    """

    verb = "changed"

    def __init__(self, task_id: str, status: str, reason: str = "") -> None:
        super().__init__(task_id, status, reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        text = f"Task {self.task_id!r} is {self.status}, so it cannot be {self.verb}."
        return f"{text} {self.reason}" if self.reason else text


class CannotCancel(InvalidTransition):
    """Raised by `cancel` on a task that has ended."""

    verb = "cancelled"


class CannotReplay(InvalidTransition):
    """Raised by `replay` unless the task failed or was cancelled, and has time left."""

    verb = "replayed"


class CannotExpire(InvalidTransition):
    """Raised by `mark_expired` on a task that is not pending."""

    verb = "marked expired"


class CannotArchive(InvalidTransition):
    """Raised by `archive` on a task that has not ended."""

    verb = "archived"


class CannotResubmit(InvalidTransition):
    """Raised by `resubmit` on a task that has not ended."""

    verb = "submitted anew"


class TaskNotCompleted(TaskError):
    """Raised by `Task.result` when the task has no output to give."""


class TaskFailed(TaskNotCompleted):
    """Raised by `Task.result` when the task failed.

    Attributes:
        last_error: what the last attempt died of.
    """

    def __init__(self, task_id: str, last_error: str | None) -> None:
        super().__init__(task_id, last_error)
        self.last_error = last_error

    def __str__(self) -> str:
        return f"Task {self.task_id!r} failed: {self.last_error}"


class TaskExpired(TaskNotCompleted):
    """Raised by `Task.result` when the task was not started, or not tried again, by its deadline.

    Attributes:
        expired_at: when it was marked expired.
        last_error: what the last attempt died of; None if there was none.
    """

    def __init__(
        self, task_id: str, expired_at: datetime | None, last_error: str | None = None
    ) -> None:
        super().__init__(task_id, expired_at, last_error)
        self.expired_at = expired_at
        self.last_error = last_error

    def __str__(self) -> str:
        when = f" at {self.expired_at.isoformat()}" if self.expired_at else ""
        why = (
            "nobody started it by its deadline."
            if self.last_error is None
            else f"another attempt would have started too late. Last error: {self.last_error}"
        )
        return f"Task {self.task_id!r} expired{when}: {why}"


class TaskCancelled(TaskNotCompleted):
    """Raised by `Task.result` when the task was cancelled."""

    def __str__(self) -> str:
        return f"Task {self.task_id!r} was cancelled."


class TaskUnfinished(TaskNotCompleted):
    """Raised by `Task.result` when the task has not ended yet.

    Attributes:
        status: `pending` or `running`.
    """

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(task_id, status)
        self.status = status

    def __str__(self) -> str:
        return f"Task {self.task_id!r} is {self.status}: it has no result yet. Use queue.wait(id)."


class WaitTimeout(BuquetError, TimeoutError):
    """Raised by `wait` when time is up; the tasks themselves go on.

    Attributes:
        unfinished: the ids of the tasks that have not ended.
        timeout: how long was waited.
    """

    def __init__(self, unfinished: Sequence[str], timeout: timedelta) -> None:
        super().__init__(unfinished, timeout)
        self.unfinished = tuple(unfinished)
        self.timeout = timeout

    def __str__(self) -> str:
        what = (
            f"Task {self.unfinished[0]!r} has"
            if len(self.unfinished) == 1
            else f"{len(self.unfinished)} tasks have"
        )
        return f"{what} not ended within {self.timeout.total_seconds():g} seconds."


class SubmitUnclear(BuquetError):
    """Raised by `submit` when the store broke off and can't be asked whether the task is stored.

    Attributes:
        task_ids: the ids that the tasks have if they are stored; `queue.get` shows it later.
    """

    def __init__(self, task_ids: Sequence[str], cause: str) -> None:
        super().__init__(task_ids, cause)
        self.task_ids = tuple(task_ids)
        self.cause = cause

    def __str__(self) -> str:
        first = self.task_ids[0]
        more = f" (and {len(self.task_ids) - 1} more)" if len(self.task_ids) > 1 else ""
        return (
            f"Task {first!r}{more} may or may not be stored: {self.cause} "
            f"Check with queue.get({first!r}) before you submit it again."
        )


class SubmitManyError(BuquetError):
    """Raised by `submit_many` when it breaks in the middle.

    Attributes:
        stored: the tasks that are stored and will run, in the order given.
        unclear: the ids of tasks that may or may not be stored.
        total: how many tasks were to be submitted.
    """

    def __init__(self, stored: Sequence[Any], unclear: Sequence[str], total: int) -> None:
        super().__init__(stored, unclear, total)
        self.stored = tuple(stored)
        self.unclear = tuple(unclear)
        self.total = total

    def __str__(self) -> str:
        unclear = f", {len(self.unclear)} may or may not be" if self.unclear else ""
        cause = str(self.__cause__).rstrip(".")
        return (
            f"Of {self.total} tasks, {len(self.stored)} are stored{unclear}: {cause}. "
            "See .stored and .unclear before submitting the rest."
        )


class StoreError(BuquetError):
    """About the store.

    Attributes:
        code: the store's own word for it, such as `InternalError` or `SQLITE_FULL`; None if it has
            said none.
    """

    code: str | None = None


class StoreUnavailable(StoreError):
    """Raised when the store does not answer, or answers that it is too busy: try again later."""


class StoreUnclear(StoreUnavailable):
    """Raised when a write got no clear answer: it may or may not have taken effect."""


class StoreRefused(StoreError):
    """Raised when the store refuses a request and would refuse it again: too large, for example.

    Nothing was written. Other requests may well succeed, so the store is not away.
    """


class StoreAccessDenied(StoreError):
    """Raised when credentials are missing or wrong, or the rights do not suffice."""


class StoreNotFound(StoreError):
    """Raised when there is no such bucket, or no folder for the file."""


class StoreUnsuitable(StoreError):
    """Raised when the store lacks a feature without which buquet can't be safe.

    Attributes:
        feature: the name of what is missing.
    """

    def __init__(self, feature: str, detail: str) -> None:
        super().__init__(feature, detail)
        self.feature = feature
        self.detail = detail

    def __str__(self) -> str:
        return f"This store is not suitable: {self.feature} is missing. {self.detail}"


class Contention(StoreError):
    """Raised when a change was tried many times and others were faster each time.

    Attributes:
        batch_id: the batch that everybody wants to change.
        tries: how often it was tried.
    """

    def __init__(self, batch_id: str, tries: int) -> None:
        super().__init__(batch_id, tries)
        self.batch_id = batch_id
        self.tries = tries

    def __str__(self) -> str:
        return (
            f"Others changed batch {self.batch_id!r} each of the {self.tries} times that it was "
            "to be changed. Nothing was written; try again."
        )


class DamagedObject(BuquetError):
    """Raised when an object in the store can't be read: not JSON, or not of the right shape.

    Attributes:
        key: its key.
        reason: what is wrong with it.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"The object {self.key!r} can't be read: {self.reason}. It was left as it is."


class HandlerSignal(Exception):
    """The root of what a handler raises to say how its attempt is to end."""


class RetryableError(HandlerSignal):
    """Raise it in a handler to have the task tried again, with backoff."""


class PermanentError(HandlerSignal):
    """Raise it in a handler to fail the task for good, whatever retries are left."""


class RescheduleError(HandlerSignal):
    """Raise it in a handler to have the task run again later; no attempt is used up.

    Args:
        delay_seconds: how much later, at least 0. It is at least a second in effect, so that other
            tasks get their turn.
        extend_expiration_seconds: moves the deadline by so much, where there is one.
    """

    def __init__(
        self, delay_seconds: float, extend_expiration_seconds: float | None = None
    ) -> None:
        super().__init__(delay_seconds, extend_expiration_seconds)
        self.delay_seconds = delay_seconds
        self.extend_expiration_seconds = extend_expiration_seconds

    def __str__(self) -> str:
        extended = self.extend_expiration_seconds
        more = f", with {extended} seconds more until the deadline" if extended else ""
        return f"The handler put its task off by {self.delay_seconds} seconds{more}."


class TaskTimeout(BaseException):
    """Raised inside a handler that runs for longer than its timeout.

    The attempt is over, whatever the handler does; it has five seconds to clean up. Not an
    `Exception`, so that the handler's own `except Exception` lets it pass.
    """


class TooManyLostThreads(BuquetError):
    """Raised by `Worker.run` when too many handlers do not react to their timeouts.

    The process is to be ended and started anew: only that gets rid of the threads.

    Attributes:
        lost: how many threads were given up.
    """

    def __init__(self, lost: int) -> None:
        super().__init__(lost)
        self.lost = lost

    def __str__(self) -> str:
        return (
            f"{self.lost} threads are stuck in handlers that do not react to their timeouts. "
            "Start the worker anew, and give what the handlers wait for a timeout of its own."
        )


class CancelledError(HandlerSignal):
    """Raised by `context.raise_if_cancelled`: the handler gives in to a cancel request."""
