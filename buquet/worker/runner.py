"""Running one attempt: how the handler ends tells what becomes of the task."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from buquet.core import codec, durations, transitions
from buquet.core.model import Task
from buquet.errors import (
    CancelledError,
    InvalidOptions,
    InvalidPayload,
    PermanentError,
    RescheduleError,
)
from buquet.ledger.ledger import Ledger
from buquet.worker.agenda import Assignment, Move, Outcome
from buquet.worker.context import TaskContext, current_task
from buquet.worker.registry import Registry
from buquet.worker.watchdog import Watch, Watchdog

logger = logging.getLogger(__name__)

ERROR_LIMIT = 2000
"""How much of an error's text is kept with the task, in characters."""


OnError = Callable[[Task, BaseException], None]


class Runner:
    """Runs attempts with the handlers of a registry."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        watchdog: Watchdog,
        on_error: Callable[[Task, BaseException], None],
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._watchdog = watchdog
        self._on_error = on_error

    def run(self, assignment: Assignment) -> Outcome | None:
        """Run one attempt to its end. Nothing that a handler raises gets out.

        Returns:
            What becomes of the task; None if the attempt was given up while it ran.
        """
        task = assignment.task
        if task.is_expired_at(self._ledger.latest()):
            reason = "its deadline passed while it waited for a thread"
            return Outcome(assignment, partial(transitions.expire, reason=reason))
        if assignment.lease_lost:
            return Outcome(assignment, transitions.release, wake=True)
        clock = self._ledger.store.clock
        begun = clock.monotonic()
        watch = Watch(assignment)
        ended: Move | BaseException
        try:
            self._watchdog.arm(watch, self.timeout_of(task))
            try:
                ended = self._attempt(assignment)
            finally:
                self._watchdog.disarm(watch)
        except BaseException as error:  # noqa: BLE001 -- SystemExit is the handler's failure too
            # Again, for a timeout that came when the handler had just ended.
            self._watchdog.disarm(watch)
            ended = error
        if watch.is_given_up:
            logger.warning(
                "Task %s (%s) ended after it had been given up: its result is dropped.",
                task.id,
                task.task_type,
            )
            return None
        if watch.is_told:
            move = self.timed_out(task)
        else:
            move = self._move_after(ended, task) if isinstance(ended, BaseException) else ended
        self._registry.note_duration(task.task_type, clock.monotonic() - begun)
        return Outcome(assignment, move)

    def timeout_of(self, task: Task) -> float:
        """Return for how many seconds an attempt may run: the task's word, or its handler's."""
        return task.timeout_seconds or self._registry.handlers[task.task_type].timeout_seconds

    def timed_out(self, task: Task) -> Move:
        """Return what becomes of a task whose attempt ran for too long."""
        error = TimeoutError(f"it ran for longer than {self.timeout_of(task):g} seconds")
        logger.warning(
            "Attempt %d of task %s (%s): %s.", task.attempt, task.id, task.task_type, error
        )
        self._on_error(task, error)
        return partial(transitions.retry, error=f"timeout: {error}.")

    def _attempt(self, assignment: Assignment) -> Move:
        task = assignment.task
        handler = self._registry.handlers[task.task_type]
        token = current_task.set(task)
        try:
            # A copy: what the handler does to its input must not reach the store.
            output = handler(codec.copy_payload(task.input), TaskContext(assignment, self._ledger))
        finally:
            current_task.reset(token)
        try:
            codec.payload_size(output, "output")
        except InvalidPayload as error:
            raise PermanentError(str(error)) from error
        return partial(transitions.complete, output=codec.copy_payload(output))

    def _move_after(self, error: BaseException, task: Task) -> Move:
        if isinstance(error, CancelledError):
            return transitions.give_in
        if isinstance(error, RescheduleError):
            try:
                return _reschedule(error)
            except InvalidOptions as refusal:
                error = PermanentError(str(refusal))
        self._on_error(task, error)
        what = (task.id, task.task_type)
        if isinstance(error, PermanentError):
            logger.error("Task %s (%s) failed for good.", *what, exc_info=error)
            return partial(transitions.fail, error=describe(error))
        logger.warning("Attempt %d of task %s (%s) failed.", task.attempt, *what, exc_info=error)
        return partial(transitions.retry, error=describe(error))


def _reschedule(error: RescheduleError) -> Move:
    delay = durations.seconds(error.delay_seconds, what="delay_seconds")
    extend = durations.seconds(
        error.extend_expiration_seconds or 0, what="extend_expiration_seconds"
    )
    if min(delay, extend) < timedelta(0):
        raise InvalidOptions(f"{error!r} has a negative number of seconds.")
    return partial(transitions.reschedule, delay=delay, extend=extend)


def describe(error: BaseException) -> str:
    """Return what an error was and where it was raised, fit to be stored."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- an error whose __str__ fails is no reason to lose it
        text = "(its text can't be had)"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    told = f"{kind}: {text}" if text else kind
    # A lone surrogate in the text could not be written down.
    return told.encode("utf-8", "replace").decode()[:ERROR_LIMIT] + where
