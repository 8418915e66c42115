"""Waits for tasks to end: reads what may have changed, less and less often."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from buquet.clock import Event
from buquet.core import keys
from buquet.core.batch import Commit
from buquet.core.model import Task
from buquet.errors import InvalidOptions, TaskNotFound, WaitTimeout
from buquet.ledger.ledger import Ledger, Loaded, task_in
from buquet.shield import shielded

FIRST_LOOK = 0.05
LONGEST_LOOK = 2.0
"""Seconds between two reads of a task that is waited for: at first, and at most."""


def wait_for(
    ledger: Ledger, task_ids: tuple[str, ...], timeout: float | timedelta | None
) -> tuple[Task, ...]:
    """Wait until all have ended; return them in the order given.

    Args:
        ledger: where they are.
        task_ids: which.
        timeout: for how long, in seconds or as a timedelta; None for ever.

    Raises:
        TaskNotFound: if one does not exist.
        WaitTimeout: if time is up; it says which have not ended.
        InvalidOptions: if the timeout is no span of time.
    """
    span = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if span is not None and not _is_span(span):
        raise InvalidOptions(
            f"timeout must be a number of seconds or a timedelta, not {timeout!r}."
        )
    clock = ledger.store.clock
    end = math.inf if span is None else clock.monotonic() + span
    ids = tuple(keys.check_task_id(task_id) for task_id in task_ids)
    looks = _Looks(ledger, ids)
    pause = FIRST_LOOK
    with _stirred(ledger, {keys.batch_id_of_task(task_id) for task_id in ids}) as stirred:
        while unfinished := looks.look():
            left = end - clock.monotonic()
            if left <= 0:
                raise WaitTimeout(unfinished, timedelta(seconds=max(span or 0, 0)))
            with shielded():  # not for long: a timeout of the handler that waits comes in between
                has_stirred = stirred.wait(min(pause, left))
                stirred.clear()
            if not has_stirred:
                pause = min(pause * 1.5, LONGEST_LOOK)
    return looks.tasks()


def _is_span(seconds: float) -> bool:
    """Return whether a time so far from now comes, or never does; of a NaN neither is so."""
    try:
        return isinstance(seconds, int | float) and not math.isnan(seconds)
    except OverflowError:
        return False


@contextmanager
def _stirred(ledger: Ledger, batch_ids: set[str]) -> Iterator[Event]:
    """Give an event that is set by each change of these batches through this very ledger."""
    stirred = ledger.store.clock.event()

    def stir(commit: Commit) -> None:
        if commit.new.id in batch_ids:
            stirred.set()

    ledger.observers.append(stir)
    try:
        yield stirred
    finally:
        ledger.observers.remove(stir)


class _Looks:
    """Reads many tasks again and again, and only the batches that have changed."""

    def __init__(self, ledger: Ledger, task_ids: tuple[str, ...]) -> None:
        self._ledger = ledger
        self._task_ids = task_ids
        self._loaded: dict[str, Loaded] = {}

    def look(self) -> list[str]:
        """Read once; return the ids of those that have not ended."""
        unfinished = self._unfinished()
        first_of = {keys.batch_id_of_task(task_id): task_id for task_id in reversed(unfinished)}
        for batch_id, task_id in first_of.items():
            known = self._loaded.get(batch_id)
            loaded = self._ledger.load(batch_id, unless=known.etag if known else None)
            if loaded is not None:
                self._loaded[batch_id] = loaded
            elif known is None:
                raise TaskNotFound(task_id)
        return self._unfinished()

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks as they were seen last."""
        return tuple(self._task(task_id) for task_id in self._task_ids)

    def _unfinished(self) -> list[str]:
        return [
            task_id
            for task_id in self._task_ids
            if keys.batch_id_of_task(task_id) not in self._loaded
            or not self._task(task_id).status.is_final
        ]

    def _task(self, task_id: str) -> Task:
        loaded = self._loaded.get(keys.batch_id_of_task(task_id))
        return task_in(loaded.batch if loaded else None, task_id)
