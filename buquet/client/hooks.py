"""Hooks: functions of a user's that are called at turning points of tasks and workers.

A commit is observed within its write and under locks, where no code of a user may run. There calls
are only collected. They are made after the write, by the thread that made it or, while a worker is
at work, by one of its pool threads: never in its heartbeat, where a slow hook would cost the lease.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from buquet.core.batch import Commit
from buquet.core.model import Task
from buquet.errors import TaskTimeout

logger = logging.getLogger(__name__)

Hook = Callable[..., object]


class Hooks:
    """The hooks of a queue, and the calls that are still to be made."""

    def __init__(self) -> None:
        self.expired: list[Hook] = []
        self._pending: deque[tuple[Hook, tuple[Any, ...]]] = deque()
        self._hosts: list[Callable[[], None]] = []

    def observe_commit(self, commit: Commit) -> None:
        """Log the tasks that a commit has expired, and collect the calls for them."""
        for task, revision in commit.revisions:
            if revision.event == "expired":
                logger.info("Task %s (%s) expired: %s", task.id, task.task_type, _why(task))
                self.collect(self.expired, task)

    def collect(self, hooks: Iterable[Hook], *arguments: Any) -> None:
        """Have these hooks called before long."""
        calls = [(hook, arguments) for hook in tuple(hooks)]
        self._pending.extend(calls)
        for wake in tuple(self._hosts) if calls else ():
            wake()

    @contextmanager
    def called_after(self) -> Iterator[None]:
        """Make the calls that are due after what stands in the block, also where that fails."""
        try:
            yield
        finally:
            if not self._hosts:
                self.run_pending()

    @contextmanager
    def hosted(self, wake: Callable[[], None]) -> Iterator[None]:
        """Leave the calls to a host that is woken for them and calls `run_pending`.

        `wake` is called under locks, so it must not block.
        """
        self._hosts.append(wake)
        try:
            yield
        finally:
            self._hosts.remove(wake)
            self.run_pending()

    def run_pending(self) -> None:
        """Make the calls that are due. Call this under no lock, and where it may take long."""
        while self._pending:
            try:
                hook, arguments = self._pending.popleft()
            except IndexError:  # another thread was faster
                return
            guarded(hook, *arguments)


def guarded(hook: Hook, *arguments: Any) -> None:
    """Call a hook. Whatever it raises is logged, and goes no further.

    Two things do go further, since they are meant for the thread and not raised by the hook:
    Ctrl-C in the main thread, and the `TaskTimeout` of an attempt.
    """
    try:
        hook(*arguments)
    except BaseException as error:  # asyncio.CancelledError and SystemExit are no `Exception`
        name = getattr(hook, "__qualname__", hook)
        task_id = next((each.id for each in arguments if isinstance(each, Task)), None)
        logger.exception("The hook %s failed%s.", name, f" on task {task_id}" if task_id else "")
        if isinstance(error, TaskTimeout) or _is_ctrl_c(error):
            raise


def _is_ctrl_c(error: BaseException) -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, KeyboardInterrupt)


def _why(task: Task) -> str:
    if task.attempt:
        return f"another attempt would have started too late. Last error: {task.last_error}"
    return "nobody started it by its deadline."
