"""One run of a worker: its parts put together, its threads started and stopped in order."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

from attrs import evolve

from buquet.client.hooks import guarded
from buquet.client.queue import Queue
from buquet.clock import Event
from buquet.core import transitions
from buquet.core.batch import Commit
from buquet.core.keys import Entry
from buquet.core.model import Task, WorkerRecord
from buquet.errors import StoreError, TooManyLostThreads
from buquet.ledger.ledger import host_name
from buquet.sweeper import Sweeper
from buquet.worker.agenda import Agenda, Assignment, Errand, Job, Outcome
from buquet.worker.claiming import Claiming
from buquet.worker.health import HealthFile
from buquet.worker.heartbeat import Heartbeat, Lease
from buquet.worker.holding import Desk
from buquet.worker.holdings import Holdings
from buquet.worker.hooks import Hooks
from buquet.worker.memory import Memory
from buquet.worker.opening import once_there
from buquet.worker.poller import Poller, PollLoop
from buquet.worker.pool import Pool, start_thread
from buquet.worker.registry import LATENCY_SECONDS, Registry
from buquet.worker.runner import Runner
from buquet.worker.settings import Settings
from buquet.worker.watchdog import Watch, Watchdog

logger = logging.getLogger(__name__)

LAST_WRITES_WITHIN = 5.0
"""Seconds within which a worker that stops tries again to write what became of its claims."""

LAST_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0)
"""Seconds between these tries."""

LOOPS_END_WITHIN = 2.0
"""Seconds that it waits for a sweep that is under way: another will do what is left of it."""

WAITS_AT_MOST = 5.0
"""Seconds that a task claimed ahead waits for a thread before others may have it."""


class Shift:
    """One run of a worker, from its first heartbeat to its last."""

    def __init__(self, queue: Queue, settings: Settings, registry: Registry, hooks: Hooks) -> None:
        if settings.task_types is not None:
            registry = registry.only(settings.task_types)
        self._queue = queue
        self._settings = settings
        self._registry = registry
        self._hooks = hooks
        self._begun = count(1)
        self._has_done_enough = False
        self._ledger = ledger = queue.ledger
        self._memory = Memory(ledger)
        self.holdings = Holdings(self._memory)
        self.agenda = Agenda(settings.threads)
        self.agenda.done_meanwhile = lambda task_type: registry.ahead(
            task_type, settings.threads, LATENCY_SECONDS
        )
        self.poller = self._make_poller()
        self.loop = self._make_loop()
        # A lease that has run out: there are no claims before the first heartbeat.
        self._lease = Lease(settings.lease, ledger.now())
        self.holdings.desk = self._make_desk()
        self.watchdog = Watchdog(ledger.store.clock, self._give_up)
        self._runner = Runner(ledger, registry, self.watchdog, self._on_error)
        self.pool = Pool(ledger.store.clock, settings.threads, self._serve)
        self.heartbeat = self._make_heartbeat()

    def work(self, stop: Event, *, burst: bool) -> None:
        """Work on threads until `stop` is set or, in a burst, until nothing is due.

        Raises:
            StoreError: if the store can't be used at the start, or, in a burst, at any time.
            TooManyLostThreads: if too many handlers do not react to their timeouts.
        """
        clock = self._ledger.store.clock
        stop_loops = clock.event()
        loops: list[threading.Thread] = []
        with self._at_work(lambda: once_there(self.heartbeat.beat, clock, stop)):
            try:
                self.pool.start()
                loops += self._start_loops(stop_loops, may_sweep=not burst)
                self.loop.run(
                    lambda: stop.is_set() or self._has_done_enough or self._has_lost_too_many(),
                    next_look=self._next_look,
                    burst=burst,
                )
            finally:
                self._end(stop_loops, loops)
        if self._has_lost_too_many():
            raise TooManyLostThreads(self.pool.lost)

    def drain(self) -> None:
        """Do all that is due in the calling thread; timeouts are not watched.

        Raises:
            StoreError: if the store can't be reached.
        """
        self.holdings.desk = evolve(self.holdings.desk, gathers=False)
        with self._at_work(self.heartbeat.beat):
            try:
                is_done = False
                while not is_done:
                    self.poller.poll_once()
                    is_done = True
                    while (job := self.agenda.next(block=False)) is not None:
                        self._beat_if_due()
                        self.do(job)
                        self._queue.hooks.run_pending()
                        is_done = False
            finally:
                self._end_claims()

    def _beat_if_due(self) -> None:
        """Renew the lease between two tasks: without it there are no more claims."""
        if not self._lease.allows_claims(self._ledger.now()):
            self.heartbeat.beat()

    def do(self, job: Job) -> bool:
        """Run a task, or look into a batch; tell whether the thread is still of use."""
        if isinstance(job, Errand):
            return True
        if isinstance(job, Assignment):
            return self._do_task(job)
        try:
            self.holdings.look_into(job)
        finally:
            self.agenda.looked_into(job)
        return True

    def hurry(self) -> None:
        """Do not wait for running tasks any longer."""
        self.pool.hurry()

    def _do_task(self, assignment: Assignment) -> bool:
        if next(self._begun) == self._settings.max_tasks:
            self._has_done_enough = True
            self.loop.wake()
        outcome = self._runner.run(assignment)
        if outcome is None:
            return False
        self._finish(outcome)
        return True

    def _finish(self, outcome: Outcome) -> None:
        try:
            outcome.assignment.holding.finish(outcome)
        finally:
            self.agenda.done(outcome.assignment)

    # --- the parts

    def _make_poller(self) -> Poller:
        return Poller(
            self._ledger,
            self.agenda,
            self._registry,
            is_worth_a_look=self._is_worth_a_look,
            held=self.holdings.due,
            threads=self._settings.threads,
        )

    def _make_loop(self) -> PollLoop:
        loop = PollLoop(
            self.poller,
            self._ledger,
            self.agenda,
            shortest=self._settings.poll_min,
            longest=self._settings.poll_max,
        )
        loop.on_poll = self._write_what_waits
        self._memory.on_sooner = loop.on_sooner
        if self._settings.health_file is not None:
            loop.on_good_poll = HealthFile(self._settings.health_file).touch
        return loop

    def _make_desk(self) -> Desk:
        return Desk(
            worker_id=self._settings.id,
            ledger=self._ledger,
            agenda=self.agenda,
            claiming=Claiming(self.agenda, self._registry, self._settings.threads, self.loop.wake),
            registry=self._registry,
            lease=self._lease,
            on_closed=self.holdings.on_closed,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._ledger,
            _record(self._settings, self._registry, self._ledger.now()),
            self._lease,
            running=self.holdings.running,
            progress=self.holdings.progress,
            on_beat=self.holdings.refresh,
            on_lapsed=self.holdings.lose_lease,
        )

    # --- begin and end

    @contextmanager
    def _at_work(self, first_beat: Callable[[], object]) -> Iterator[None]:
        """Begin, with a first heartbeat, and in the end take leave."""
        self._begin(first_beat)
        try:
            with self._queue.hooks.hosted(self.agenda.add_errand):
                yield
        finally:
            self._observe(begin=False)
            self._leave()

    def _begin(self, first_beat: Callable[[], object]) -> None:
        try:
            for hook in self._hooks.startup:
                hook()
            first_beat()
        except Exception:
            self._say_that_it_ends()
            self._call_shutdown_hooks()
            raise
        self._observe(begin=True)
        logger.info("Worker %s is at work.", self._settings.id)

    def _start_loops(self, stop: Event, *, may_sweep: bool) -> Iterator[threading.Thread]:
        yield start_thread("buquet-heartbeat", lambda: self.heartbeat.run(stop))
        yield start_thread("buquet-watchdog", self.watchdog.run)
        if self._settings.sweep_interval is not None and may_sweep:
            yield start_thread("buquet-sweeper", lambda: self._sweep(stop))

    def _end(self, stop_loops: Event, loops: list[threading.Thread]) -> None:
        """Stop in order: no new work, then the pool, and the heartbeat last, which guards it."""
        self._say_that_it_ends()
        try:
            self._give_back(self.agenda.close())
            if not self.pool.join(self._settings.grace):
                count = len(self.holdings.assignments())
                logger.warning("%d running tasks are given back: time is up.", count)
            self._end_claims()
        finally:
            stop_loops.set()
            self.watchdog.stop()
            for thread in loops:
                thread.join(LOOPS_END_WITHIN)

    def _say_that_it_ends(self) -> None:
        if self._settings.on_ending is not None:
            self._settings.on_ending()

    def _end_claims(self) -> None:
        """Give back what is still claimed, and wait a moment for what is being written."""
        left = self.holdings.assignments()
        for assignment in left:
            assignment.lease_lost = True
        self._give_back(left)
        clock = self._ledger.store.clock
        end = clock.monotonic() + LAST_WRITES_WITHIN
        for pause in LAST_PAUSES:
            if not self.holdings.count_unwritten():
                return
            if clock.monotonic() < end:
                clock.sleep(pause)
                self.holdings.write_gathered()
        if count := self.holdings.count_unwritten():
            logger.error(
                "Worker %s could not write what became of its claims in %d batches: others take "
                "them over when its lease has run out.",
                self._settings.id,
                count,
            )

    def _write_what_waits(self) -> None:
        """See to what waits for threads that have not become free as soon as was expected.

        What was claimed for them is given back, and results that were to be written with theirs are
        written without.
        """
        now = self._ledger.store.clock.monotonic()
        stale = self.agenda.withdraw(now - WAITS_AT_MOST)
        for assignment in stale:
            # Its type takes longer than it used to: no more are claimed ahead.
            waited = now - assignment.claimed_at
            self._registry.note_duration(assignment.task.task_type, waited)
        self._give_back(stale)

    def _give_back(self, assignments: list[Assignment]) -> None:
        """Give claims back, and write that with what else waits to be written."""
        self.holdings.give_back(
            [Outcome(assignment, transitions.release, wake=True) for assignment in assignments]
        )

    def _leave(self) -> None:
        try:
            self._ledger.workers.forget(self._settings.id)
            self._ledger.store.flush()
        except StoreError as error:
            logger.warning("Worker %s could not take its leave: %s", self._settings.id, error)
        self._call_shutdown_hooks()
        logger.info("Worker %s has stopped.", self._settings.id)

    def _on_error(self, task: Task, error: BaseException) -> None:
        self._queue.hooks.collect(self._hooks.error, task, error)

    def _call_shutdown_hooks(self) -> None:
        for hook in self._hooks.shutdown:
            guarded(hook)

    def _observe(self, *, begin: bool) -> None:
        for observer in (self.loop.on_commit, self._memory.on_commit, self._note):
            if begin:
                self._ledger.observers.append(observer)
            else:
                self._ledger.observers.remove(observer)

    # --- threads

    def _serve(self) -> None:
        """Be a thread of the pool."""
        while (job := self.agenda.next()) is not None:
            try:
                if not self.do(job):
                    return
                self._queue.hooks.run_pending()
            except Exception:
                # Whatever it is, the thread must go on: the lease brings the task back.
                logger.exception("A thread of worker %s met an error.", self._settings.id)

    def _give_up(self, watch: Watch) -> None:
        """Replace a thread that does not react; the new one writes that the attempt is over."""
        task = watch.assignment.task
        logger.error(
            "The thread of task %s (%s) does not react and is given up; it may still be running.",
            task.id,
            task.task_type,
        )
        watch.assignment.lease_lost = True

        def serve() -> None:
            self.heartbeat.counters["lost_threads"] += 1
            self._finish(Outcome(watch.assignment, self._runner.timed_out(task)))
            self._serve()

        self.pool.replace(watch.thread, serve)
        if self._has_lost_too_many():
            self.loop.wake()

    def _has_lost_too_many(self) -> bool:
        return self.pool.lost > self._settings.max_lost_threads

    def _sweep(self, stop: Event) -> None:
        assert self._settings.sweep_interval is not None  # noqa: S101 -- work() has looked
        Sweeper(self._queue, threads=2).run(stop, interval=self._settings.sweep_interval)

    # --- what the parts ask of each other

    def _next_look(self, now: datetime) -> datetime | None:
        looks = [self._memory.next_look(now), self.holdings.next_due(now)]
        opens_in = self._registry.opens_in()
        if opens_in != math.inf:
            looks.append(now + timedelta(seconds=opens_in))
        return min((look for look in looks if look is not None), default=None)

    def _is_worth_a_look(self, entry: Entry, now: datetime) -> bool:
        return not self.holdings.is_held(entry.batch_id) and self._memory.is_worth_a_look(
            entry.key, now
        )

    def _note(self, commit: Commit) -> None:
        """Count what this worker has written, and note the hooks that are due."""
        for task, revision in commit.revisions:
            if revision.by != self._settings.id:
                continue
            self.heartbeat.counters[revision.event] += 1
            if revision.event == "completed":
                self._queue.hooks.collect(self._hooks.success, task)


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
