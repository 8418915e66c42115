"""Functions of the user that are called at turning points, under one guard.

Observing a commit only collects calls. They run in the thread that wrote, or, while a worker runs,
on one of its pool threads: never in its heartbeat, where a slow hook would cost it its lease.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from buquet.core.model import Task
from buquet.errors import TaskTimeout
from buquet.ledger.ledger import Commit

logger = logging.getLogger(__name__)

Hook = Callable[..., object]


@define
class Hooks:
    """The hooks of a queue, and the calls that are still to be made."""

    expired: list[Hook] = field(factory=list)
    _pending: deque[tuple[Hook, tuple[Any, ...]]] = field(factory=deque)
    _hosts: list[Callable[[], None]] = field(factory=list)

    def observe(self, commit: Commit) -> None:
        """Log the tasks that a commit has expired, and call the hooks for them."""
        for task, revision in commit.revisions:
            if revision.event == "expired":
                logger.info("Task %s (%s) expired: %s", task.id, task.task_type, _why(task))
                self.call(self.expired, task)

    def call(self, hooks: Iterable[Hook], *arguments: Any) -> None:
        """Call hooks: now, or before long on a thread of the worker that hosts them."""
        self._pending.extend((hook, arguments) for hook in hooks)
        if not self._hosts:
            self.run_pending()
        elif self._pending:
            for wake in tuple(self._hosts):
                wake()

    @contextmanager
    def hosted(self, wake: Callable[[], None]) -> Iterator[None]:
        """Leave the calls to someone else, who is woken for them and calls `run_pending`."""
        self._hosts.append(wake)
        try:
            yield
        finally:
            self._hosts.remove(wake)
            self.run_pending()

    @property
    def has_pending(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._pending)

    def run_pending(self) -> None:
        """Make the calls that have been collected."""
        while True:
            try:
                hook, arguments = self._pending.popleft()
            except IndexError:
                return
            guarded(hook, *arguments)


def guarded(hook: Hook, *arguments: Any) -> None:
    """Call one hook. Whatever it raises is logged, and does no harm.

    Only Ctrl-C and the timeout of the attempt that it runs in pass: they are not the hook's.
    """
    try:
        hook(*arguments)
    except BaseException as error:  # asyncio.CancelledError and SystemExit are none of Exception
        is_interrupt = isinstance(error, KeyboardInterrupt) and _is_main_thread()
        if is_interrupt or isinstance(error, TaskTimeout):
            raise
        name = getattr(hook, "__qualname__", hook)
        subject = next((each.id for each in arguments if isinstance(each, Task)), None)
        logger.exception("The hook %s failed%s.", name, f" on task {subject}" if subject else "")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _why(task: Task) -> str:
    if task.attempt:
        return f"another attempt would have started too late. Last error: {task.last_error}"
    return "nobody started it by its deadline."
