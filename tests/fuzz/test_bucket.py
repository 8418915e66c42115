"""A bucket into which anybody may write: the work goes on, and what is not ours stays as it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from buquet import (
    DamagedObject,
    InvalidTransition,
    Queue,
    Sweeper,
    TaskNotFound,
    TaskStatus,
    Worker,
)
from buquet.core import keys
from buquet.store import Store
from buquet.worker.jobs import Candidate
from tests.core.making import BATCH_ID
from tests.fuzz.documents import BATCHES, DOCUMENTS, LOCK, ODD_TEXTS, WORKER, damaged
from tests.fuzz.effort import examples
from tests.fuzz.test_keys import KEYS, near_entries
from tests.helpers import World

TYPES = st.sampled_from(["ok", "email", "nobody-s"])
TIMES = st.sampled_from([0, 1, 59, 61, 601, 3700, 90000])
PICK = st.integers(0, 2**16)
PREFIXES = ("tasks/", "ready/", "ended/failed/", "ended/", "workers/", "locks/", "")
FOREIGN_KEYS = st.tuples(st.sampled_from(PREFIXES), KEYS | ODD_TEXTS).map("".join) | near_entries()


def writable(key: str) -> bool:
    """Tell whether a store takes such a key: text, not empty, not too long."""
    try:
        return 0 < len(key.encode()) <= 1024
    except UnicodeEncodeError:
        return False


def is_an_entry(key: str) -> bool:
    """Tell whether a key is one of the index: those are tidied away where they lead nowhere."""
    return keys.parse_entry(key) is not None or keys.parse_ended(key) is not None


class Bucket(RuleBasedStateMachine):
    """Tasks that are submitted and run in a bucket, and somebody who writes into it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.queue = self.world.queue()
        self.good: set[str] = set()
        """The ids of tasks whose batches nobody has touched."""
        self.spoilt: set[str] = set()
        """The ids of batches that somebody has."""
        self.foreign: dict[str, bytes] = {}
        """What is not ours, and what can't be read: it has to stay."""
        self.draws = random.Random(1)

    @initialize(seed=st.integers(0, 99))
    def begin(self, seed: int) -> None:
        self.draws = random.Random(seed)
        for task_type in ("ok", "ok", "email", "nobody-s"):
            self.submit_now(task_type)

    @property
    def store(self) -> Store:
        return self.world.store

    # --- what those do whose queue it is

    @rule(
        task_type=TYPES,
        count=st.sampled_from([1, 1, 3]),
        ttl=st.none() | TIMES,
        delay=st.none() | TIMES,
    )
    def submit(self, task_type: str, count: int, ttl: int | None, delay: int | None) -> None:
        span = None if delay is None or ttl == 0 else timedelta(seconds=delay)
        pairs = [(task_type, number) for number in range(count)]
        tasks = self.queue.submit_many(pairs, ttl_seconds=ttl, delay=span)
        self.good |= {task.id for task in tasks}

    @rule(task_type=TYPES)
    def submit_now(self, task_type: str) -> None:
        self.good |= {
            task.id for task in self.queue.submit_many([(task_type, n) for n in range(2)])
        }

    @rule()
    def work(self) -> None:
        self.worker().drain()

    @rule(full=st.booleans())
    def sweep(self, full: bool) -> None:
        self.sweeper().sweep_once(full=full)

    @rule(seconds=TIMES)
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule(status=st.none() | st.sampled_from(TaskStatus), task_type=st.none() | TYPES)
    def look(self, status: TaskStatus | None, task_type: str | None) -> None:
        for task in self.queue.list(status, task_type):
            assert status in (None, task.status)
        self.queue.stats()
        self.queue.workers()

    @precondition(lambda self: self.good)
    @rule(
        pick=PICK, act=st.sampled_from(["cancel", "replay", "archive", "mark_expired", "history"])
    )
    def act(self, pick: int, act: str) -> None:
        found = sorted(self.good)
        self.try_to(getattr(self.queue, act), found[pick % len(found)])

    @precondition(lambda self: self.spoilt)
    @rule(pick=PICK, act=st.sampled_from(["cancel", "replay", "resubmit", "progress", "get"]))
    def act_on_what_was_written_over(self, pick: int, act: str) -> None:
        found = sorted(self.spoilt)
        self.try_to(getattr(self.queue, act), found[pick % len(found)])

    @rule(task_type=TYPES, dry_run=st.booleans())
    def cancel_all(self, task_type: str, dry_run: bool) -> None:
        self.queue.cancel_by_type(task_type, dry_run=dry_run)

    @precondition(lambda self: self.good)
    @rule(pick=PICK, is_told=st.booleans())
    def a_worker_dies(self, pick: int, is_told: bool) -> None:
        """Somebody claims all of a batch and is not heard of again."""
        found = sorted(self.good)
        batch_id = keys.batch_id_of_task(found[pick % len(found)])
        worker = self.world.worker(self.new_queue(), sweep_interval=None)
        run = worker._new_run()
        run.heartbeat.beat()
        run.poller.poll_once()
        while isinstance(job := run.dispatcher.next(block=False), Candidate):
            if job.entry.batch_id == batch_id:
                run.claims.read(job)
            run.dispatcher.done_reading(job)
        if is_told:
            run.heartbeat.beat()

    # --- what others do

    @rule(key=FOREIGN_KEYS.filter(writable), body=st.binary(max_size=9) | damaged(*DOCUMENTS))
    def somebody_writes(self, key: str, body: bytes) -> None:
        if self.store.get(key) is None:
            self.put(key, body)

    @precondition(lambda self: self.good)
    @rule(pick=PICK, generation=st.sampled_from([0, 1, 2, 9]), minutes=st.integers(-9, 9))
    def somebody_writes_an_entry(self, pick: int, generation: int, minutes: int) -> None:
        found = sorted(self.good)
        batch_id = keys.batch_id_of_task(found[pick % len(found)])
        minute = keys.minute_of(self.queue.now()) + minutes
        self.store.put(keys.Entry(minute, batch_id, generation, "f", 0, 1, None, "ok").key, b"")

    @rule(pick=PICK, worker_id=st.sampled_from(["w1", "x.y", "w2"]), body=damaged(WORKER))
    def somebody_writes_a_workers_record(self, pick: int, worker_id: str, body: bytes) -> None:
        self.store.put(keys.worker_key(worker_id), body.replace(b'"w1"', f'"{worker_id}"'.encode()))

    @rule(body=damaged(LOCK))
    def somebody_writes_a_lock(self, body: bytes) -> None:
        self.store.put(keys.lock_key("sweep"), body)

    @precondition(lambda self: self.good)
    @rule(pick=PICK, data=st.data())
    def somebody_writes_over_a_batch(self, pick: int, data: st.DataObject) -> None:
        # The youngest come last, as they came to the store: most of them have something to do yet.
        listed = sorted(self.store.list(keys.BATCHES), key=lambda each: each.modified)
        good = {keys.batch_id_of_task(each) for each in self.good}
        found = [batch_id for each in listed if (batch_id := keys.batch_id_of(each.key)) in good]
        batch_id = found[-1 - pick % min(len(found), 2)]
        assert batch_id is not None
        stored = self.store.get(keys.batch_key(batch_id))
        assert stored is not None
        self.spoil(batch_id, data.draw(damaged(stored.body)))

    @precondition(lambda self: self.spoilt)
    @rule(pick=PICK, body=damaged(*BATCHES))
    def somebody_writes_over_it_again(self, pick: int, body: bytes) -> None:
        found = sorted(self.spoilt)
        batch_id = found[pick % len(found)]
        self.spoil(batch_id, body.replace(BATCH_ID[:-4].encode(), batch_id[:-4].encode()))

    @rule(bits=st.integers(1, 2**60), body=st.sampled_from(BATCHES))
    def somebody_copies_a_batch_to_another_key(self, bits: int, body: bytes) -> None:
        self.spoil(keys.new_batch_id(bits << 64), body)

    # --- how

    def spoil(self, batch_id: str, body: bytes) -> None:
        self.good = {each for each in self.good if keys.batch_id_of_task(each) != batch_id}
        self.spoilt.add(batch_id)
        self.put(keys.batch_key(batch_id), body)

    def put(self, key: str, body: bytes) -> None:
        """Write what is not ours; it has to stay, unless it is read as ours by chance."""
        self.store.put(key, body)
        self.foreign.pop(key, None)
        if not is_an_entry(key) and not self.can_be_read(key, body):
            self.foreign[key] = body

    def can_be_read(self, key: str, body: bytes) -> bool:
        batch_id = keys.batch_id_of(key)
        if batch_id is None:
            return key.startswith((keys.WORKERS, "locks/sweep"))
        try:
            return self.queue.ledger.load(batch_id) is not None
        except DamagedObject:
            return False

    def try_to(self, act: Callable[[str], Any], task_id: str) -> None:
        try:
            act(task_id)
        except (TaskNotFound, InvalidTransition, DamagedObject):
            assert task_id not in self.good or self.queue.get(task_id)

    def new_queue(self) -> Queue:
        return Queue(self.store, chance=random.Random(self.draws.random()), by="x")

    def worker(self) -> Worker:
        return self.world.worker(self.new_queue())

    def sweeper(self) -> Sweeper:
        return self.world.sweeper(self.new_queue())

    def teardown(self) -> None:
        """See that the work is done, that those who can't be served expire, and what has stayed."""
        for _ in range(6):
            self.worker().drain()
            self.sweeper().sweep_once(full=True)
            self.world.clock.advance(hours=13)
        left = [task for each in self.good if not (task := self.queue.get(each)).status.is_final]
        assert all(task.task_type == "nobody-s" and task.expires_at is None for task in left)
        for key, body in self.foreign.items():
            stored = self.store.get(key)
            assert stored is not None, key
            assert stored.body == body, key


Bucket.TestCase.settings = examples(60, stateful_step_count=30)
TestBucket = Bucket.TestCase
