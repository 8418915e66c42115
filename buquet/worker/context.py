"""What a handler is told beside its input."""

from __future__ import annotations

from datetime import datetime, timedelta

from buquet.errors import CancelledError
from buquet.ledger import Ledger
from buquet.model import Task
from buquet.worker.agenda import Assignment


class TaskContext:
    """The circumstances of one attempt."""

    def __init__(self, assignment: Assignment, ledger: Ledger) -> None:
        self._assignment = assignment
        self._ledger = ledger

    @property
    def task(self) -> Task:
        """The task as it was claimed."""
        return self._assignment.task

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.task.attempt

    @property
    def lease_lost(self) -> bool:
        """Whether the worker could not renew its lease: the result will likely be dropped."""
        return self._assignment.lease_lost

    def now(self) -> datetime:
        """Return the store's time."""
        return self._ledger.now()

    def remaining(self) -> timedelta | None:
        """Return the time until the deadline, below zero once it has passed; None without one.

        The deadline is for starting: an attempt that has begun may finish after it.
        """
        deadline = self.task.expires_at
        return None if deadline is None else deadline - self.now()

    def is_cancellation_requested(self) -> bool:
        """Tell whether somebody asked to cancel this task; known by the next heartbeat."""
        return self._assignment.cancel_requested

    def raise_if_cancelled(self) -> None:
        """Give in if somebody asked to cancel this task: it becomes `cancelled`.

        Raises:
            CancelledError: which the handler should let pass.
        """
        if self.is_cancellation_requested():
            raise CancelledError(self.task.id)
