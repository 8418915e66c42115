"""One run of a worker: its parts put together, its threads started and stopped in order."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from attrs import frozen

from buquet import transitions
from buquet.clock import Event
from buquet.errors import ConfigurationError, StoreError
from buquet.keys import Entry
from buquet.ledger import host_name
from buquet.model import Batch, WorkerRecord
from buquet.queue import Queue
from buquet.sweeper import Sweeper
from buquet.worker.agenda import Agenda, Assignment, Candidate, Outcome
from buquet.worker.health import HealthFile
from buquet.worker.heartbeat import Heartbeat, Lease
from buquet.worker.holding import Desk
from buquet.worker.holdings import Holdings
from buquet.worker.memory import Memory
from buquet.worker.poller import Poller, PollLoop
from buquet.worker.registry import Registry
from buquet.worker.runner import Runner

logger = logging.getLogger(__name__)


@frozen(kw_only=True)
class Settings:
    """The settings of a worker."""

    id: str
    threads: int
    lease: timedelta
    poll_min: timedelta
    poll_max: timedelta
    sweep_interval: timedelta | None
    grace: timedelta = timedelta(seconds=30)
    """How long running tasks have to end when it is told to stop."""
    task_types: tuple[str, ...] | None = None
    """Which of the types that have a handler it serves; None for all."""
    max_tasks: int | None = None
    """After so many tasks it begins no more, and leaves."""
    health_file: Path | None = None
    """A file to touch after each good poll."""
    check: bool = True
    """Whether to try at the start that the store honours conditions."""

    def __attrs_post_init__(self) -> None:
        """Refuse what is out of range.

        Raises:
            ConfigurationError: saying which, and what it may be.
        """
        _check_count("threads", self.threads, 1000)
        if self.max_tasks is not None:
            _check_count("max_tasks", self.max_tasks, 10**9)
        if not timedelta(seconds=1) <= self.lease <= timedelta(days=1):
            raise ConfigurationError(f"lease must be from a second to a day, not {self.lease!r}.")
        if not timedelta(0) < self.poll_min <= self.poll_max:
            raise ConfigurationError(
                "poll_min must be above 0 and at most poll_max; "
                f"they are {self.poll_min!r}, {self.poll_max!r}."
            )
        if self.sweep_interval is not None and self.sweep_interval < timedelta(seconds=1):
            raise ConfigurationError(
                f"sweep_interval must be at least a second, or None; not {self.sweep_interval!r}."
            )


class Shift:
    """One run of a worker, from its first heartbeat to its last."""

    def __init__(self, queue: Queue, settings: Settings, registry: Registry) -> None:
        if settings.task_types is not None:
            registry = registry.only(settings.task_types)
        self._queue = queue
        self._settings = settings
        self._begun = count(1)
        self._has_done_enough = False
        self._ledger = ledger = queue.ledger
        self._memory = Memory(ledger)
        self.holdings = Holdings(self._memory)
        self.agenda = Agenda(settings.threads)
        self.poller = Poller(
            ledger,
            self.agenda,
            registry,
            is_worth_a_look=self._is_worth_a_look,
            held=self.holdings.due,
            threads=settings.threads,
        )
        self.loop = PollLoop(
            self.poller,
            ledger,
            self.agenda,
            shortest=settings.poll_min,
            longest=settings.poll_max,
        )
        self._memory.on_sooner = self.loop.on_sooner
        if settings.health_file is not None:
            self.loop.on_good_poll = HealthFile(settings.health_file).touch
        # A lease that has run out: there are no claims before the first heartbeat.
        self._lease = Lease(settings.lease, ledger.now())
        self.holdings.desk = Desk(
            worker_id=settings.id,
            threads=settings.threads,
            ledger=ledger,
            agenda=self.agenda,
            registry=registry,
            lease=self._lease,
            on_closed=self.holdings.on_closed,
        )
        self._runner = Runner(ledger, registry)
        self.heartbeat = Heartbeat(
            ledger,
            _record(settings, registry, ledger.now()),
            self._lease,
            running=self.holdings.running,
            progress=self.holdings.progress,
            on_beat=self.holdings.refresh,
            on_lapsed=self.holdings.lose_lease,
        )

    def work(self, stop: Event, *, burst: bool) -> None:
        """Work on threads until `stop` is set or, in a burst, until nothing is due.

        Raises:
            StoreError: if the store can't be reached at the start, or, in a burst, at any time.
        """
        stop_loops = self._ledger.store.clock.event()
        self._begin()
        pool = [
            self._start(f"buquet-pool-{number}", self._serve)
            for number in range(1, self._settings.threads + 1)
        ]
        loops = [self._start("buquet-heartbeat", lambda: self.heartbeat.run(stop_loops))]
        if self._settings.sweep_interval is not None and not burst:
            loops.append(self._start("buquet-sweeper", lambda: self._sweep(stop_loops)))
        try:
            self.loop.run(
                lambda: stop.is_set() or self._has_done_enough,
                next_look=self._next_look,
                burst=burst,
            )
        finally:
            self._end(pool, stop_loops, loops)

    def drain(self) -> None:
        """Do all that is due in the calling thread.

        Raises:
            StoreError: if the store can't be reached.
        """
        self._begin()
        try:
            is_done = False
            while not is_done:
                self.poller.poll_once()
                is_done = True
                while (job := self.agenda.next(block=False)) is not None:
                    self.do(job)
                    is_done = False
        finally:
            self._observe(begin=False)
        self._leave()

    def do(self, job: Assignment | Candidate) -> None:
        """Run a task, or look into a batch."""
        if isinstance(job, Assignment):
            if next(self._begun) == self._settings.max_tasks:
                self._has_done_enough = True
                self.loop.wake()
            job.holding.finish(self._runner.run(job))
            return
        try:
            self.holdings.look_into(job)
        finally:
            self.agenda.looked_into(job)

    # --- begin and end

    def _begin(self) -> None:
        self.heartbeat.beat()
        self._observe(begin=True)
        logger.info("Worker %s is at work.", self._settings.id)

    def _end(
        self, pool: list[threading.Thread], stop_loops: Event, loops: list[threading.Thread]
    ) -> None:
        """Stop in order: no new work, then the pool, and the heartbeat last, which guards it."""
        left = self.agenda.close()
        self.holdings.give_back(
            [Outcome(assignment, transitions.release, wake=True) for assignment in left]
        )
        for thread in pool:
            thread.join()
        stop_loops.set()
        for thread in loops:
            thread.join()
        self._observe(begin=False)
        self._leave()

    def _leave(self) -> None:
        try:
            self._ledger.forget_worker(self._settings.id)
            self._ledger.store.flush()
        except StoreError as error:
            logger.warning("Worker %s could not take its leave: %s", self._settings.id, error)
        logger.info("Worker %s has stopped.", self._settings.id)

    def _observe(self, *, begin: bool) -> None:
        for observer in (self.loop.on_commit, self._memory.on_commit, self._count):
            if begin:
                self._ledger.observers.append(observer)
            else:
                self._ledger.observers.remove(observer)

    # --- threads

    def _start(self, name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        """Be a thread of the pool."""
        while (job := self.agenda.next()) is not None:
            try:
                self.do(job)
            except Exception:
                # Whatever it is, the thread must go on: the lease brings the task back.
                logger.exception("A thread of worker %s met an error.", self._settings.id)

    def _sweep(self, stop: Event) -> None:
        assert self._settings.sweep_interval is not None  # noqa: S101 -- work() has looked
        Sweeper(self._queue, threads=2).run(stop, interval=self._settings.sweep_interval)

    # --- what the parts ask of each other

    def _next_look(self, now: datetime) -> datetime | None:
        looks = (self._memory.next_look(now), self.holdings.next_due(now))
        return min((look for look in looks if look is not None), default=None)

    def _is_worth_a_look(self, entry: Entry, now: datetime) -> bool:
        return not self.holdings.is_held(entry.batch_id) and self._memory.is_worth_a_look(
            entry.key, now
        )

    def _count(self, old: Batch | None, new: Batch) -> None:
        for _, revision in transitions.new_revisions(old, new):
            if revision.by == self._settings.id:
                self.heartbeat.counters[revision.event] += 1


def _check_count(name: str, number: int, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ConfigurationError(f"{name} must be from 1 to {most:,}, not {number!r}.")


def _record(settings: Settings, registry: Registry, now: datetime) -> WorkerRecord:
    return WorkerRecord(
        id=settings.id,
        host=host_name(),
        pid=os.getpid(),
        threads=settings.threads,
        task_types=tuple(sorted(registry.handlers)),
        started_at=now,
        heartbeat_at=now,
        lease_expires_at=now,
    )
