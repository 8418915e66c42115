"""G7: what a poll or a sweep costs grows with what is due now, and with nothing else."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from datetime import timedelta
from typing import Any

from buquet import Queue, TaskStatus, Worker
from buquet.store import MemoryStore
from buquet.testing import FakeClock, FaultyStore
from buquet.worker.run import Run
from tests.helpers import World


def counted(world: World) -> tuple[FaultyStore, Queue]:
    store = FaultyStore(world.store)
    return store, world.queue(store)


def calls(store: FaultyStore) -> Counter[str]:
    return Counter(call.op for call in store.calls)


def test_a_live_task_behind_five_thousand_expired_ones_runs_at_once() -> None:
    world = World()
    world.queue().submit_many(
        [("ok", number) for number in range(5000)], batch_size=1, ttl_seconds=1
    )
    world.clock.advance(minutes=1)
    live = world.queue(seed=2).submit("ok", "live")
    store, queue = counted(world)
    worker = world.worker(queue)
    first_run: list[int] = []

    @worker.task("live")
    def _(input: Any) -> None: ...

    def note(input: Any, context: Any) -> None:
        first_run.append(len(store.calls))

    worker._registry.handlers.pop("ok")
    worker.task("ok")(note)
    worker.drain()

    # A heartbeat, six pages of the index, a read and a claim: no expired batch was read before.
    assert first_run[0] <= 10
    assert world.queue().get(live.id).status is TaskStatus.COMPLETED
    statuses = Counter(world.statuses().values())
    assert statuses == {TaskStatus.EXPIRED: 5000, TaskStatus.COMPLETED: 1}
    spent = calls(store)
    assert (spent["get"] + spent["put"]) / 5000 <= 3.01


def test_expired_batches_of_many_cost_three_requests_each() -> None:
    world = World()
    world.queue().submit_many([("ok", number) for number in range(5000)], ttl_seconds=1)
    world.clock.advance(minutes=1)
    store, queue = counted(world)

    world.sweeper(queue).sweep_once()

    assert set(world.statuses().values()) == {TaskStatus.EXPIRED}
    batches = 50
    assert calls(store)["get"] <= batches
    assert calls(store)["put"] <= 2 * batches


def test_twenty_thousand_tasks_for_tomorrow_cost_an_idle_poll_one_request() -> None:
    world = World()
    world.queue().submit_many(
        [("ok", number) for number in range(20_000)], batch_size=1, delay=timedelta(days=1)
    )
    store, queue = counted(world)
    worker = world.worker(queue)
    worker.drain()
    run = worker._run
    assert run is not None

    tracemalloc.start()
    before = len(store.calls)
    for _ in range(20):
        run.poller.poll_once()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(store.calls) - before == 20
    assert {call.op for call in store.calls[before:]} == {"list"}
    assert grown < 1_000_000
    assert world.runs == []


def test_finished_and_future_work_costs_a_poll_and_a_sweep_nothing() -> None:
    clock = FakeClock()
    memory = MemoryStore(clock)
    queue = Queue(memory)
    worker = Worker(queue, check=False)
    worker.task("ok")(lambda input: input)
    queue.submit_many([("ok", number) for number in range(10_000)])
    worker.drain()
    queue.submit_many([("ok", number) for number in range(10_000)], delay=timedelta(hours=1))
    store = FaultyStore(memory)
    later = Worker(Queue(store), check=False)
    later.task("ok")(lambda input: input)

    later.drain()

    # Heartbeat, one poll that finds nothing, and the record's end.
    assert [call.op for call in store.calls] == ["put", "list", "delete"]
    assert len(list(queue.list("completed"))) == 10_000


def test_a_backlog_that_is_always_full_starves_nobody() -> None:
    world = World()
    hot = world.queue(seed=5)
    worker = world.worker(world.queue(seed=6))

    @worker.task("hot")
    def hot_task(input: Any) -> None:
        hot.submit("hot", input)  # there is always one more

    for number in range(1500):
        hot.submit("hot", number)
    others = [hot.submit("ok", number).id for number in range(5)]
    run = Run(worker.queue, worker.settings, worker._registry, worker._hooks)
    run.heartbeat.beat()
    polls = 0

    while set(world.runs) != set(others) and polls < 400:
        polls += 1
        run.poller.poll_once()
        while (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)

    assert set(world.runs) == set(others)


def test_a_task_of_a_higher_priority_goes_first() -> None:
    world = World()
    queue = world.queue()
    low = queue.submit("ok", "low", priority=-5)
    middle = queue.submit("ok", "middle")
    high = queue.submit("ok", "high", priority=100)

    world.worker().drain()

    assert world.runs == [high.id, middle.id, low.id]
