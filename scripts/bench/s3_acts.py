"""How many requests each act makes on S3, and what one sweep makes of much that is late."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat

from attrs import frozen

from buquet import Queue, RetryPolicy, Sweeper, SweepReport, Task, TaskContext, TaskStatus, Worker
from scripts.bench.s3_site import Site, Spent, spent_on

Do = Callable[[Queue, Sequence[Task]], object]
"""Does an act with a queue and the tasks that are in it."""


@frozen
class Act:
    """An act that was done for some tasks, and the requests that it made."""

    what: str
    tasks: int
    requests: Counter[str]


def acts(site: Site) -> Iterator[Act]:
    """Do each act on a queue of its own."""
    yield _act(site, "submit", lambda queue, _: queue.submit("job"))
    yield _act(site, "submit_many, 100 tasks", lambda queue, _: _submit(queue, 100, 100))
    yield from acts_on_one(site)
    yield from _acts_on_many(site)
    yield _act(site, "a worker's run, for each of 200 single tasks", _work, tasks=200)
    yield _act(
        site, "a worker's run, for each of 1,000 in batches of 100", _work, tasks=1000, size=100
    )
    yield _act(
        site, "a worker's run, for each of 40 single tasks retried once", _work_twice, tasks=40
    )
    yield _act(site, "a sweep, for each of 10 late single tasks", _sweep, tasks=10, ttl_seconds=0)
    yield _act(
        site,
        "a sweep, for each of 1,000 late in batches of 100",
        _sweep,
        tasks=1000,
        size=100,
        ttl_seconds=0,
    )


def acts_on_one(site: Site) -> Iterator[Act]:
    """Do each act that is done to one task."""
    yield _act(site, "get", lambda queue, tasks: queue.get(tasks[0].id), tasks=1)
    yield _act(site, "cancel", lambda queue, tasks: queue.cancel(tasks[0].id), tasks=1)
    yield _act(site, "mark_expired", lambda queue, tasks: queue.mark_expired(tasks[0].id), tasks=1)
    yield _act(
        site, "replay", lambda queue, tasks: queue.replay(tasks[0].id), tasks=1, before=_cancel
    )
    yield _act(
        site, "archive", lambda queue, tasks: queue.archive(tasks[0].id), tasks=1, before=_cancel
    )


def _acts_on_many(site: Site) -> Iterator[Act]:
    """Do each act that is done to many tasks, in ten batches of 100."""
    for what, do, before in (
        ("cancel_many", _cancel, None),
        ("list of all", lambda queue, _: list(queue.list()), None),
        ("list of pending", lambda queue, _: list(queue.list(TaskStatus.PENDING)), None),
        ("list of cancelled", lambda queue, _: list(queue.list(TaskStatus.CANCELLED)), _cancel),
        ("stats, all pending", lambda queue, _: queue.stats(), None),
        ("stats, all cancelled", lambda queue, _: queue.stats(), _cancel),
    ):
        of_each = f"{what}, for each of 1,000 in batches of 100"
        yield _act(site, of_each, do, tasks=1000, size=100, before=before)


def _act(
    site: Site,
    what: str,
    do: Do,
    *,
    tasks: int = 0,
    size: int = 1,
    before: Do | None = None,
    ttl_seconds: float | None = None,
) -> Act:
    """Do an act once, after what must come before it."""
    with site.queue() as queue:
        queue.now()
        stored = _submit(queue, tasks, size, ttl_seconds)
        if before is not None:
            before(queue, stored)
        queue.store.flush()
        spent = spent_on(site, lambda: (do(queue, stored), queue.store.flush()))
    return Act(what, max(tasks, 1), spent.requests)


def _submit(
    queue: Queue, tasks: int, size: int, ttl_seconds: float | None = None
) -> Sequence[Task]:
    return queue.submit_many(
        repeat(("job", None), tasks),
        batch_size=size,
        ttl_seconds=ttl_seconds,
        retry_policy=RetryPolicy(initial_seconds=0.001),
    )


def _work(queue: Queue, _: Sequence[Task]) -> None:
    worker = Worker(queue, check=False)
    worker.task("job")(_do_nothing)
    worker.run(burst=True)


def _do_nothing(input: None) -> None:
    pass


def _cancel(queue: Queue, tasks: Sequence[Task]) -> None:
    queue.cancel_many(task.id for task in tasks)


def _work_twice(queue: Queue, tasks: Sequence[Task]) -> None:
    """Run a worker until each task has been retried once, and has ended."""
    worker = Worker(queue, check=False)
    ended: list[Task] = []

    @worker.task("job")
    def fail_once(input: None, context: TaskContext) -> None:
        if context.attempt == 1:
            raise RuntimeError("It is to be retried.")

    @worker.on_success
    def leave_after_all(task: Task) -> None:
        ended.append(task)
        if len(ended) == len(tasks):
            worker.stop()

    with _quiet("buquet.worker.runner"):  # it would tell of each attempt that fails
        worker.run()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


def _sweep(queue: Queue, _: Sequence[Task]) -> SweepReport:
    return Sweeper(queue).sweep_once()


def sweep(site: Site, tasks: int) -> Spent:
    """Expire tasks that were submitted in bulk and are past their deadline with one sweep."""
    with site.queue() as queue:
        _submit(queue, tasks, 100, ttl_seconds=0)
        reports: list[SweepReport] = []
        spent = spent_on(site, lambda: reports.append(_sweep(queue, ())))
    if reports[0].expired != tasks:
        raise RuntimeError(f"{reports[0].expired} tasks expired, not {tasks}.")
    return spent
