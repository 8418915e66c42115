"""Results of short tasks are written together, and none waits long for others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from buquet import TaskStatus, Worker, transitions
from buquet.testing import FaultyStore
from buquet.worker.agenda import Assignment, Outcome
from buquet.worker.holding import GATHER_SECONDS
from buquet.worker.shift import Shift
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def batch_writes(store: FaultyStore) -> int:
    return sum(call.op == "put" and call.key.startswith("tasks/") for call in store.calls)


def test_a_single_thread_writes_the_results_of_short_tasks_together(world: World) -> None:
    world.queue().submit_many([("ok", number) for number in range(100)])
    store = FaultyStore(world.store)
    worker = world.worker(world.queue(store, seed=2), threads=1)

    worker.drain()

    assert len(world.runs) == 100
    assert batch_writes(store) <= 6  # before the first has run, nobody knows that they are short


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


def claimed(world: World, count: int) -> tuple[Shift, list[Assignment]]:
    """A worker that has claimed so many short tasks of a batch; a thread has the first."""
    world.queue().submit_many([("ok", number) for number in range(count)])
    worker = world.worker(world.queue(seed=2), threads=1)
    worker._registry.note_duration("ok", 0.001)
    shift = worker._new_shift()
    shift._begin(shift.heartbeat.beat)
    shift.poller.poll_once()
    candidate = shift.agenda.next(block=False)
    assert candidate is not None
    shift.do(candidate)
    first = shift.agenda.next(block=False)
    assert isinstance(first, Assignment)
    return shift, [first]


def end(assignment: Assignment) -> None:
    move = partial(transitions.complete, output="done")
    assignment.holding.finish(Outcome(assignment, move))


def ended(world: World) -> int:
    return sum(status is TaskStatus.COMPLETED for status in world.statuses().values())


def finish_the_next(shift: Shift) -> None:
    another = shift.agenda.next(block=False)
    assert isinstance(another, Assignment)
    end(another)


@pytest.mark.parametrize(
    "happens",
    [
        finish_the_next,
        lambda shift: shift._write_what_waits(),
        lambda shift: shift.holdings.refresh(),
        lambda shift: shift._give_back(shift.agenda.close()),
    ],
    ids=["the next ends", "a poll", "a heartbeat", "the worker stops"],
)
def test_a_result_that_waited_for_others_is_written_with_whatever_comes_next(
    world: World, happens: Callable[[Shift], Any]
) -> None:
    shift, [first] = claimed(world, 9)
    end(first)
    assert ended(world) == 0

    world.clock.advance(seconds=2 * GATHER_SECONDS)
    happens(shift)

    assert ended(world) >= 1


def test_a_result_waits_for_no_other_batch(world: World) -> None:
    _, [first] = claimed(world, 1)

    end(first)

    assert ended(world) == 1


def test_results_are_written_also_when_the_claims_of_those_they_waited_for_are_lost(
    world: World,
) -> None:
    shift, [first] = claimed(world, 2)
    end(first)
    second = shift.agenda.next(block=False)
    assert isinstance(second, Assignment)

    def take(batch: Any, facts: Any) -> Any:
        return transitions.change_task(
            batch, second.task.id, facts, lambda task: transitions.release(task, facts), wake=True
        )

    world.queue(seed=5).ledger.change(second.task.batch_id, take)
    end(second)

    assert world.statuses()[first.task.id] is TaskStatus.COMPLETED
