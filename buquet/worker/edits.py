"""What a worker changes in a batch that it holds: results, claims, and claims that got lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from buquet.core import transitions
from buquet.core.model import Batch, Task, TaskStatus
from buquet.core.transitions import Facts
from buquet.worker.jobs import Claim, Outcome


def with_outcomes(batch: Batch, outcomes: Sequence[Outcome], facts: Facts) -> Batch:
    """Return the batch with results in it, but for those of claims that were lost."""
    # Of two for one attempt the first counts: it ended before it was given back.
    moves = {each.claim.task.id: each for each in reversed(outcomes)}
    if not moves:
        return batch

    def ended(task: Task) -> Task:
        outcome = moves.get(task.id)
        if outcome is None or not is_held(task, outcome.claim):
            return task
        return outcome.move(task, facts)

    wake = any(outcome.wake for outcome in outcomes)
    return transitions.change_tasks(batch, facts, ended, wake=wake)


def without_orphans(batch: Batch, known: Mapping[str, str | None], facts: Facts) -> Batch:
    """Return the batch without the claims in our name that no thread knows of.

    They come from a write that took effect although that was not clear at the time. Our own
    heartbeat would keep them from everybody for as long as this worker lives.

    Args:
        batch: the batch.
        known: the lease ids of the claims that are known, by the ids of their tasks.
        facts: when, and in whose name.
    """

    def freed(task: Task) -> Task:
        is_orphan = task.worker_id == facts.by and task.lease_id != known.get(task.id)
        return transitions.release(task, facts) if is_orphan and task.lease_id else task

    return transitions.change_tasks(batch, facts, freed)


def with_claims(
    batch: Batch, chosen: Collection[str], facts: Facts, *, lease_id: str, until: datetime
) -> Batch:
    """Return the batch with the chosen tasks claimed."""
    if not chosen:
        return batch

    def claimed(task: Task) -> Task:
        if task.id not in chosen:
            return task
        return transitions.claim(task, facts, lease_id=lease_id, lease_expires_at=until)

    return transitions.change_tasks(batch, facts, claimed)


def is_held(task: Task | None, claim: Claim) -> bool:
    """Return whether a task is still under a claim."""
    return (
        task is not None
        and task.status is TaskStatus.RUNNING
        and task.lease_id == claim.task.lease_id
    )
