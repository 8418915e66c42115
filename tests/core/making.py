"""Tasks, batches and facts for tests of the pure core."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import evolve

from buquet.core import index, keys, transitions
from buquet.core.model import Batch, Task, TaskStatus
from buquet.core.transitions import Facts
from buquet.testing.clock import START

BATCH_ID = keys.new_batch_id(0x0123456789ABCDEF0123456789ABCDEF)
MINUTE = keys.minute_of(START)
LEASE = timedelta(seconds=60)


def facts(seconds: float = 0, *, by: str = "me", chance: float = 0.0, tail: str = "aa") -> Facts:
    """What is known so many seconds after the start."""
    return Facts(now=START + timedelta(seconds=seconds), by=by, chance=chance, tail=tail)


def make_task(number: int = 0, **fields: Any) -> Task:
    """A new task of the batch; `ttl` and `delay` in seconds."""
    ttl, delay = fields.pop("ttl", None), fields.pop("delay", 0)
    task = Task(
        id=keys.task_id(BATCH_ID, number),
        task_type="email",
        created_at=START,
        updated_at=START,
        available_at=START + timedelta(seconds=delay),
        expires_at=None if ttl is None else START + timedelta(seconds=ttl),
    )
    return transitions.create(evolve(task, **fields), facts(by="submitter"))


def make_running(number: int = 0, *, at: float = 0, **fields: Any) -> Task:
    """A task that worker `w1` has claimed."""
    return claimed(make_task(number, **fields), at)


def claimed(task: Task, at: float = 0) -> Task:
    """The same task, claimed by worker `w1`."""
    known = facts(at, by="w1")
    return transitions.claim(task, known, lease_id="l1", lease_expires_at=known.now + LEASE)


def make_batch(*tasks: Task, **fields: Any) -> Batch:
    """A batch of these tasks whose entry is at the minute of the start."""
    return index.moved(
        Batch(id=BATCH_ID, task_type="email", tasks=tasks, due=0, **fields), MINUTE, "00"
    )


def make_any(status: TaskStatus, **fields: Any) -> Task:
    """A task that has come to this status as tasks do."""
    running = make_running(**fields)
    match status:
        case TaskStatus.PENDING:
            return make_task(**fields)
        case TaskStatus.RUNNING:
            return running
        case TaskStatus.COMPLETED:
            return transitions.complete(running, facts(1, by="w1"), output="out")
        case TaskStatus.FAILED:
            return transitions.fail(running, facts(1, by="w1"), error="broken")
        case TaskStatus.CANCELLED:
            return transitions.cancel(make_task(**fields), facts(1, by="ann"))
        case TaskStatus.EXPIRED:
            return transitions.expire(make_task(**fields), facts(1))
        case TaskStatus.ARCHIVED:
            return transitions.archive(make_any(TaskStatus.FAILED, **fields), facts(2))
