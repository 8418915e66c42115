"""Hooks: functions of a user's that are called at turning points of tasks and workers.

A commit is observed within its write and under locks, where no code of a user may run: there the
calls are only collected. `run_pending` makes them, in a thread that has nothing else to see to.
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
    """The hooks of a queue, and the calls that are due."""

    def __init__(self) -> None:
        self.expired: list[Hook] = []
        self._pending: deque[tuple[Hook, Task]] = deque()

    def observe_commit(self, commit: Commit) -> None:
        """Log the tasks that a commit has expired, and collect the calls for them."""
        for task, revision in commit.revisions:
            if revision.event == "expired":
                logger.info("Task %s (%s) expired: not started in time.", task.id, task.task_type)
                self.collect(self.expired, task)

    def collect(self, hooks: Iterable[Hook], task: Task) -> None:
        """Have `run_pending` call these hooks with a task."""
        self._pending.extend((hook, task) for hook in tuple(hooks))

    @property
    def are_pending(self) -> bool:
        """Whether there are calls to make."""
        return bool(self._pending)

    @contextmanager
    def called_after(self) -> Iterator[None]:
        """Make the calls that are due after what stands in the block, also where that fails."""
        try:
            yield
        finally:
            self.run_pending()

    def run_pending(self) -> None:
        """Make the calls that are due. Call this under no lock, and where it may take long."""
        while self._pending:
            try:
                hook, task = self._pending.popleft()
            except IndexError:  # another thread was faster
                return
            call(hook, task)


def call_all(hooks: Iterable[Hook], *arguments: Any) -> None:
    """Call hooks one after another, each under the guard of `call`."""
    for hook in tuple(hooks):
        call(hook, *arguments)


def call(hook: Hook, *arguments: Any) -> None:
    """Call a hook. Whatever it raises is logged, and goes no further.

    Two things do go further, since they are meant for the thread and not raised by the hook:
    Ctrl-C in the main thread, and the `TaskTimeout` of a handler that made the call.
    """
    try:
        hook(*arguments)
    except BaseException as error:
        name = getattr(hook, "__qualname__", repr(hook))
        about = [f" for task {each.id}" for each in arguments if isinstance(each, Task)]
        logger.exception("The hook %s failed%s.", name, "".join(about))
        if isinstance(error, TaskTimeout) or _is_ctrl_c(error):
            raise


def _is_ctrl_c(error: BaseException) -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, KeyboardInterrupt)
