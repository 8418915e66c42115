"""Results of short tasks are written together, and none waits long for others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from buquet import Queue, TaskStatus, Worker
from buquet.core import transitions
from buquet.store import MemoryStore
from buquet.testing import FaultyStore
from buquet.worker.claimed_batch import GATHER_SECONDS
from buquet.worker.jobs import Claim, Outcome
from buquet.worker.run import Run
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def batch_writes(store: FaultyStore) -> int:
    return sum(call.op == "put" and call.key.startswith("tasks/") for call in store.calls)


def test_a_single_thread_writes_the_results_of_short_tasks_together() -> None:
    store = FaultyStore(MemoryStore())
    queue = Queue(store)
    tasks = queue.submit_many([("ok", number) for number in range(100)])
    worker = Worker(queue, threads=1, check=False)
    worker.task("ok")(lambda input: input)
    store.calls.clear()

    worker.run(burst=True)

    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.COMPLETED}
    assert batch_writes(store) < 50  # a hundred without


def test_where_nobody_looks_after_them_results_wait_for_nothing(world: World) -> None:
    first, _ = world.queue().submit_many([("ok", 1), ("ok", 2)])
    worker = Worker(world.queue(seed=2), threads=1, check=False)
    worker._registry.note_duration("ok", 0.001)
    seen: list[TaskStatus] = []

    @worker.task("ok")
    def look(input: int) -> None:
        seen.append(world.statuses()[first.id])

    worker.drain()

    assert seen == [TaskStatus.RUNNING, TaskStatus.COMPLETED]


def test_tasks_that_take_long_are_written_one_by_one(world: World) -> None:
    world.queue().submit_many([("ok", number) for number in range(10)])
    store = FaultyStore(world.store)
    worker = Worker(world.queue(store, seed=2), threads=1, check=False)

    @worker.task("ok")
    def slow(input: int) -> int:
        world.clock.advance(seconds=1)
        return input

    worker.drain()

    assert batch_writes(store) == 11


def claimed(world: World, count: int) -> tuple[Run, list[Claim]]:
    """A worker that has claimed so many short tasks of a batch; a thread has the first."""
    world.queue().submit_many([("ok", number) for number in range(count)])
    worker = world.worker(world.queue(seed=2), threads=1)
    worker._registry.note_duration("ok", 0.001)
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    candidate = run.dispatcher.next(block=False)
    assert candidate is not None
    run.do(candidate)
    first = run.dispatcher.next(block=False)
    assert isinstance(first, Claim)
    return run, [first]


def end(run: Run, claim: Claim) -> None:
    move = partial(transitions.complete, output="done")
    run.claims.finish(Outcome(claim, move))


def ended(world: World) -> int:
    return sum(status is TaskStatus.COMPLETED for status in world.statuses().values())


def finish_the_next(run: Run) -> None:
    another = run.dispatcher.next(block=False)
    assert isinstance(another, Claim)
    end(run, another)


@pytest.mark.parametrize(
    "happens",
    [
        finish_the_next,
        lambda run: run.claims.write_what_waits(),
        lambda run: run.claims.refresh(),
        lambda run: run.claims.give_back(run.dispatcher.close()),
    ],
    ids=["the next ends", "a poll", "a heartbeat", "the worker stops"],
)
def test_a_result_that_waited_for_others_is_written_with_whatever_comes_next(
    world: World, happens: Callable[[Run], Any]
) -> None:
    run, [first] = claimed(world, 9)
    end(run, first)
    assert ended(world) == 0

    world.clock.advance(seconds=2 * GATHER_SECONDS)
    happens(run)

    assert ended(world) >= 1


def test_a_worker_that_stops_writes_results_that_wait_for_tasks_which_still_run(
    world: World,
) -> None:
    run, [first] = claimed(world, 3)
    end(run, first)
    others = [run.dispatcher.next(block=False) for _ in range(2)]  # each has a thread, for long

    run._end(run._services())

    assert None not in others
    statuses = world.statuses()
    assert statuses.pop(first.task.id) is TaskStatus.COMPLETED
    assert set(statuses.values()) == {TaskStatus.PENDING}


def test_a_result_that_is_waiting_is_not_undone_when_its_task_is_given_back(world: World) -> None:
    run, [first] = claimed(world, 3)
    end(run, first)

    run.claims.give_back([first, *run.dispatcher.close()])

    assert world.statuses()[first.task.id] is TaskStatus.COMPLETED


def test_a_batch_that_was_let_go_of_is_not_claimed_in_once_more(world: World) -> None:
    run, [first] = claimed(world, 1)
    [held] = run.claims._held()
    end(run, first)
    world.queue(seed=4).archive(first.task.id)

    assert held.claim(sharing=False) is False
    assert run.claims._held() == []


def test_a_limit_is_kept_also_when_claims_are_lost(world: World) -> None:
    queue = world.queue(seed=2)
    tasks = queue.submit_many([("ok", number) for number in range(4)])
    worker = Worker(queue, threads=4, check=False)
    running: list[int] = []

    @worker.task("ok", concurrency=1)
    def work(input: int) -> None:
        running.append(worker._registry.limits["ok"]._running)
        if input == 0 and len(running) == 1:
            queue.ledger.change(tasks[0].batch_id, take_back)

    def take_back(batch: Any, facts: Any) -> Any:
        return transitions.change_task(
            batch, tasks[0].id, facts, lambda task: transitions.recover(task, facts)
        )

    worker._registry.note_duration("ok", 0.001)
    worker.drain()

    assert len(running) >= 4
    assert max(running) == 1


def test_a_result_waits_for_no_other_batch(world: World) -> None:
    run, [first] = claimed(world, 1)

    end(run, first)

    assert ended(world) == 1


def test_results_are_written_also_when_the_claims_of_those_they_waited_for_are_lost(
    world: World,
) -> None:
    run, [first] = claimed(world, 2)
    end(run, first)
    second = run.dispatcher.next(block=False)
    assert isinstance(second, Claim)

    def take(batch: Any, facts: Any) -> Any:
        return transitions.change_task(
            batch, second.task.id, facts, lambda task: transitions.release(task, facts), wake=True
        )

    world.queue(seed=5).ledger.change(second.task.batch_id, take)
    end(run, second)

    assert world.statuses()[first.task.id] is TaskStatus.COMPLETED
