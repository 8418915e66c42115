"""Running one attempt: how the handler ends tells what becomes of the task."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path

from buquet import codec, durations, transitions
from buquet.errors import (
    CancelledError,
    InvalidOptions,
    InvalidPayload,
    PermanentError,
    RescheduleError,
)
from buquet.ledger import Ledger
from buquet.model import Task
from buquet.worker.agenda import Assignment, Move, Outcome
from buquet.worker.context import TaskContext, current_task
from buquet.worker.registry import Registry

logger = logging.getLogger(__name__)

ERROR_LIMIT = 2000
"""How much of an error's text is kept with the task, in characters."""


class Runner:
    """Runs attempts with the handlers of a registry."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger = ledger
        self._registry = registry

    def run(self, assignment: Assignment) -> Outcome:
        """Run one attempt to its end. Nothing that a handler raises gets out."""
        task = assignment.task
        if task.is_expired_at(self._ledger.latest()):
            reason = "its deadline passed while it waited for a thread"
            return Outcome(assignment, partial(transitions.expire, reason=reason))
        clock = self._ledger.store.clock
        begun = clock.monotonic()
        try:
            move = self._attempt(assignment)
        except BaseException as error:  # noqa: BLE001 -- SystemExit in a handler is its failure too
            move = _move_after(error, task)
        self._registry.note_duration(task.task_type, clock.monotonic() - begun)
        return Outcome(assignment, move)

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
            logger.error("Task %s (%s) failed: %s", task.id, task.task_type, error)  # noqa: TRY400 -- where it was found is of no interest
            return partial(transitions.fail, error=describe(error))
        return partial(transitions.complete, output=codec.copy_payload(output))


def _move_after(error: BaseException, task: Task) -> Move:
    match error:
        case RescheduleError():
            return _reschedule(error, task)
        case CancelledError():
            return transitions.give_in
        case PermanentError():
            logger.error("Task %s (%s) failed for good.", task.id, task.task_type, exc_info=error)
            return partial(transitions.fail, error=describe(error))
        case _:
            logger.warning(
                "Attempt %d of task %s (%s) failed.",
                task.attempt,
                task.id,
                task.task_type,
                exc_info=error,
            )
            return partial(transitions.retry, error=describe(error))


def _reschedule(error: RescheduleError, task: Task) -> Move:
    try:
        delay = durations.seconds(error.delay_seconds, what="delay_seconds")
        extend = durations.seconds(
            error.extend_expiration_seconds or 0, what="extend_expiration_seconds"
        )
        if min(delay, extend) < timedelta(0):
            raise InvalidOptions(f"{error!r} has a negative number of seconds.")
    except InvalidOptions as refusal:
        logger.error("Task %s (%s) failed: %s", task.id, task.task_type, refusal)  # noqa: TRY400 -- the handler's mistake, told whole
        return partial(transitions.fail, error=describe(refusal))
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
