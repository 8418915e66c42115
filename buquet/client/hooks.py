"""Telling of tasks that have expired: in the log, and to whoever asked."""

from __future__ import annotations

import logging
from collections.abc import Callable

from buquet.core.model import Batch, Task
from buquet.core.transitions import new_revisions

logger = logging.getLogger(__name__)

Hook = Callable[[Task], object]


class Notices:
    """An observer of commits: whoever's write expired a task tells of it, so it is told once."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    def observe_commit(self, old: Batch | None, new: Batch) -> None:
        """Tell of the tasks that a commit has expired."""
        for task, revision in new_revisions(old, new):
            if revision.event != "expired":
                continue
            logger.info("Task %s (%s) expired: not started in time.", task.id, task.task_type)
            for hook in self.hooks:
                try:
                    hook(task)
                except (Exception, SystemExit):
                    logger.exception("A hook failed on the expired task %s.", task.id)
