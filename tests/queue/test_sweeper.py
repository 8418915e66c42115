"""G6, G7: a sweep expires what is late and takes back what is lost, and looks at nothing else."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from buquet import Queue, StoreUnavailable, Sweeper, SweepReport, Task, TaskStatus
from buquet.core import transitions
from buquet.core.keys import (
    ENDED,
    READY,
    WORKERS,
    batch_key,
    lock_key,
    minute_of,
    new_batch_id,
    parse_entry,
)
from buquet.core.model import Batch, WorkerRecord
from buquet.core.transitions import Facts
from buquet.ledger.lock import Lock
from buquet.store import Store, Stored
from buquet.store.sqlite import SqliteStore
from buquet.testing import FakeClock, FaultyStore
from tests.helpers import World

DEADLINE = 20


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def queue(world: World) -> Queue:
    return world.queue()


def claim(queue: Queue, task: Task, worker_id: str = "w1", *, lease: float = 60) -> Task:
    """Claim a task as a worker does."""

    def edit(batch: Batch, facts: Facts) -> Batch:
        until = facts.now + timedelta(seconds=lease)
        mine = evolve(facts, by=worker_id)
        return transitions.change_task(
            batch,
            task.id,
            facts,
            lambda task: transitions.claim(task, mine, lease_id="l", lease_expires_at=until),
        )

    queue.ledger.change(task.batch_id, edit)
    return queue.get(task.id)


def write_record(
    queue: Queue, running: Iterable[Task], worker_id: str = "w1", *, lease: float = 60
) -> None:
    """Write a worker's record, as its heartbeat does."""
    now = queue.now()
    queue.ledger.workers.write(
        WorkerRecord(
            id=worker_id,
            host="h",
            pid=1,
            threads=8,
            task_types=("ok",),
            started_at=now,
            heartbeat_at=now,
            lease_expires_at=now + timedelta(seconds=lease),
            running=tuple(task.id for task in running),
        ),
        None,
    )


def figures(report: SweepReport) -> dict[str, int]:
    """The figures of a report that are not zero."""
    names = ("visited", "expired", "recovered", "failed", "tidied", "errors")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def calls(store: FaultyStore) -> Counter[str]:
    return Counter(call.op for call in store.calls)


# --- expiring


def test_a_sweep_expires_what_is_late_and_a_second_finds_nothing(
    world: World, queue: Queue
) -> None:
    late = [queue.submit("ok", number, ttl_seconds=1) for number in range(10)]
    fresh = queue.submit("ok", 99, ttl_seconds=3600)
    plain = queue.submit("ok", 100)
    world.clock.advance(seconds=2)
    sweeper = world.sweeper(queue)

    first, second = sweeper.sweep_once(), sweeper.sweep_once()

    assert (first.expired, first.errors, second.expired) == (10, 0, 0)
    assert {queue.get(task.id).status for task in late} == {TaskStatus.EXPIRED}
    assert {queue.get(task.id).status for task in (fresh, plain)} == {TaskStatus.PENDING}
    assert world.missing_entries() == set()
    assert len(world.ready()) == 2


@pytest.mark.parametrize("full", [False, True])
def test_the_boundary_is_the_deadline_itself(world: World, queue: Queue, full: bool) -> None:
    queue.submit("ok", 1, ttl_seconds=10)
    sweeper = world.sweeper(queue)

    world.clock.advance(seconds=9.999)
    assert sweeper.sweep_once(full=full).expired == 0
    world.clock.advance(seconds=0.001)
    assert sweeper.sweep_once(full=full).expired == 1


def test_one_late_task_of_many_in_a_batch_expires_alone(world: World, queue: Queue) -> None:
    tasks = queue.submit_many([("ok", number) for number in range(3)], ttl_seconds=60)
    queue.cancel(tasks[0].id)
    queue.replay(tasks[0].id, ttl_seconds=9999)
    world.clock.advance(seconds=60)

    report = world.sweeper(queue).sweep_once()

    assert report.expired == 2
    assert [queue.get(task.id).status for task in tasks] == ["pending", "expired", "expired"]


