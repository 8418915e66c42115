"""SQLite: tasks submitted one by one and many at once, and drained, beside other queues."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from attrs import frozen

from scripts.bench import disk, redis_server
from scripts.bench.figures import Aim, Figure, at_least, ratios
from scripts.bench.race import Contestant, Times, install, race, rate
from scripts.bench.settings import Settings

TASKS = 2000
TASKS_BESIDE_REDIS = 500

ENQUEUE = ("submit",)
DRAIN = ("drain",)
BOTH = ("submit", "drain")

HUEY_WORKERS = 4
"""Of 1, 2, 4 and 8 threads, none did better."""


@frozen
class Outcome:
    """What a race came to."""

    tasks: int
    times: Times

    def compare(
        self,
        what: str,
        parts: Sequence[str],
        ours: Contestant,
        others: Sequence[Contestant],
        aim: Aim | None = None,
    ) -> Figure:
        """Return how many times as fast as the first of the others we are, in some parts."""
        rates = [rate(each, self.times, self.tasks, parts) for each in (ours, *others)]
        return Figure(what=what, unit="x", runs=ratios(*rates[:2]), aim=aim, beside=tuple(rates))


def measure(settings: Settings) -> Iterator[Figure]:
    """Race against queues on SQLite, and against queues on Redis if that is there."""
    yield disk.sync(settings)
    yield from on_sqlite(settings)
    if redis_server.version() is None:
        print("rq and celery are left out: no redis-server is on PATH.", file=sys.stderr)
    else:
        yield from beside_redis(settings)


def on_sqlite(settings: Settings) -> Iterator[Figure]:
    """Race against queues that keep their tasks in a SQLite file, too."""
    ours, many = ourselves()
    peers = [huey(fsync="on"), huey(fsync="off"), persist_queue()]
    peers += [litequeue(synchronous=each) for each in ("FULL", "NORMAL")]
    tasks = settings.sized(TASKS)
    outcome = Outcome(tasks, race([ours, peers[0], many, *peers[1:]], tasks, settings))
    yield outcome.compare("submit one by one / huey", ENQUEUE, ours, peers, at_least(1.5))
    yield outcome.compare("drain of single tasks / huey", DRAIN, ours, peers, at_least(2.5))
    yield outcome.compare("submit_many and drain / huey", BOTH, many, peers, at_least(8))


def beside_redis(settings: Settings) -> Iterator[Figure]:
    """Race against queues that keep their tasks on a Redis server of this machine."""
    ours, _ = ourselves()
    tasks = settings.sized(TASKS_BESIDE_REDIS)
    with ExitStack() as servers:
        durable = servers.enter_context(redis_server.server(redis_server.DURABLE))
        quick = servers.enter_context(redis_server.server(redis_server.QUICK))
        peers = [
            on_redis(name, socket, is_durable=socket is durable)
            for name in ("rq", "celery")
            for socket in (durable, quick)
        ]
        outcome = Outcome(tasks, race([ours, *peers], tasks, settings))
    yield outcome.compare("submit one by one / rq on Redis", ENQUEUE, ours, peers)
    yield outcome.compare("drain of single tasks / rq on Redis", DRAIN, ours, peers)


def ourselves() -> tuple[Contestant, Contestant]:
    """Return buquet with single tasks, and with many at once."""

    def contestant(how: str, *arguments: str) -> Contestant:
        return Contestant(
            who="buquet",
            how=how,
            program="run_buquet.py",
            python=Path(sys.executable),
            version=version("buquet"),
            arguments=arguments,
        )

    return contestant("submit"), contestant("submit_many", "--many")


def huey(*, fsync: str) -> Contestant:
    """Return huey with SQLite's `synchronous=FULL`, as by default, or with OFF."""
    python, found = install("huey")
    return Contestant(
        who="huey",
        how=f"fsync {fsync}",
        program="run_huey.py",
        python=python,
        version=found,
        arguments=(f"--fsync={fsync}", f"--workers={HUEY_WORKERS}"),
        note="" if fsync == "on" else "loses tasks with the power",
    )


def persist_queue() -> Contestant:
    """Return persist-queue, which has SQLite's `synchronous=FULL`."""
    python, found = install("persist-queue")
    return Contestant(
        who="persist-queue", program="run_persist_queue.py", python=python, version=found
    )


def litequeue(*, synchronous: str) -> Contestant:
    """Return litequeue with SQLite's `synchronous` as told; it is NORMAL by default."""
    python, found = install("litequeue")
    return Contestant(
        who="litequeue",
        how=synchronous,
        program="run_litequeue.py",
        python=python,
        version=found,
        arguments=(f"--synchronous={synchronous}",),
        note="" if synchronous == "FULL" else "loses the last tasks with the power",
    )


def on_redis(name: str, socket: Path, *, is_durable: bool) -> Contestant:
    """Return rq or celery on the server with this socket."""
    python, found = install(name, "redis", "packaging")
    return Contestant(
        who=name,
        how="appendfsync always" if is_durable else "no file",
        program=f"run_{name}.py",
        python=python,
        version=f"{found} on Redis {redis_server.version()}",
        arguments=(f"--socket={socket}",),
        note="" if is_durable else "loses tasks with the server",
    )
