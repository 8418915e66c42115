"""How many requests each act makes on S3, and what one sweep makes of much that is late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from attrs import frozen

from buquet import Queue, Sweeper, SweepReport, Task, Worker
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
    yield _act(site, "get", lambda queue, tasks: queue.get(tasks[0].id), tasks=1)
    yield _act(site, "cancel", lambda queue, tasks: queue.cancel(tasks[0].id), tasks=1)
    yield _act(site, "a worker's run, for each of 200 single tasks", _work, tasks=200)
    yield _act(
        site, "a worker's run, for each of 1,000 in batches of 100", _work, tasks=1000, size=100
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


def _act(
    site: Site,
    what: str,
    do: Do,
    *,
    tasks: int = 0,
    size: int = 1,
    ttl_seconds: float | None = None,
) -> Act:
    with site.queue() as queue:
        queue.now()
        stored = _submit(queue, tasks, size, ttl_seconds)
        spent = spent_on(site, lambda: (do(queue, stored), queue.store.flush()))
    return Act(what, max(tasks, 1), spent.requests)


def _submit(
    queue: Queue, tasks: int, size: int, ttl_seconds: float | None = None
) -> Sequence[Task]:
    return queue.submit_many(repeat(("job", None), tasks), batch_size=size, ttl_seconds=ttl_seconds)


def _work(queue: Queue, _: Sequence[Task]) -> None:
    worker = Worker(queue, check=False)
    worker.task("job")(_do_nothing)
    worker.run(burst=True)


def _do_nothing(input: None) -> None:
    pass


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
