"""What a commit changed in a batch."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from buquet.core.model import Batch, Revision, Task


@frozen
class Commit:
    """A commit that took effect."""

    old: Batch | None
    """The batch before it; None if the commit created it."""
    new: Batch
    """The batch as it was written."""
    revisions: tuple[tuple[Task, Revision], ...]
    """What it changed, with the tasks as they are after it."""

    @classmethod
    def of(cls, old: Batch | None, new: Batch) -> Commit:
        """Work out what changed between two states of a batch."""
        return cls(old, new, tuple(_new_revisions(old, new)))


def _new_revisions(old: Batch | None, new: Batch) -> Iterator[tuple[Task, Revision]]:
    before = {task.id: task.version for task in old.tasks} if old else {}
    for task in new.tasks:
        known = before.get(task.id, 0)
        for revision in task.history[known - task.version :] if task.version > known else ():
            yield task, revision
