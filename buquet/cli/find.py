"""From what is typed to the id of a task: the first digits do, if they lead to one task only."""

from __future__ import annotations

import re
from itertools import pairwise

from buquet.client.queue import Queue
from buquet.core import keys
from buquet.errors import InvalidOptions, TaskNotFound

SHORTEST = 4
"""How many digits of an id it takes at least."""

_WHOLE = 32
_OF_BATCH = 28
_GROUPS = (8, 12, 16, 20)


class AmbiguousId(InvalidOptions):
    """Raised when the first digits of an id lead to several tasks."""


def find_id(queue: Queue, typed: str) -> str:
    """Return the id of the only task whose id begins so.

    Raises:
        TaskNotFound: if there is none.
        AmbiguousId: if there are several.
        InvalidOptions: if it is too short, or no part of an id.
    """
    digits = typed.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{1,32}", digits):
        raise TaskNotFound(typed)
    if len(digits) < SHORTEST:
        raise InvalidOptions(f"{typed!r} is too short for an id: give at least {SHORTEST} digits.")
    start = _with_dashes(digits)
    if len(digits) == _WHOLE:
        return start
    found = queue.ledger.store.list(keys.BATCHES + _with_dashes(digits[:_OF_BATCH]), limit=2)
    batch_ids = [batch_id for each in found if (batch_id := keys.batch_id_of(each.key))]
    if len(batch_ids) > 1:
        raise AmbiguousId(f"Several tasks have ids that begin with {typed!r}. Give more digits.")
    return _only_task(queue, batch_ids[0], start, typed) if batch_ids else _none(typed)


def _only_task(queue: Queue, batch_id: str, start: str, typed: str) -> str:
    loaded = queue.ledger.load(batch_id)
    tasks = loaded.batch.tasks if loaded else ()
    task_ids = [task.id for task in tasks if task.id.startswith(start)]
    if len(task_ids) > 1:
        raise AmbiguousId(
            f"{typed!r} leads to {len(task_ids)} tasks that were submitted together: "
            f"{task_ids[0]} to {task_ids[-1]}. Give the whole id: the last 4 digits number them."
        )
    return task_ids[0] if task_ids else _none(typed)


def _none(typed: str) -> str:
    raise TaskNotFound(typed)


def _with_dashes(digits: str) -> str:
    cuts = (0, *(cut for cut in _GROUPS if cut < len(digits)), len(digits))
    return "-".join(digits[begin:end] for begin, end in pairwise(cuts))
