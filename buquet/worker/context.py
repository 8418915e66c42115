"""What a handler gets beside its input."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cached_property

from attrs import evolve

from buquet.core import codec
from buquet.core.model import Progress, Task
from buquet.errors import CancelledError, InvalidOptions
from buquet.ledger.ledger import Ledger
from buquet.worker.jobs import Claim

current_task: ContextVar[Task | None] = ContextVar("buquet_task", default=None)
"""The task whose handler is running here; for log records."""


PROGRESS_TEXT_LIMIT = 200
"""How much of the text of a progress report is kept, in characters."""


class TaskContext:
    """The circumstances of one attempt."""

    def __init__(self, claim: Claim, ledger: Ledger) -> None:
        self._claim = claim
        self._ledger = ledger

    @cached_property
    def task(self) -> Task:
        """The task as it was claimed."""
        claimed = self._claim.task
        # A copy, as the input that the handler gets: what it does to it must not reach the store.
        return evolve(claimed, input=codec.copy_payload(claimed.input))

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.task.attempt

    @property
    def lease_lost(self) -> bool:
        """Whether the task is no longer this worker's: the result will likely be dropped.

        Its lease could not be renewed, the attempt was given up, or the worker is leaving.
        """
        return self._claim.lease_lost

    def now(self) -> datetime:
        """Return the store's time."""
        return self._ledger.now()

    def remaining(self) -> timedelta | None:
        """Return the time until the deadline, below zero once it has passed; None without one.

        The deadline is for starting: an attempt that has begun may finish after it.
        """
        deadline = self._claim.task.expires_at
        return None if deadline is None else deadline - self.now()

    def is_cancellation_requested(self) -> bool:
        """Return whether somebody asked to cancel this task; known by the next heartbeat."""
        return self._claim.cancel_requested

    def raise_if_cancelled(self) -> None:
        """Give in if somebody asked to cancel this task: it becomes `cancelled`.

        Raises:
            CancelledError: which the handler should let pass.
        """
        if self.is_cancellation_requested():
            raise CancelledError(self._claim.task.id)

    def report_progress(self, fraction: float, text: str = "") -> None:
        """Report how far this attempt is; others see it with the worker's next heartbeat.

        It costs no request, so it may be called as often as one likes.

        Args:
            fraction: from 0 to 1.
            text: what people are shown; cut off after 200 characters.

        Raises:
            InvalidOptions: if the fraction is out of range, or the text is none.
        """
        is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not is_number or not 0 <= fraction <= 1:
            raise InvalidOptions(f"fraction must be a number from 0 to 1, not {fraction!r}.")
        if not isinstance(text, str):
            raise InvalidOptions(f"text must be text, not {text!r}.")
        # A lone surrogate in the text could not be written down.
        told = text[:PROGRESS_TEXT_LIMIT].encode("utf-8", "replace").decode()
        self._claim.progress = Progress(float(fraction), told, self.now())