def test_a_sweep_leaves_running_and_ended_tasks_as_they_are(world: World, queue: Queue) -> None:
    running, done, cancelled = (queue.submit("ok", n, ttl_seconds=30) for n in range(3))
    queue.cancel(cancelled.id)
    claim(queue, running, lease=600)
    claim(queue, done)
    queue.ledger.change(
        done.batch_id,
        lambda batch, facts: transitions.change_task(
            batch, done.id, facts, lambda task: transitions.complete(task, facts, output=1)
        ),
    )
    before = [queue.get(task.id) for task in (running, done, cancelled)]
    world.clock.advance(seconds=59)

    report = world.sweeper(queue).sweep_once(full=True)

    assert report.expired == 0
    assert [queue.get(task.id) for task in (running, done, cancelled)] == before


def test_a_task_that_is_put_off_for_later_expires_once_it_is_late(
    world: World, queue: Queue
) -> None:
    task = queue.submit("ok", 1, delay=timedelta(seconds=50), ttl_seconds=20)

    world.clock.advance(seconds=60)
    assert world.sweeper(queue).sweep_once().expired == 0
    world.clock.advance(seconds=10)
    assert world.sweeper(queue).sweep_once().expired == 1
    assert queue.get(task.id).expired_at == world.clock.now()


def test_tasks_of_a_type_that_nobody_handles_expire_all_the_same(
    world: World, queue: Queue
) -> None:
    task = queue.submit("nobody:handles.this", 1, ttl_seconds=5)
    world.clock.advance(seconds=5)

    assert world.sweeper(queue).sweep_once().expired == 1
    assert queue.get(task.id).attempt == 0


