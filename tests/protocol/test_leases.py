"""G3: a worker that lives keeps its tasks, and one that lost them does no harm."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from buquet import Sweeper, TaskStatus, Worker
from buquet.core import transitions
from buquet.worker.jobs import Claim, Outcome
from tests.helpers import World


def test_a_worker_that_was_seen_alive_is_looked_at_again_when_its_lease_should_have_lapsed() -> (
    None
):
    world = World()
    task = world.queue().submit("ok", 1)
    worker = Worker(world.queue(seed=2), check=False, lease=timedelta(seconds=3))
    sweeper = Sweeper(world.queue(seed=3), threads=1)

    @worker.task("ok")
    def long(input: Any) -> str:
        for _ in range(20):
            world.clock.advance(seconds=1)
            assert worker._run is not None
            worker._run.heartbeat.beat()
            sweeper.sweep_once()
        return "done"

    worker.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.lost_count) == (TaskStatus.COMPLETED, 0)


def test_a_worker_that_was_seen_lapsed_keeps_what_it_has_claimed_since() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    worker = Worker(world.queue(seed=2), check=False, lease=timedelta(seconds=3))
    sweeper = Sweeper(world.queue(seed=3), threads=1)
    runs: list[int] = []

    @worker.task("ok")
    def work(input: Any, context: Any) -> str:
        runs.append(context.task.attempt)
        if len(runs) == 1:
            world.clock.advance(seconds=4)  # it is paused
            sweeper.sweep_once()
            raise ValueError("again")
        run = worker._run
        assert run is not None
        for _ in range(8):
            world.clock.advance(seconds=1)
            run.heartbeat.beat()
            sweeper.sweep_once()
        return "done"

    worker.drain()
    world.clock.advance(seconds=1.5)
    worker.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.lost_count, found.attempt) == (TaskStatus.COMPLETED, 1, 2)


def test_the_late_result_of_a_lost_claim_leaves_the_new_claim_of_the_same_worker_alone() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    worker = Worker(world.queue(seed=2), check=False, threads=2)
    claims: list[Claim] = []

    @worker.task("ok")
    def slow(input: Any) -> str:
        run = worker._run
        assert run is not None
        claims.extend(run.claims.all())
        if len(claims) == 1:
            world.clock.advance(minutes=5)  # too late for its lease
            world.sweeper().sweep_once()
            run.heartbeat.beat()
            run.claims.refresh()
            world.clock.advance(seconds=30)
            run.poller.poll_once()
            for _ in ("it claims the task once more", "and another of its threads runs it"):
                job = run.dispatcher.next(block=False)
                assert job is not None
                run.do(job)
            return "late"
        first = claims[0]
        run.claims.finish(Outcome(first, partial(transitions.complete, output="late")))
        return "in time"

    worker.drain()

    found = world.queue().get(task.id)
    assert (found.status, found.output) == (TaskStatus.COMPLETED, "in time")
    assert [each.event for each in found.history].count("claimed") == len(claims) == 2


def test_a_task_whose_claim_is_lost_while_it_waits_for_a_thread_is_not_begun() -> None:
    world = World()
    first, second = world.queue().submit_many([("ok", 1), ("ok", 2)])
    worker = Worker(world.queue(seed=2), check=False)
    worker._registry.note_duration("ok", 0.001)  # so that one thread claims both
    runs: list[int] = []

    @worker.task("ok")
    def work(input: int) -> int:
        runs.append(input)
        if input == 1:
            run = worker._run
            assert run is not None
            world.clock.advance(minutes=5)
            world.sweeper().sweep_once()
            run.heartbeat.beat()
            run.claims.refresh()
        return input

    worker.drain()

    assert runs == [1]
    assert world.queue().get(second.id).status is TaskStatus.PENDING
    assert world.queue().get(first.id).last_error is not None


def test_draining_for_longer_than_the_lease_ends_all_that_is_due() -> None:
    world = World()
    tasks = [world.queue(seed=n).submit("ok", n) for n in range(8)]
    worker = Worker(world.queue(seed=20), check=False, threads=1)

    @worker.task("ok")
    def slow(input: int) -> int:
        world.clock.advance(seconds=25)
        return input

    worker.drain()

    found = [world.queue().get(task.id) for task in tasks]
    assert {task.status for task in found} == {TaskStatus.COMPLETED}
    assert {task.attempt for task in found} == {1}
