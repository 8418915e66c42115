"""One run of a worker: its parts put together, its threads started and stopped in order."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from attrs import define, field, frozen

from buquet.client.hooks import Hook, guarded
from buquet.client.queue import Queue
from buquet.clock import Clock, Event
from buquet.core.batch import Commit
from buquet.core.model import TaskStatus, WorkerRecord
from buquet.errors import StoreError, StoreUnavailable, TooManyLostThreads
from buquet.ledger.ledger import Ledger, host_name
from buquet.sweeper import Sweeper
from buquet.worker.admission import Admission
from buquet.worker.claimed_batch import Shared
from buquet.worker.claims import Claims
from buquet.worker.dispatcher import Dispatcher
from buquet.worker.forks import end_if_forked
from buquet.worker.health import HealthFile
from buquet.worker.heartbeat import Heartbeat
from buquet.worker.jobs import Candidate, Claim, Job, Outcome
from buquet.worker.lease import Lease
from buquet.worker.pacer import Pacer
from buquet.worker.poll_loop import PollLoop
from buquet.worker.poller import Poller
from buquet.worker.pool import Pool
from buquet.worker.read_after import ReadAfter
from buquet.worker.registry import Registry
from buquet.worker.runner import Runner
from buquet.worker.service import Service, Services, Vitals
from buquet.worker.settings import Settings
from buquet.worker.watchdog import TimedAttempt, Watchdog

logger = logging.getLogger(__name__)

STORE_THERE_WITHIN = 30.0
"""Seconds after which a store that is still away at the start is an error: a server restarts within
them, and a mistyped endpoint is reported soon enough."""

STORE_AGAIN = 1.0
"""Seconds between two tries. Each try has a patience of its own, that of a call."""

LAST_WRITES_WITHIN = 5.0
"""Seconds within which a worker that stops tries again to write what became of its claims."""

LAST_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0)
"""Seconds between these tries."""

SERVICES_END_WITHIN = 2.0
"""Seconds that it waits for a sweep that is under way: another will do what is left of it."""


@frozen
class RunReport:
    """What a run has left behind."""

    left: int
    """Tasks that are due later, since this run has retried or rescheduled them, and those that a
    limit held back when it ended."""


@define
class WorkerHooks:
    """The hooks of a worker, by occasion."""

    startup: list[Hook] = field(factory=list)
    shutdown: list[Hook] = field(factory=list)
    success: list[Hook] = field(factory=list)
    error: list[Hook] = field(factory=list)


class Run:
    """One run of a worker, from its first heartbeat to its last.

    Args:
        queue: whose tasks to run.
        settings: those of the worker.
        registry: its handlers.
        hooks: its hooks.
        burst: whether it ends when nothing is due.
        is_alone: whether the calling thread does it all, without a pool or a poll loop.
    """

    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        registry: Registry,
        hooks: WorkerHooks,
        *,
        burst: bool = False,
        is_alone: bool = False,
    ) -> None:
        if settings.task_types is not None:
            registry = registry.only(settings.task_types)
        self._queue = queue
        self._settings = settings
        self._registry = registry
        self._hooks = hooks
        self._burst = burst
        self._pid = os.getpid()
        self._begun = count(1)
        self._has_done_enough = False
        self._later: set[str] = set()
        self.is_calling_hooks = False
        """Whether it is calling the hooks of its start or end, in the thread of the run."""
        ledger = self._ledger = queue.ledger
        clock, threads = ledger.store.clock, settings.threads
        self.pacer = Pacer(ledger, shortest=settings.poll_min, longest=settings.poll_max)
        self.dispatcher = Dispatcher(threads, registry, self.pacer, is_burst=burst)
        self.read_after = ReadAfter(ledger, self.pacer)
        # A lease that has run out: there are no claims before the first heartbeat.
        self.lease = Lease(settings.lease, ledger.now())
        shared = Shared(
            worker_id=settings.id,
            ledger=ledger,
            dispatcher=self.dispatcher,
            admission=Admission(self.dispatcher, registry, self.pacer, threads),
            registry=registry,
            lease=self.lease,
            gathers=not is_alone,
        )
        self.claims = Claims(shared, self.read_after)
        self.poller = Poller(
            ledger, self.dispatcher, registry, self.claims, self.read_after, threads=threads
        )
        self.poll_loop = PollLoop(
            ledger,
            self.poller,
            self.pacer,
            self.dispatcher,
            self.claims,
            self.read_after,
            registry,
            HealthFile(settings.health_file) if settings.health_file is not None else None,
        )
        record = _record(settings, registry, ledger)
        self.heartbeat = Heartbeat(ledger, record, self.lease, self.claims)
        self.watchdog = Watchdog(clock, self._give_up)
        self._runner = Runner(ledger, registry, self.lease, self.watchdog, queue.hooks, hooks.error)
        self._vitals = Vitals(self.pacer)
        self.pool = Pool(clock, threads, self._serve, self._vitals)

    def work(self, stop: Event) -> RunReport:
        """Work on threads until `stop` is set or, in a burst, until nothing is due.

        Raises:
            StoreError: if the store can't be used at the start, or, in a burst, at any time.
            TooManyLostThreads: if too many handlers do not react to their timeouts.
            BaseException: what a thread of the worker has died of.
        """
        services = self._services()
        first_beat = partial(once_there, self.heartbeat.beat, self._ledger.store.clock, stop)

        def should_stop() -> bool:
            has_failed = self._vitals.error is not None or self._has_lost_too_many()
            return stop.is_set() or self._has_done_enough or has_failed

        with self._at_work(first_beat):
            try:
                self.pool.start()
                services.start()
                poll = self.poll_loop.run_burst if self._burst else self.poll_loop.run
                poll(should_stop)
            finally:
                self._end(services)
        if self._vitals.error is not None:
            raise self._vitals.error
        if self._has_lost_too_many():
            raise TooManyLostThreads(self.pool.lost_threads)
        return RunReport(len(self._later))

    def drain(self) -> RunReport:
        """Do all that is due in the calling thread; timeouts and limits are not waited for.

        Raises:
            StoreError: if the store can't be reached.
        """
        with self._at_work(self.heartbeat.beat):
            try:
                scan = self.poller.poll_once()
                while self._do_what_there_is():
                    self._write_what_is_left()
                    scan = self.poller.poll_once()
            finally:
                self._end_claims()
        return RunReport(len(self._later) + scan.held_back)

    def _do_what_there_is(self) -> bool:
        has_worked = False
        while (job := self.dispatcher.next(block=False)) is not None:
            if not self.lease.allows_claims(self._ledger.now()):
                self.heartbeat.beat()
            self.do(job)
            self._queue.hooks.run_pending()
            has_worked = True
        return has_worked

    def _write_what_is_left(self) -> None:
        while self.claims.count_unwritten():
            if problem := self.claims.problem(only_hopeless=True):
                raise problem
            self._ledger.store.clock.sleep(STORE_AGAIN)
            self.claims.write_gathered()

    def do(self, job: Job) -> bool:
        """Do a job; return whether the thread is still of use."""
        if isinstance(job, Claim):
            return self._run_task(job)
        if isinstance(job, Candidate):
            try:
                self.claims.read(job)
            finally:
                self.dispatcher.done_reading(job)
        return True

    def hurry(self) -> None:
        """Do not wait for running tasks any longer."""
        self.pool.hurry()

    def wake(self) -> None:
        """Have the poll loop see that it is to stop."""
        self.pacer.wake()

    def _run_task(self, claim: Claim) -> bool:
        if next(self._begun) == self._settings.max_tasks:
            self._has_done_enough = True
            self.pacer.wake()
        outcome = self._runner.run(claim)
        if outcome is None:
            return False
        self._finish(outcome)
        return True

    def _finish(self, outcome: Outcome) -> None:
        try:
            self.claims.finish(outcome)
        finally:
            self.dispatcher.done(outcome.claim)

    # --- begin and end

    @contextmanager
    def _at_work(self, first_beat: Callable[[], object]) -> Iterator[None]:
        """Begin with a first heartbeat, and unregister in the end."""
        self._begin(first_beat)
        observers = (self.pacer.observe, self.read_after.observe, self._observe)
        self._ledger.observers.extend(observers)
        try:
            with self._queue.hooks.hosted(self.dispatcher.call_hooks):
                yield
        finally:
            for observer in observers:
                self._ledger.observers.remove(observer)
            self._leave()

    def _begin(self, first_beat: Callable[[], object]) -> None:
        try:
            with self._calling_hooks():
                for hook in self._hooks.startup:
                    hook()
            first_beat()
        except BaseException:
            self._say_that_it_ends()
            self._call_shutdown_hooks()
            raise
        logger.info("Worker %s is at work.", self._settings.id)

    def _services(self) -> Services:
        stop = self._ledger.store.clock.event()
        services = [
            Service("heartbeat", partial(self.heartbeat.run, stop), stop.set),
            Service("watchdog", self.watchdog.run, self.watchdog.stop),
        ]
        interval = self._settings.sweep_interval
        if interval is not None and not self._burst:
            sweeper = Sweeper(self._queue, threads=2)
            run = partial(sweeper.run, stop, interval=interval)
            services.append(Service("sweeper", run, stop.set))
        return Services(services, self._vitals)

    def _end(self, services: Services) -> None:
        """Stop in order: no new work, then the pool, and the heartbeat last, which guards it."""
        self._say_that_it_ends()
        try:
            self.claims.give_back(self.dispatcher.close())
            if not self.pool.join(self._settings.grace):
                running = len(self.claims.all())
                logger.warning("Time is up: running tasks are released (%d).", running)
            self._end_claims()
        finally:
            services.stop(SERVICES_END_WITHIN)

    def _say_that_it_ends(self) -> None:
        if self._settings.on_ending is not None:
            self._settings.on_ending()

    def _end_claims(self) -> None:
        """Give back what is still claimed, and wait a moment for what is being written."""
        left = self.claims.all()
        for claim in left:
            claim.lease_lost = True
        self.claims.give_back(left)
        clock = self._ledger.store.clock
        end = clock.monotonic() + LAST_WRITES_WITHIN
        for pause in LAST_PAUSES:
            if not self.claims.count_unwritten():
                return
            if clock.monotonic() < end:
                clock.sleep(pause)
                self.claims.write_gathered(at_once=True)
        if unwritten := self.claims.count_unwritten():
            logger.error(
                "Worker %s could not write what became of its claims in %d batches. Other workers "
                "take them over when its lease has run out.",
                self._settings.id,
                unwritten,
            )

    def _leave(self) -> None:
        try:
            self._ledger.workers.forget(self._settings.id)
            self._ledger.store.flush()
        except StoreError as error:
            logger.warning("Worker %s could not unregister: %s", self._settings.id, error)
        self._call_shutdown_hooks()
        logger.info("Worker %s has stopped.", self._settings.id)

    def _call_shutdown_hooks(self) -> None:
        with self._calling_hooks():
            for hook in self._hooks.shutdown:
                guarded(hook)

    @contextmanager
    def _calling_hooks(self) -> Iterator[None]:
        self.is_calling_hooks = True
        try:
            yield
        finally:
            self.is_calling_hooks = False
            end_if_forked(self._pid, sys.exception())

    # --- threads

    def _serve(self) -> None:
        """Be a thread of the pool."""
        while (job := self.dispatcher.next()) is not None:
            if not self.do(job):
                return
            try:
                self._queue.hooks.run_pending()
            finally:
                end_if_forked(self._pid)

    def _give_up(self, attempt: TimedAttempt) -> None:
        """Replace a thread that does not react; the new one writes that the attempt is over."""
        task = attempt.claim.task
        logger.error(
            "The thread of task %s (%s) does not react and is given up; it may still be running.",
            task.id,
            task.task_type,
        )
        attempt.claim.lease_lost = True

        def serve() -> None:
            self.heartbeat.counters["lost_threads"] += 1
            self._finish(Outcome(attempt.claim, self._runner.timed_out(task)))
            self._serve()

        self.pool.replace(attempt.thread, serve)
        if self._has_lost_too_many():
            self.pacer.wake()

    def _has_lost_too_many(self) -> bool:
        return self.pool.lost_threads > self._settings.max_lost_threads

    def _observe(self, commit: Commit) -> None:
        """Count what this worker has written, and collect the hooks that are due."""
        for task, revision in commit.revisions:
            if revision.by == self._settings.id:
                self.heartbeat.counters[revision.event] += 1
                if revision.event == "completed":
                    self._queue.hooks.collect(self._hooks.success, task)
                if revision.event in ("retried", "rescheduled"):
                    self._later.add(task.id)
            if task.status is not TaskStatus.PENDING:
                self._later.discard(task.id)


def once_there(act: Callable[[], None], clock: Clock, stop: Event) -> bool:
    """Do what needs the store, again and again while that is unavailable.

    Returns:
        Whether it was done; it was not if `stop` was set first.

    Raises:
        StoreUnavailable: if the store is away for too long.
        StoreError: at once, if waiting would not help.
    """
    end = clock.monotonic() + STORE_THERE_WITHIN
    while not stop.is_set():
        try:
            act()
        except StoreUnavailable as error:
            if clock.monotonic() >= end:
                raise
            logger.warning("The worker can't start yet, and tries again: %s", error)
            stop.wait(STORE_AGAIN)
        else:
            return True
    return False


def _record(settings: Settings, registry: Registry, ledger: Ledger) -> WorkerRecord:
    now = ledger.now()
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
