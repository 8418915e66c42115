"""What it costs to look for work among many tasks, and to expire many at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

from attrs import frozen

from buquet import Queue, Sweeper
from buquet.store import MemoryStore, Store
from buquet.store.sqlite import SqliteStore
from buquet.testing import FakeClock
from buquet.worker.jobs import Claim
from buquet.worker.registry import Registry
from buquet.worker.run import Run, WorkerHooks
from buquet.worker.settings import Settings as WorkerSettings
from scripts.bench.counting import CountingStore
from scripts.bench.figures import Beside, Figure, at_most, ratios
from scripts.bench.settings import Settings, folder

MANY = 1_000_000
LATE = 100_000
BATCH = 100

STORES = ("memory", "SQLite")


def measure(settings: Settings) -> Iterator[Figure]:
    """Compare a store that holds many tasks with one that holds few, and expire many."""
    for kind in STORES:
        for backlog in BACKLOGS:
            yield from among_many(kind, backlog, settings)
    for kind in STORES:
        yield from expire(kind, settings)


# --- looking for work among many tasks


@frozen
class Backlog:
    """Few pending tasks and many, such that the few fill a page of the index as well.

    A listing gives a page of entries at the most, so it takes longer until there are so many, and
    no longer from then on.
    """

    what: str
    delay: timedelta
    few: int
    few_in_batches_of: int


BACKLOGS = (
    Backlog("for later", timedelta(days=1), 1_000, 1),
    Backlog("due", timedelta(0), 100_000, BATCH),  # a claim is to meet batches of the same size
)


@frozen
class Cost:
    """What one act took."""

    seconds: float
    requests: float


def among_many(kind: str, backlog: Backlog, settings: Settings) -> Iterator[Figure]:
    """Compare the acts of workers and sweepers among few tasks and among many."""
    total = settings.sized(MANY)
    fewer = min(backlog.few, total)
    with folder() as where:
        few = filled(kind, where / "few", fewer, backlog.few_in_batches_of, backlog.delay)
        many = filled(kind, where / "many", total, BATCH, backlog.delay)
        runs: dict[str, list[tuple[Cost, Cost]]] = {act.name: [] for act in ACTS}
        for _ in range(settings.runs):
            for act in ACTS:
                runs[act.name].append((act.cost(few), act.cost(many)))
        few.close()
        many.close()
    for name, costs in runs.items():
        what = f"{name}, {total:,} {backlog.what}, {kind}"
        yield of_requests(what, costs, fewer)
        yield of_time(what, costs, fewer)


def filled(kind: str, path: Path, tasks: int, batch: int, delay: timedelta) -> Store:
    """Return a store with so many pending tasks, and a clock that stands."""
    print(f"storing {tasks:,} tasks: {kind}", file=sys.stderr)
    clock = FakeClock()
    store = new_store(kind, path, clock)
    items = (("noop", number) for number in range(tasks))
    for _ in Queue(store).submit_stream(items, batch_size=batch, delay=delay):
        pass
    return store


def new_store(kind: str, path: Path, clock: FakeClock) -> Store:
    """Return an empty store."""
    return MemoryStore(clock) if kind == "memory" else SqliteStore(path, clock=clock)


Prepare = Callable[[Queue], Callable[[], object]]
"""Does what must come first, and returns what is to be measured."""


@frozen
class Act:
    """Something that workers or sweepers do all the time."""

    name: str
    prepare: Prepare
    repeats: int
    """How often it is done for one run; the median counts."""

    def cost(self, store: Store) -> Cost:
        """Do it some times on a store; return what it takes as a rule."""
        costs = [self._once(store) for _ in range(self.repeats)]
        return Cost(median(each.seconds for each in costs), median(each.requests for each in costs))

    def _once(self, store: Store) -> Cost:
        counting = CountingStore(store)
        act = self.prepare(Queue(counting))
        before = counting.requests().total()
        begun = perf_counter()
        act()
        seconds = perf_counter() - begun
        return Cost(seconds, counting.requests().total() - before)


def poll(queue: Queue) -> Callable[[], object]:
    """Prepare the first poll of a worker; a later one in a backlog starts at a random point."""
    return new_run(queue).poller.poll_once


def claim(queue: Queue) -> Callable[[], object]:
    """Prepare the claim of what a poll finds, and the end of a task that is claimed."""
    queue.submit("noop", 0)
    run = new_run(queue)
    run.poller.poll_once()

    def act() -> None:
        while (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)
            if isinstance(job, Claim):
                return
        raise RuntimeError("There was no task to claim, though one had just been submitted.")

    return act


def sweep(queue: Queue) -> Callable[[], object]:
    """Prepare a sweep by a sweeper that has swept before."""
    sweeper = Sweeper(queue, threads=1)
    sweeper.sweep_once()
    return sweeper.sweep_once


ACTS = (Act("a poll", poll, 20), Act("a sweep", sweep, 3), Act("a claim and its end", claim, 10))


def new_run(queue: Queue) -> Run:
    """Return the parts of a worker, without its threads."""
    registry = Registry()
    registry.add("noop", noop, timeout_seconds=300, limit=None)
    second = timedelta(seconds=1)
    settings = WorkerSettings(
        id="bench",
        threads=8,
        lease=60 * second,
        poll_min=second,
        poll_max=5 * second,
        sweep_interval=None,
    )
    run = Run(queue, settings, registry, WorkerHooks())
    run.heartbeat.beat()
    return run


def noop(input: int) -> None:
    """Do nothing."""


def of_requests(what: str, costs: list[tuple[Cost, Cost]], fewer: int) -> Figure:
    """Return how many times the requests an act takes among many tasks."""
    few, many = (median(pair[place].requests for pair in costs) for place in (0, 1))
    return Figure(
        what=f"{what}: requests",
        unit="x",
        runs=tuple(many.requests / few.requests for few, many in costs),
        aim=at_most(1.2),
        note=f"{few:g} among {fewer:,}, {many:g} among many",
    )


def of_time(what: str, costs: list[tuple[Cost, Cost]], fewer: int) -> Figure:
    """Return how many times as long an act takes among many tasks."""
    few, many = (
        Beside(
            who="buquet",
            how=how,
            version=version("buquet"),
            unit="ms",
            runs=tuple(1000 * pair[place].seconds for pair in costs),
        )
        for place, how in enumerate((f"among {fewer:,}", "among many"))
    )
    runs = ratios(many, few)
    return Figure(what=f"{what}: time", unit="x", runs=runs, aim=at_most(1.2), beside=(few, many))


# --- expiring many at once


def expire(kind: str, settings: Settings) -> Iterator[Figure]:
    """Have one sweep expire many tasks that were submitted in batches."""
    tasks = settings.sized(LATE)
    requests, rates = [], []
    for number in range(settings.runs):
        with folder() as where:
            written, seconds = _sweep_late(kind, where / f"late-{number}", tasks)
        requests.append(written / tasks)
        rates.append(tasks / seconds)
    yield Figure(
        what=f"a sweep of {tasks:,} late tasks in batches, {kind}",
        unit="PUT/task",
        runs=tuple(requests),
        aim=at_most(0.03),
        beside=(
            Beside(who="buquet", version=version("buquet"), unit="tasks/s", runs=tuple(rates)),
        ),
        note="PUT: of entries, of batches, and bulk deletes",
    )


def _sweep_late(kind: str, path: Path, tasks: int) -> tuple[int, float]:
    """Return how many requests wrote something, and the seconds that the sweep took."""
    clock = FakeClock()
    store = new_store(kind, path, clock)
    items = [("noop", number) for number in range(tasks)]
    Queue(store).submit_many(items, batch_size=BATCH, ttl_seconds=60)
    clock.advance(minutes=2)
    counting = CountingStore(store)
    begun = perf_counter()
    report = Sweeper(Queue(counting)).sweep_once()
    seconds = perf_counter() - begun
    store.close()
    if report.expired != tasks:
        raise RuntimeError(f"The sweep has expired {report.expired} of {tasks} tasks.")
    made = counting.requests()
    return made["put"] + made["delete"], seconds
