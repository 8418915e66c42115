"""Runs one attempt: how the handler ends decides what becomes of the task."""

from __future__ import annotations

import contextvars
import logging
import os
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field

from buquet.client.hooks import Hook, Hooks
from buquet.core import codec, durations, transitions
from buquet.core.model import Task
from buquet.core.transitions import Move
from buquet.errors import (
    CancelledError,
    InvalidOptions,
    InvalidPayload,
    PermanentError,
    RescheduleError,
)
from buquet.ledger.ledger import Ledger
from buquet.worker.claimed_batch import released
from buquet.worker.context import TaskContext, current_task
from buquet.worker.forks import end_if_forked
from buquet.worker.jobs import Claim, Outcome
from buquet.worker.lease import Lease
from buquet.worker.registry import Registry
from buquet.worker.watchdog import TimedAttempt, Watchdog

logger = logging.getLogger(__name__)

ERROR_LIMIT = 2000
"""How much of an error's text is kept with the task, in characters."""


@define(eq=False)
class Runner:
    """Runs attempts with the handlers of a registry."""

    _ledger: Ledger
    _registry: Registry
    _lease: Lease
    """No handler begins once it has lapsed."""
    _watchdog: Watchdog
    """Limits the time of attempts."""
    _hooks: Hooks
    _on_error: list[Hook]
    """Called with each error of an attempt."""
    _pid: int = field(factory=os.getpid, init=False)

    def run(self, claim: Claim) -> Outcome | None:
        """Run one attempt to its end. Whatever is raised on the way becomes an outcome.

        Returns:
            What becomes of the task; None if the attempt was given up while it ran.
        """
        try:
            return self._run(claim)
        except BaseException as error:  # noqa: BLE001 -- a claim without an outcome would stay for ever
            end_if_forked(self._pid, error)
            return Outcome(claim, partial(transitions.retry, error=describe(error)))

    def _run(self, claim: Claim) -> Outcome | None:
        task = claim.task
        latest = self._ledger.latest()
        if task.is_expired_at(latest):
            reason = "its deadline passed while it waited for a thread"
            return Outcome(claim, partial(transitions.expire, reason=reason))
        if claim.lease_lost or self._lease.has_lapsed(latest):
            return released(claim)
        clock = self._ledger.store.clock
        begun = clock.monotonic()
        attempt = TimedAttempt(claim)
        result: Any = None
        problem: BaseException | None = None
        try:
            self._watchdog.arm(attempt, self.timeout_of(task))
            try:
                result = self._call(claim)
            finally:
                self._watchdog.disarm(attempt)
        except BaseException as error:  # noqa: BLE001 -- SystemExit is the handler's failure too
            # Again, for a timeout that came when the handler had just ended.
            self._watchdog.disarm(attempt)
            problem = error
        end_if_forked(self._pid, problem)
        if attempt.is_given_up:
            logger.warning(
                "Task %s (%s) ended after it had been given up: its result is dropped.",
                task.id,
                task.task_type,
            )
            return None
        self._registry.note_duration(task.task_type, clock.monotonic() - begun)
        if attempt.is_interrupted:
            return Outcome(claim, self.timed_out(task))
        return Outcome(claim, self._move_after(problem, task) if problem else result)

    def timeout_of(self, task: Task) -> float:
        """Return for how many seconds an attempt may run: as its task or its handler says."""
        return task.timeout_seconds or self._registry.handlers[task.task_type].timeout_seconds

    def timed_out(self, task: Task) -> Move:
        """Return what becomes of a task whose attempt ran for too long."""
        error = TimeoutError(f"it ran for longer than {self.timeout_of(task):g} seconds")
        return self._failed(task, error, text=f"timeout: {error}.")

    def _call(self, claim: Claim) -> Move:
        task = claim.task
        handler = self._registry.handlers[task.task_type]

        def call() -> Any:
            current_task.set(task)
            # A copy: what the handler does to its input must not reach the store.
            return handler(codec.copy_payload(task.input), TaskContext(claim, self._ledger))

        # In a context of its own: what it sets is not seen by the next task on this thread.
        output = contextvars.copy_context().run(call)
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
        return self._failed(task, error, text=describe(error))

    def _failed(self, task: Task, error: BaseException, *, text: str) -> Move:
        self._hooks.collect(self._on_error, task, error)
        trace = error if error.__traceback__ else None
        attempts = task.max_retries + 1
        if isinstance(error, PermanentError):
            logger.error("Task %s (%s) failed for good: %s", *_name(task), text, exc_info=trace)
            return partial(transitions.fail, error=text)
        if task.attempt >= attempts:
            logger.error(
                "Task %s (%s) failed for good, on attempt %d of %d: %s",
                *_name(task),
                task.attempt,
                attempts,
                text,
                exc_info=trace,
            )
        else:
            logger.warning(
                "Task %s (%s) failed on attempt %d of %d, and is tried again in about %.2g s: %s",
                *_name(task),
                task.attempt,
                attempts,
                task.retry_policy.delay_seconds(task.retry_count + 1, chance=0.5),
                text,
                exc_info=trace,
            )
        return partial(transitions.retry, error=text)


def _name(task: Task) -> tuple[str, str]:
    return task.id, task.task_type


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
    except BaseException:  # noqa: BLE001 -- whatever its __str__ raises is no reason to lose it
        text = "(its text can't be had)"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    told = f"{kind}: {text}" if text else kind
    # A lone surrogate in the text could not be written down.
    return told.encode("utf-8", "replace").decode()[:ERROR_LIMIT] + where
