"""Limits of a type, and what becomes of tasks that were with a dying worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from attrs import evolve

from buquet import (
    ConfigurationError,
    InvalidOptions,
    Queue,
    RescheduleError,
    TaskStatus,
    Worker,
)
from buquet.core.keys import BATCHES, READY
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts, change_tasks
from buquet.store import MemoryStore
from buquet.testing import FakeClock, FaultyStore
from buquet.worker.jobs import Claim
from buquet.worker.limits import Limit, parse_rate
from tests.helpers import World

T = TypeVar("T")


def test_a_rate_lets_so_many_begin_at_once_and_then_one_after_another() -> None:
    clock = FakeClock()
    limit = Limit(clock, None, parse_rate("10/m"))

    assert limit.take(99) == 10
    assert limit.take(1) == 0
    assert limit.opens_in() == pytest.approx(6)
    clock.advance(seconds=6)
    assert limit.take(99) == 1
    clock.advance(hours=1)
    assert limit.take(99) == 10


def test_leave_that_was_not_made_use_of_is_not_lost() -> None:
    limit = Limit(FakeClock(), 2, parse_rate("5/h"))

    assert limit.take(9) == 2
    limit.refund(1)

    assert limit.take(9) == 1
    assert limit.take(9) == 0


def test_a_claim_that_ends_makes_room_for_another_in_the_same_write() -> None:
    limit = Limit(FakeClock(), 2, None)
    assert limit.take(9) == 2

    assert limit.take(9, ending=1) == 1
    limit.end(1)

    assert limit.opens_in() == float("inf")
    limit.end(1)
    assert limit.opens_in() == 0


@pytest.mark.parametrize("text", ["", "10", "10/y", "-1/m", "0/m", "1.5/m", "ten/m", "\u0665/m", 5])
def test_what_is_no_rate_is_refused(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": "2"}, {"rate": "x"}, {"timeout_seconds": 0}],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused_at_once(options: dict[str, Any]) -> None:
    worker = Worker(Queue(MemoryStore()), check=False)

    with pytest.raises((ConfigurationError, InvalidOptions)):
        worker.task("job", **options)(lambda input: input)


def test_no_more_of_a_type_run_than_its_concurrency_and_no_claim_waits() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=8, check=False)
    lock = threading.Lock()
    running: list[int] = [0]
    most: list[int] = [0]
    claimed: list[int] = []

    @worker.task("api", concurrency=2)
    def api(input: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            claimed.append(len(list(queue.list("running"))))
        threading.Event().wait(0.005)
        with lock:
            running[0] -= 1
        return input

    tasks = queue.submit_many([("api", number) for number in range(30)])
    tasks += [queue.submit("api", number) for number in range(10)]
    worker.run(burst=True)
    thread = threading.Thread(target=worker.run)
    thread.start()
    found = queue.wait([task.id for task in tasks], timeout=60)
    worker.stop()
    thread.join(20)

    assert {task.status for task in found} == {TaskStatus.COMPLETED}
    assert most[0] <= 2
    assert max(claimed) <= 4  # two whose results are being written, and two that run


def test_a_limited_type_leaves_the_threads_to_others(world: World) -> None:
    queue = world.queue()
    queue.submit_many([("api", number) for number in range(50)], priority=5)
    worker = world.worker()
    calls: list[int] = []
    worker.task("api", rate="3/h")(calls.append)
    other = queue.submit("ok", 1)

    worker.drain()

    assert len(calls) == 3
    assert world.runs == [other.id]
    world.clock.advance(minutes=20)
    worker.drain()
    assert len(calls) == 4


def test_what_waits_for_a_limit_in_a_batch_that_is_held_is_offered_when_it_opens(
    world: World,
) -> None:
    single = world.queue(seed=3).submit("job", 1, priority=1)
    several = world.queue(seed=4).submit_many([("job", number) for number in range(2)])
    worker = Worker(world.queue(seed=2), check=False, threads=4)
    worker.task("job", concurrency=2)(lambda input: input)
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    claimed = []
    for _ in range(4):  # each batch brings a task, and the second is then looked into in vain
        job = run.dispatcher.next(block=False)
        if isinstance(job, Claim):
            claimed.append(job)
        elif job is not None:
            run.do(job)
    assert [job.task.id for job in claimed] == [single.id, several[0].id]
    run.poller.poll_once()
    assert run.dispatcher.next(block=False) is None
    assert run.claims.due(world.clock.now()) == []
    run.do(claimed[0])

    [offered] = run.claims.due(world.clock.now())
    assert offered.entry.batch_id == several[0].batch_id
    run.do(offered)
    assert world.statuses()[several[1].id] is TaskStatus.RUNNING


@pytest.fixture
def world() -> World:
    return World()


def with_past(world: World, task_id: str, lost_count: int) -> None:
    """Let a task have been with so many dying workers."""

    def edit(batch: Batch, facts: Facts) -> Batch:
        def marked(task: Task) -> Task:
            return evolve(task, lost_count=lost_count) if task.id == task_id else task

        return change_tasks(batch, facts, marked)

    world.queue().ledger.change(task_id[:-4] + "0000", edit)


def claims_while_running(world: World, worker: Worker, task_type: str = "job") -> list[int]:
    """Register a handler that notes how many tasks are claimed while it runs."""
    seen: list[int] = []

    @worker.task(task_type)
    def handler(input: Any) -> None:
        seen.append(len(list(world.queue().list("running"))))

    worker._registry.note_duration(task_type, 0.001)  # short tasks are claimed ahead
    return seen


def test_short_tasks_are_claimed_ahead(world: World) -> None:
    world.queue().submit_many([("job", number) for number in range(10)])
    worker = Worker(world.queue(seed=2), check=False)
    seen = claims_while_running(world, worker)

    worker.drain()

    assert max(seen) == 10


def test_what_was_claimed_ahead_for_threads_that_are_stuck_is_given_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("buquet.worker.claims.WAITS_AT_MOST", 1.5)
    queue = Queue(MemoryStore())
    quick = {"poll_min": timedelta(seconds=0.01), "poll_max": timedelta(seconds=0.05)}
    stuck = Worker(queue, threads=1, check=False, **quick)
    begun, go_on = threading.Event(), threading.Event()

    @stuck.task("job")
    def wait(input: int) -> str:
        begun.set()
        assert go_on.wait(30)
        return "slowly"

    stuck._registry.note_duration("job", 0.001)  # it takes them for short ones
    tasks = queue.submit_many([("job", number) for number in range(10)])
    other = Worker(queue, threads=2, check=False, **quick)
    other.task("job")(lambda input: "quickly")
    threads = [threading.Thread(target=worker.run) for worker in (stuck, other)]
    threads[0].start()
    assert begun.wait(20)
    assert len(list(queue.list("running"))) == 10
    threads[1].start()

    found = queue.wait([task.id for task in tasks[1:]], timeout=30)
    go_on.set()
    for worker in (stuck, other):
        worker.stop()
    for thread in threads:
        thread.join(20)

    assert {(task.output, task.attempt) for task in found} == {("quickly", 1)}
    assert queue.get(tasks[0].id).output == "slowly"


@pytest.mark.parametrize("why", ["was with a dying worker", "has no retries"])
def test_a_task_that_must_not_die_with_others_is_not_claimed_ahead(world: World, why: str) -> None:
    retries = 0 if why == "has no retries" else 3
    tasks = world.queue().submit_many(
        [("job", number) for number in range(10)], max_retries=retries
    )
    if retries:
        for task in tasks:
            with_past(world, task.id, 1)
    worker = Worker(world.queue(seed=2), check=False)
    seen = claims_while_running(world, worker)

    worker.drain()

    assert max(seen) == 1
    assert len(seen) == 10


def test_a_task_that_was_twice_with_a_dying_worker_begins_beside_no_other() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=4, check=False)
    beside: list[int] = []
    running = [0]
    lock = threading.Lock()

    @worker.task("job")
    def handler(input: str) -> None:
        with lock:
            running[0] += 1
            if input == "suspect":
                beside.append(running[0])
        threading.Event().wait(0.02 if input == "suspect" else 0.002)
        with lock:
            if input == "suspect":
                beside.append(running[0])
            running[0] -= 1

    suspects = queue.submit_many([("job", "suspect") for _ in range(3)])
    world = World()
    world.store = queue.store
    for task in suspects:
        with_past(world, task.id, 2)
    others = queue.submit_many([("job", "other") for _ in range(40)], batch_size=1)

    thread = threading.Thread(target=worker.run)
    thread.start()
    found = queue.wait([task.id for task in (*suspects, *others)], timeout=60)
    worker.stop()
    thread.join(20)

    assert {task.status for task in found} == {TaskStatus.COMPLETED}
    begun, ended = beside[::2], beside[1::2]
    assert len(begun) == 3
    assert all(end <= start for start, end in zip(begun, ended, strict=True)), beside


def test_being_lost_counts_and_a_replay_forgets_it(world: World) -> None:
    queue = world.queue()
    task = queue.submit("job", 1, max_retries=0)
    dying = Worker(world.queue(seed=2), check=False, lease=timedelta(seconds=5))

    @dying.task("job")
    def handler(input: Any) -> None:
        world.clock.advance(minutes=1)
        world.sweeper().sweep_once()

    dying.drain()

    found = queue.get(task.id)
    assert (found.status, found.lost_count) == (TaskStatus.FAILED, 1)
    assert queue.replay(task.id).lost_count == 0


def calls_of(store: FaultyStore, op: str, prefix: str = "") -> int:
    return sum(call.op == op and call.key.startswith(prefix) for call in store.calls)


def test_a_type_at_its_limit_is_passed_over_without_a_read(world: World) -> None:
    store = FaultyStore(world.store)
    for seed in range(300):
        world.queue(seed=seed).submit("api")
    worker = Worker(world.queue(store, seed=999), check=False, threads=8)
    begun: list[float] = []
    worker.task("api", rate="2/s")(lambda input: begun.append(world.clock.monotonic()))
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    store.calls.clear()

    for _ in range(100):  # for ten seconds
        run.poller.poll_once()
        while (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)
        world.clock.advance(seconds=0.1)

    assert 20 <= len(begun) <= 22
    assert calls_of(store, "get", BATCHES) == len(begun)
    assert calls_of(store, "put", BATCHES) == 2 * len(begun)


def test_polls_keep_the_shortest_pause_while_a_type_is_at_its_limit() -> None:
    store = TimedLists(MemoryStore())
    queue = Queue(store)
    for _ in range(60):
        queue.submit("api")
    worker = Worker(queue, threads=4, check=False, poll_min=timedelta(seconds=0.1))
    done = threading.Semaphore(0)
    begun: list[float] = []

    @worker.task("api", rate="20/s")
    def api(input: int) -> None:
        begun.append(store.clock.monotonic())
        done.release()

    thread = threading.Thread(target=worker.run)
    thread.start()
    assert all(done.acquire(timeout=20) for _ in range(40))
    worker.stop()
    thread.join(20)

    limited = [at for at in store.at if begun[20] < at]  # from then on the limit is reached
    assert len(limited) >= 5
    assert min(later - earlier for earlier, later in pairwise(limited)) > 0.09


class TimedLists(FaultyStore):
    """Notes when the index is listed."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.at: list[float] = []

    def _call(self, op: str, key: str, act: Callable[[], T]) -> T:
        if (op, key) == ("list", READY):
            self.at.append(self.clock.monotonic())
        return super()._call(op, key, act)