def test_late_tasks_far_behind_the_oldest_thousand_are_met(world: World, queue: Queue) -> None:
    for number in range(1200):
        queue.submit("ok", number)
    world.clock.advance(minutes=1)
    late = queue.submit("ok", -1, ttl_seconds=1)
    world.clock.advance(seconds=1)

    report = world.sweeper(queue).sweep_once()

    assert (report.expired, report.visited) == (1, 1001)
    assert queue.get(late.id).status is TaskStatus.EXPIRED


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_parallel_sweeps_over_five_hundred_share_them(
    kind: str, world: World, request: pytest.FixtureRequest
) -> None:
    store: Store = world.store if kind == "memory" else request.getfixturevalue("sqlite_store")
    world.store = store
    told: list[str] = []
    queues = [world.queue(seed=seed) for seed in (1, 2)]
    for each in queues:
        each.on_expired(lambda task: told.append(task.id))
    tasks = queues[0].submit_many([("ok", n) for n in range(500)], batch_size=4, ttl_seconds=0)
    barrier = threading.Barrier(2)
    reports: list[SweepReport] = []

    def sweep(queue: Queue) -> None:
        barrier.wait(DEADLINE)
        reports.append(Sweeper(queue, threads=4).sweep_once())

    threads = [threading.Thread(target=sweep, args=(each,)) for each in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()

    assert sum(report.expired for report in reports) == 500
    assert sum(report.errors for report in reports) == 0
    assert sorted(told) == sorted(task.id for task in tasks)
    assert world.ready() == []


# --- lost workers


def test_the_tasks_of_a_dead_worker_are_given_back(world: World, queue: Queue) -> None:
    tasks = queue.submit_many([("ok", number) for number in range(3)])
    held = [claim(queue, task) for task in tasks[:2]]
    write_record(queue, held)

    world.clock.advance(seconds=59)
    assert world.sweeper(queue).sweep_once().recovered == 0
    world.clock.advance(seconds=1)
    report = world.sweeper(queue).sweep_once()

    assert report.recovered == 2
    for task in held:
        again = queue.get(task.id)
        assert (again.status, again.attempt) == (TaskStatus.PENDING, 1)
        assert "worker lost" in (again.last_error or "")


def test_tasks_of_a_dead_worker_without_attempts_or_time_left_end(
    world: World, queue: Queue
) -> None:
    spent = claim(queue, queue.submit("ok", 1, max_retries=0))
    late = claim(queue, queue.submit("ok", 2, ttl_seconds=30))
    world.clock.advance(minutes=2)

    report = world.sweeper(queue).sweep_once()

    assert (report.failed, report.expired, report.recovered) == (1, 1, 0)
    assert queue.get(spent.id).status is TaskStatus.FAILED
    assert queue.get(late.id).history[-1].details["reason"] == "worker lost"


def test_a_worker_whose_record_says_that_it_lives_keeps_its_tasks(
    world: World, queue: Queue
) -> None:
    task = claim(queue, queue.submit("ok", 1, ttl_seconds=30))
    sweeper = world.sweeper(queue)
    for _ in range(30):
        world.clock.advance(seconds=20)
        write_record(queue, [task])
        assert sweeper.sweep_once(full=True).recovered == 0

    assert queue.get(task.id) == task
    world.clock.advance(seconds=60)
    assert sweeper.sweep_once().expired == 1


def test_a_record_of_an_hour_ago_is_deleted_and_a_fresh_one_kept(
    world: World, queue: Queue
) -> None:
    write_record(queue, [], "old")
    world.clock.advance(minutes=61)
    write_record(queue, [], "new")
    world.clock.advance(seconds=1)

    report = world.sweeper(queue).sweep_once()

    assert [each.key for each in world.store.list(WORKERS)] == ["workers/new.json"]
    assert report.tidied == 1


def test_a_record_that_cannot_be_read_is_that_of_a_dead_worker(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    claim(queue, queue.submit("ok", 1))
    world.store.put("workers/w1.json", b"junk")
    world.store.put("workers/what?.json", b"junk")
    world.clock.advance(seconds=60)

    assert world.sweeper(queue).sweep_once().recovered == 1
    assert "passed over" in caplog.text


def test_a_worker_that_dies_after_a_sweep_has_looked_is_found_out_by_the_next(
    world: World, queue: Queue
) -> None:
    task = queue.submit("ok", 1, ttl=timedelta(days=1), max_retries=0)
    sweeper = world.sweeper(queue)
    sweeper.sweep_once()

    claim(queue, task)
    world.clock.advance(minutes=2)
    report = sweeper.sweep_once()

    assert report.failed == 1
    assert queue.get(task.id).status is TaskStatus.FAILED


# --- what a sweep costs


def test_ten_thousand_for_later_and_ten_thousand_ended_cost_a_sweep_nothing(
    world: World, queue: Queue
) -> None:
    for _ in queue.submit_stream((("ok", n) for n in range(10_000)), ttl_seconds=5):
        pass
    world.clock.advance(seconds=5)
    assert world.sweeper(queue).sweep_once().expired == 10_000
    for number in range(1500):
        queue.submit("ok", number, delay=timedelta(days=1), ttl_seconds=60)
    queue.submit_many([("ok", n) for n in range(8500)], delay=timedelta(hours=1), batch_size=10)
    late = [queue.submit("ok", number, ttl_seconds=1) for number in range(3)]
    world.clock.advance(seconds=1)
    store = FaultyStore(world.store)

    report = world.sweeper(world.queue(store)).sweep_once()

    assert figures(report) == {"visited": len(late), "expired": len(late)}
    assert calls(store)["list"] == 2
    assert calls(store)["get"] == 3
    assert len(store.calls) <= 2 + 3 * 4


def test_a_batch_that_has_nothing_to_settle_for_long_is_not_read_at_each_sweep(
    world: World, queue: Queue
) -> None:
    store = FaultyStore(world.store)
    task = claim(queue, queue.submit("ok", 1), lease=3600)
    sweeper = world.sweeper(world.queue(store))
    sweeper.sweep_once()
    store.calls.clear()

    for _ in range(10):
        world.clock.advance(minutes=1)
        sweeper.sweep_once()

    assert calls(store)["get"] == 0
    assert queue.get(task.id).status is TaskStatus.RUNNING


def test_the_beginning_of_the_index_is_looked_at_once_an_hour(world: World, queue: Queue) -> None:
    sweeper = world.sweeper(queue)
    sweeper.sweep_once()
    world.clock.advance(minutes=30)
    sweeper.sweep_once()
    stray = f"ready/0000000007/{new_batch_id(9 << 64)}/1-ab/0/1/-/ok"
    world.store.put(stray, b"")

    world.clock.advance(minutes=20)
    sweeper.sweep_once()
    assert stray in world.index()
    world.clock.advance(minutes=50)
    sweeper.sweep_once()

    assert stray not in world.index()


def test_a_report_tells_how_much_is_due_how_old_and_how_near_its_deadline(
    world: World, queue: Queue
) -> None:
    queue.submit_many([("ok", number) for number in range(5)])
    world.clock.advance(minutes=3)
    queue.submit_many([("email", number) for number in range(2)], ttl_seconds=240)
    queue.submit("email", 3, ttl_seconds=3600)

    backlog = world.sweeper(queue).sweep_once().backlog

    assert (backlog["ok"].ready, backlog["ok"].near_expiration) == (5, 0)
    assert backlog["ok"].oldest_due_at == world.clock.now() - timedelta(minutes=3)
    assert (backlog["email"].ready, backlog["email"].near_expiration) == (3, 2)


# --- tidying and healing


def test_an_entry_that_its_batch_has_left_behind_is_deleted(world: World, queue: Queue) -> None:
    task = queue.submit("ok", 1)
    [key] = world.ready()
    queue.cancel(task.id)
    world.store.put(key, b"")

    report = world.sweeper(queue).sweep_once()

    assert figures(report) == {"visited": 1, "tidied": 1}
    assert world.ready() == []


def test_an_entry_without_a_batch_is_left_alone_for_an_hour(world: World, queue: Queue) -> None:
    minute = minute_of(world.clock.now())
    stray = f"ready/{minute:010d}/{new_batch_id(9 << 64)}/1-ab/0/1/-/ok"
    world.store.put(stray, b"")
    sweeper = world.sweeper(queue)

    world.clock.advance(hours=1)
    assert figures(sweeper.sweep_once()) == {"visited": 1}
    world.clock.advance(seconds=1)
    assert figures(sweeper.sweep_once()) == {"visited": 1, "tidied": 1}
    assert world.ready() == []


def test_an_entry_of_a_commit_in_the_making_is_left_alone(world: World, queue: Queue) -> None:
    queue.submit("ok", 1)
    [key] = world.ready()
    entry = parse_entry(key)
    assert entry is not None
    early = evolve(entry, generation=entry.generation + 1).key
    world.store.put(early, b"")

    world.sweeper(queue).sweep_once(full=True)

    assert set(world.ready()) == {key, early}


def test_keys_that_are_not_ours_are_left_alone(world: World, queue: Queue) -> None:
    strange = ["ready/0000000000/x", "ready/x", "ended/failed/x", "tasks/x.json", "tasks/.keep"]
    for key in strange:
        world.store.put(key, b"?")
    task = queue.submit("ok", 1, ttl_seconds=0)

    report = world.sweeper(queue).sweep_once(full=True)

    assert (report.expired, report.errors) == (1, 0)
    assert queue.get(task.id).status is TaskStatus.EXPIRED
    assert all(world.store.get(key) for key in strange)


def test_a_full_sweep_writes_the_entries_that_are_missing(world: World, queue: Queue) -> None:
    ready = queue.submit("ok", 1)
    ended = [queue.submit("ok", number) for number in (2, 3)]
    queue.cancel(ended[0].id)
    queue.mark_expired(ended[1].id)
    wanted = world.index()
    world.store.delete(wanted)

    assert figures(world.sweeper(queue).sweep_once()) == {}
    report = world.sweeper(queue).sweep_once(full=True)

    assert report.tidied == 3
    assert world.missing_entries() == set()
    assert [task.id for task in queue.list("expired")] == [ended[1].id]
    world.worker().drain()
    assert world.runs == [ready.id]


def test_a_full_sweep_brings_a_lost_entry_back_where_pollers_look(
    world: World, queue: Queue
) -> None:
    """They start at a watermark: an entry far in the past would never be seen again."""
    task = queue.submit("ok", 1, ttl=timedelta(days=9))
    world.store.delete(world.ready())
    world.clock.advance(hours=5)
    sweeper = world.sweeper(queue)
    sweeper.sweep_once()

    report = sweeper.sweep_once(full=True)

    assert report.tidied == 1
    [key] = world.ready()
    entry = parse_entry(key)
    assert entry is not None
    assert entry.minute == minute_of(world.clock.now())
    assert world.missing_entries() == set()
    assert queue.get(task.id).version == 1
    world.worker().drain()
    assert world.runs == [task.id]


def test_a_full_sweep_does_not_move_an_entry_that_was_written_meanwhile(world: World) -> None:
    queue = world.queue()
    task = queue.submit("ok", 1)

    class Late(FaultyStore):
        """A store in which a task is replayed just after the index was read."""

        def list(self, prefix: str, **window: Any) -> Any:
            page = super().list(prefix, **window)
            if prefix == ENDED:
                queue.replay(task.id)
            return page

    queue.cancel(task.id)

    report = world.sweeper(world.queue(Late(world.store))).sweep_once(full=True)

    assert report.errors == 0
    [key] = world.ready()
    entry = parse_entry(key)
    assert entry is not None
    assert entry.generation == 2


def test_a_full_sweep_leaves_an_entry_for_later_for_later(world: World, queue: Queue) -> None:
    queue.submit("ok", 1, delay=timedelta(hours=9))
    world.store.delete(world.ready())

    world.sweeper(queue).sweep_once(full=True)

    [key] = world.ready()
    entry = parse_entry(key)
    assert entry is not None
    assert entry.minute == minute_of(world.clock.now() + timedelta(hours=9))
    assert world.missing_entries() == set()


def test_a_full_sweep_visits_what_is_for_later(world: World, queue: Queue) -> None:
    for number in range(5):
        queue.submit("ok", number, delay=timedelta(hours=1))

    report = world.sweeper(queue).sweep_once(full=True)

    assert figures(report) == {"visited": 5}
    assert report.backlog["ok"].scheduled == 5


@pytest.mark.parametrize("full", [False, True])
def test_a_damaged_batch_is_counted_and_does_not_stop_the_others(
    world: World, queue: Queue, full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [queue.submit("ok", number, ttl_seconds=1) for number in range(5)]
    world.store.put(batch_key(tasks[2].id), b'{"id": NaN}')
    world.clock.advance(seconds=1)

    report = world.sweeper(queue).sweep_once(full=full)

    assert report.expired == 4
    assert report.errors >= 1
    assert tasks[2].id in caplog.text
    stored = world.store.get(batch_key(tasks[2].id))
    assert stored is not None
    assert stored.body == b'{"id": NaN}'


def test_a_batch_that_the_store_fails_on_is_counted_and_met_again(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [queue.submit("ok", number, ttl_seconds=1) for number in range(3)]
    world.clock.advance(seconds=1)

    class Weak(FaultyStore):
        def get(self, key: str, *, unless: str | None = None) -> Stored | None:
            if tasks[1].id in key:
                raise StoreUnavailable("503")
            return super().get(key, unless=unless)

    with caplog.at_level(logging.WARNING):
        report = world.sweeper(world.queue(Weak(world.store))).sweep_once()

    assert (report.expired, report.errors) == (2, 1)
    assert world.sweeper(queue).sweep_once().expired == 1


def test_a_sweep_whose_index_cannot_be_read_fails(world: World) -> None:
    class Blind(FaultyStore):
        def list(self, prefix: str, **window: Any) -> Any:
            raise StoreUnavailable("503")

    with pytest.raises(StoreUnavailable):
        world.sweeper(world.queue(Blind(world.store))).sweep_once()


def test_a_sweep_that_others_keep_getting_in_the_way_of_gives_up_on_the_batch(
    world: World, queue: Queue
) -> None:
    queue.submit("ok", 1, ttl_seconds=1)
    world.clock.advance(seconds=1)

    class Busy(FaultyStore):
        def commit(self, change: Any) -> Any:
            stored = self.store.get(change.key)
            assert stored is not None
            self.store.put(change.key, stored.body)
            return super().commit(change)

    report = world.sweeper(world.queue(Busy(world.store))).sweep_once()

    assert (report.expired, report.visited) == (0, 1)
    assert world.sweeper(queue).sweep_once().expired == 1


# --- in a loop


class Loop:
    """A sweeper that sweeps on and on in a thread of its own."""

    def __init__(self, world: World, *, seed: int, interval: float = 60) -> None:
        self.store = FaultyStore(world.store)
        queue = world.queue(self.store, seed=seed)
        self._stop = world.clock.event()
        self._thread = threading.Thread(
            target=world.sweeper(queue).run,
            args=(self._stop,),
            kwargs={"interval": timedelta(seconds=interval)},
            daemon=True,
        )
        self._thread.start()

    def sweeps(self) -> int:
        return sum(call.op == "list" and call.key == READY for call in self.store.calls)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


def test_of_many_sweepers_one_sweeps_each_interval() -> None:
    world = World(FakeClock(sleeping_advances=False))
    loops = [Loop(world, seed=seed) for seed in (1, 2, 3)]

    for interval in range(1, 6):
        world.clock.await_waiters(3)
        world.clock.advance(seconds=60)
        world.clock.await_waiters(3)
        assert sum(loop.sweeps() for loop in loops) == interval

    for loop in loops:
        loop.end()


def test_when_the_sweeper_in_turn_dies_another_takes_over() -> None:
    world = World(FakeClock(sleeping_advances=False))
    first = Loop(world, seed=1)
    world.clock.await_waiters(1)
    world.clock.advance(seconds=60)
    world.clock.await_waiters(1)
    first.end()
    second = Loop(world, seed=2)

    for _ in range(3):  # a turn is kept for nearly two intervals
        world.clock.await_waiters(1)
        world.clock.advance(seconds=60)
    world.clock.await_waiters(1)

    assert (first.sweeps(), second.sweeps()) == (1, 2)
    second.end()


def test_a_sweeper_that_sweeps_rarely_does_not_keep_others_from_it() -> None:
    world = World(FakeClock(sleeping_advances=False))
    rare = Loop(world, seed=1, interval=3600)
    world.clock.await_waiters(1)
    world.clock.advance(hours=1)
    world.clock.await_waiters(1)
    often = Loop(world, seed=2)

    for _ in range(10):
        world.clock.await_waiters(2)
        world.clock.advance(seconds=60)
    world.clock.await_waiters(2)

    assert rare.sweeps() == 1
    assert often.sweeps() >= 8
    for loop in (rare, often):
        loop.end()


def test_a_turn_taken_by_a_wrong_clock_ends_all_the_same() -> None:
    world = World(FakeClock(sleeping_advances=False))
    world.store.put(lock_key("sweep"), b'{"until": "2099-01-01T00:00:00Z"}')
    loop = Loop(world, seed=1)

    for _ in range(4):
        world.clock.await_waiters(1)
        world.clock.advance(seconds=60)
    world.clock.await_waiters(1)

    assert loop.sweeps() == 2
    loop.end()


@pytest.mark.parametrize(
    "junk", [b"junk", b"{}", b"[]", b'{"until": 5}', b'{"until": "2099-01-01T00:00:00"}']
)
def test_a_lock_that_cannot_be_read_is_nobodys(junk: bytes) -> None:
    world = World(FakeClock(sleeping_advances=False))
    world.store.put(lock_key("sweep"), junk)
    loop = Loop(world, seed=1)

    world.clock.await_waiters(1)
    world.clock.advance(seconds=60)
    world.clock.await_waiters(1)

    assert loop.sweeps() == 1
    loop.end()


def test_a_sweeper_outlives_a_store_that_is_down_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(FakeClock(sleeping_advances=False))
    task = world.queue().submit("ok", 1, ttl_seconds=1)
    loop = Loop(world, seed=1)
    for call in range(1, 9):
        loop.store.fail_before(call, StoreUnavailable("503"))

    for _ in range(12):
        world.clock.await_waiters(1)
        world.clock.advance(seconds=60)
    world.clock.await_waiters(1)

    assert world.queue().get(task.id).status is TaskStatus.EXPIRED
    assert "will be made again" in caplog.text
    loop.end()


def test_a_sweep_on_sqlite_does_what_it_does_elsewhere(sqlite_store: SqliteStore) -> None:
    queue = Queue(sqlite_store)
    tasks = queue.submit_many([("ok", number) for number in range(10)], ttl_seconds=0, batch_size=3)
    sweeper = Sweeper(queue)

    assert sweeper.sweep_once().expired == 10
    assert sweeper.sweep_once().expired == 0
    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.EXPIRED}
    assert sqlite_store.list(READY) == []
    assert sqlite_store.list(ENDED) != []


def test_a_turn_taken_before_the_clock_was_set_back_keeps_nobody_from_sweeping() -> None:
    world = World(FakeClock(sleeping_advances=False))
    locks = [Lock(world.queue(seed=seed).ledger, "sweep") for seed in (1, 2)]
    minute = timedelta(minutes=1)
    assert locks[0].try_acquire(minute)
    assert not locks[1].try_acquire(minute)

    world.clock.advance(days=-1)

    assert locks[0].try_acquire(minute)
    assert not locks[1].try_acquire(minute)
    world.clock.advance(minutes=2)
    assert locks[1].try_acquire(minute)


def test_a_sweeper_that_saw_all_of_a_batch_running_still_expires_what_was_given_back(
    world: World, queue: Queue
) -> None:
    tasks = queue.submit_many([("ok", n) for n in range(2)], ttl_seconds=100)
    for task in tasks:
        claim(queue, task, lease=3600)
    sweeper = world.sweeper()
    sweeper.sweep_once()
    world.clock.advance(seconds=5)

    def give_back(batch: Batch, facts: Facts) -> Batch:
        return transitions.change_task(
            batch, tasks[0].id, facts, lambda task: transitions.release(task, facts)
        )

    queue.ledger.change(tasks[0].batch_id, give_back)
    world.clock.advance(seconds=100)

    sweeper.sweep_once()

    assert queue.get(tasks[0].id).status is TaskStatus.EXPIRED


def test_a_full_sweep_deletes_what_a_worker_left_that_died_while_it_tried_the_store(
    world: World,
) -> None:
    old, young = "locks/check-1111111111111111", "locks/check-2222222222222222"
    world.store.put(old, b"1")
    world.clock.advance(hours=2)
    world.store.put(young, b"1")

    report = world.sweeper().sweep_once(full=True)

    assert report.tidied == 1
    assert world.store.get(old) is None
    assert world.store.get(young) is not None
