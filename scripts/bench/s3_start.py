"""How soon a task begins on S3: after its submit, and after the death of the worker that had it."""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from statistics import median
from time import perf_counter
from typing import Any

from attrs import frozen

from buquet import Worker
from buquet.clock import SystemClock
from scripts.bench.s3_site import Site
from tests.s3_servers import new_prefix

PATIENCE = 60
"""Seconds that a worker gets to begin a task."""

CEILING = timedelta(seconds=1)
"""How long a worker that has nothing to do pauses between two polls."""

UNTIL_IDLE = 4.0
"""Seconds after which its pauses have grown to the ceiling."""

LEASE = timedelta(seconds=10)

ROUND_TRIPS = 5
"""How many bare requests are made before a submit: the median is what a round trip takes."""


@frozen
class Begun:
    """What a worker tells when a handler begins."""

    at: float
    """On the machine's monotonic clock, in seconds."""
    requests: int
    """How many have been made to the server by then, by everybody."""


@frozen
class WorkerProcess:
    """A worker in a process of its own, which tells when its handlers begin."""

    process: SpawnProcess
    reports: Connection

    def next_begin(self) -> Begun:
        """Wait until it begins a task."""
        if not self.reports.poll(PATIENCE):
            raise RuntimeError(f"The worker began no task within {PATIENCE} seconds.")
        begun: Begun = self.reports.recv()
        return begun


@contextmanager
def worker_process(
    site: Site, prefix: str, *, hangs: bool = False, **settings: Any
) -> Iterator[WorkerProcess]:
    """Run a worker in a process of its own; its handler returns at once, or never."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe(duplex=False)
    process = spawning.Process(
        target=_work, args=(site, prefix, theirs, hangs, settings), daemon=True
    )
    process.start()
    try:
        yield WorkerProcess(process, ours)
    finally:
        process.kill()
        process.join()


def _work(
    site: Site, prefix: str, reports: Connection, hangs: bool, settings: dict[str, Any]
) -> None:
    with site.queue(prefix) as queue:
        worker = Worker(queue, **settings)

        @worker.task("report")
        def report(input: None) -> None:
            reports.send(Begun(perf_counter(), site.wire.counted().total()))
            if hangs:
                threading.Event().wait()

        worker.run()


def starts_elsewhere(site: Site, times: int) -> list[float]:
    """Submit to an idle worker in another process; return the seconds from its return on."""
    prefix = new_prefix()
    with (
        site.queue(prefix) as queue,
        worker_process(site, prefix, threads=1, poll_max=CEILING) as worker,
    ):
        queue.submit("report")
        worker.next_begin()
        seconds = []
        for _ in range(times):
            SystemClock().sleep(UNTIL_IDLE + random.uniform(0, CEILING.total_seconds()))
            queue.submit("report")
            submitted = perf_counter()
            seconds.append(worker.next_begin().at - submitted)
    return seconds


@frozen
class StartHere:
    """How soon a task began in the process that submitted it."""

    since_call: float
    """Seconds since `submit` was called."""
    since_return: float
    """Seconds since it returned."""
    round_trip: float
    """Seconds that a bare request took just before, as a rule."""


def starts_here(site: Site, times: int) -> list[StartHere]:
    """Submit to an idle worker in this process."""
    begun: list[float] = []
    has_begun = threading.Semaphore(0)
    client, starts = site.raw_client(), []
    with site.queue() as queue:
        worker = Worker(queue, check=False)

        @worker.task("report")
        def report(input: None) -> None:
            begun.append(perf_counter())
            has_begun.release()

        working = threading.Thread(target=worker.run)
        working.start()
        for number in range(times + 1):
            SystemClock().sleep(random.uniform(0.2, 0.5))
            trip = round_trip(lambda: _ask(client, site))
            called = perf_counter()
            queue.submit("report")
            returned = perf_counter()
            if not has_begun.acquire(timeout=PATIENCE):
                raise RuntimeError(f"The worker began no task within {PATIENCE} seconds.")
            if number > 0:  # the first one waits for connections to be made
                starts.append(StartHere(begun[-1] - called, begun[-1] - returned, trip))
        worker.stop()
        working.join()
    client.close()
    return starts


def round_trip(ask: Callable[[], object]) -> float:
    """Return the seconds that a request takes as a rule.

    One alone may take longer, on a connection that has not been used for a while; a start would
    look shorter beside it.
    """
    return median(_seconds(ask) for _ in range(ROUND_TRIPS))


def _seconds(ask: Callable[[], object]) -> float:
    begun = perf_counter()
    ask()
    return perf_counter() - begun


def _ask(client: Any, site: Site) -> None:
    client.put_object(Bucket=site.server.bucket, Key="round-trip", Body=b"")


@frozen
class Restart:
    """What it took until a task of a killed worker began elsewhere."""

    seconds: float
    requests: int


def restart(site: Site) -> Restart:
    """Kill a worker in the midst of a task while another is alive."""
    prefix = new_prefix()
    with (
        site.queue(prefix) as queue,
        worker_process(site, prefix, hangs=True, threads=1, lease=LEASE) as dying,
    ):
        queue.submit("report")
        dying.next_begin()
        with worker_process(site, prefix, threads=1, lease=LEASE) as living:
            queue.submit("report")
            living.next_begin()
            # The lease is renewed every third of it: the death is to come anywhere between.
            SystemClock().sleep(random.uniform(0, LEASE.total_seconds() / 3))
            requests, killed = site.wire.counted().total(), perf_counter()
            dying.process.kill()
            again = living.next_begin()
    return Restart(again.at - killed, again.requests - requests)