@pytest.mark.parametrize("limit", [{"rate": "20/s"}, {"concurrency": 1}], ids=str)
def test_a_burst_waits_for_what_a_limit_holds_back(limit: dict[str, Any]) -> None:
    queue = Queue(MemoryStore())
    tasks = [queue.submit("api", number) for number in range(30)]
    worker = Worker(queue, threads=4, check=False, poll_min=timedelta(seconds=0.01))
    worker.task("api", **limit)(lambda input: input)

    report = worker.run(burst=True)

    assert report.left == 0
    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.COMPLETED}


def test_a_burst_says_how_many_tasks_are_left_for_later(world: World) -> None:
    queue = world.queue()
    for _ in range(3):
        queue.submit("fails")
    queue.submit("fails", max_retries=0)
    queue.submit("later")
    queue.submit("ok")
    worker = world.worker(world.queue(seed=2))

    @worker.task("fails")
    def fail(input: object) -> None:
        raise ValueError

    @worker.task("later")
    def put_off(input: object) -> None:
        raise RescheduleError(delay_seconds=60)

    assert worker.run(burst=True).left == 4
    world.clock.advance(minutes=2)
    assert worker.drain().left == 4


def test_a_drain_waits_for_no_limit_and_says_how_many_tasks_it_holds_back(world: World) -> None:
    queue = world.queue()
    queue.submit_many([("api", number) for number in range(5)])
    queue.submit("api")
    worker = world.worker(world.queue(seed=2))
    worker.task("api", rate="2/h")(lambda input: input)

    assert worker.drain().left >= 3
