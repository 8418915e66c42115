"""A store that is away, or that refuses one batch: what a worker does meanwhile, and after that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest

from buquet import ConfigurationError, StoreUnavailable, TaskStatus, Worker
from buquet.core import transitions
from buquet.core.keys import BATCHES, WORKERS, batch_key
from buquet.core.model import Task
from buquet.testing import FakeClock, FaultyStore
from buquet.testing.faults import Call
from buquet.worker.jobs import Candidate, Claim, Outcome
from buquet.worker.run import Run
from tests.helpers import World

LOOPS = 3
"""The threads of a worker that wait for a time: poller, heartbeat, watchdog."""

T = TypeVar("T")


class AilingStore(FaultyStore):
    """A store that asks `before` with each call: what is raised there is its answer."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.before: Callable[[Call], object] = well

    def _call(self, op: str, key: str, act: Callable[[], T]) -> T:
        self.before(Call(op, key))
        return super()._call(op, key, act)

    def reads_of(self, *tasks: Task) -> int:
        """Count how often the batches of tasks were read."""
        keys = {batch_key(task.batch_id) for task in tasks}
        return sum(call.op == "get" and call.key in keys for call in self.calls)


def well(call: Call) -> None:
    """Answer."""


def away(call: Call) -> None:
    """Refuse all calls."""
    raise StoreUnavailable(f"No route for {call}.")


def refusing(prefix: str) -> Callable[[Call], None]:
    """Refuse the calls for some keys."""
    return lambda call: away(call) if call.key.startswith(prefix) else None


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> AilingStore:
    return AilingStore(world)


def worker_on(world: World, store: AilingStore, threads: int = 1, **settings: Any) -> Worker:
    """A worker that takes its tasks for short ones, and claims ahead."""
    settings = {"sweep_interval": None} | settings
    worker = Worker(world.queue(store, seed=2), check=False, threads=threads, **settings)
    worker._registry.note_duration("job", 0.001)
    return worker


def claim_all(worker: Worker) -> tuple[Run, dict[Any, Claim]]:
    """Have a worker claim what is due, without its threads: all begins, and nothing ends."""
    worker.task("job")(lambda input: input)
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    look(run)
    return run, {each.task.input: each for each in run.claims.all()}


def look(run: Run) -> None:
    """Poll, and look into what was found, but run none of it."""
    run.poller.poll_once()
    while (job := run.dispatcher.next(block=False)) is not None:
        if isinstance(job, Candidate):
            run.do(job)


def end(run: Run, claim: Claim) -> None:
    """Do as the thread of a handler that has returned."""
    move = partial(transitions.complete, output="done")
    run.claims.finish(Outcome(claim, move))


# --- stopping, and going on


@contextmanager
def at_work(worker: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop(at_once=True)
        thread.join(20)
        assert not thread.is_alive()


def loops() -> set[threading.Thread]:
    """The threads of workers that would go on with their leases and sweeps."""
    names = {"buquet-heartbeat", "buquet-watchdog", "buquet-sweeper"}
    return {thread for thread in threading.enumerate() if thread.name in names}


def test_a_worker_that_is_told_to_stop_during_an_outage_does_and_keeps_no_task_from_others(
    world: World, store: AilingStore
) -> None:
    queue = world.queue()
    tasks = [queue.submit("job", number) for number in range(3)]
    begun, over = threading.Semaphore(0), threading.Event()
    worker = worker_on(world, store, threads=3, sweep_interval=timedelta(hours=1))

    @worker.task("job")
    def work(input: int) -> None:
        begun.release()
        over.wait(30)

    before = loops()
    with at_work(worker) as thread:
        assert all(begun.acquire(timeout=20) for _ in tasks)
        store.before = away
        told_at = world.clock.monotonic()

        worker.stop(at_once=True)
        thread.join(20)

        assert not thread.is_alive()
        assert world.clock.monotonic() - told_at < 10
        assert loops() <= before
    store.before = well
    world.clock.advance(seconds=61)
    assert world.sweeper().sweep_once().recovered == 3
    over.set()


def test_what_was_claimed_ahead_is_given_back_when_the_store_is_there_again() -> None:
    world = World(FakeClock(sleeping_advances=False))
    store = AilingStore(world)
    first, *others = world.queue().submit_many([("job", number) for number in range(5)])
    begun, over = threading.Event(), threading.Event()
    worker = worker_on(world, store, lease=timedelta(hours=1))

    @worker.task("job", timeout_seconds=3600)
    def work(input: int) -> None:
        begun.set()
        over.wait(30)

    def pass_time(seconds: int) -> None:
        for _ in range(seconds):
            world.clock.await_waiters(LOOPS)
            world.clock.advance(seconds=1)
        world.clock.await_waiters(LOOPS)

    with at_work(worker):
        assert begun.wait(20)
        store.before = away
        pass_time(120)  # for longer than a write is tried again and again
        assert set(world.statuses().values()) == {TaskStatus.RUNNING}
        store.before = well

        pass_time(11)  # for longer than the longest pause

        statuses = world.statuses()
        over.set()
    assert statuses.pop(first.id) is TaskStatus.RUNNING
    assert [statuses[task.id] for task in others] == [TaskStatus.PENDING] * 4


def test_a_drain_that_an_outage_ends_gives_back_what_it_had_claimed_ahead(
    world: World, store: AilingStore
) -> None:
    world.queue().submit_many([("job", number) for number in range(5)])
    worker = worker_on(world, store)

    @worker.task("job")
    def work(input: int) -> None:
        store.before = refusing(WORKERS)
        world.clock.advance(seconds=40)  # more than half of the lease: a heartbeat is due

    with pytest.raises(StoreUnavailable):
        worker.drain()

    assert sorted(world.statuses().values()) == [TaskStatus.COMPLETED] + [TaskStatus.PENDING] * 4


# --- one batch


def test_a_batch_that_was_deleted_under_its_worker_is_let_go_of(
    world: World, store: AilingStore
) -> None:
    world.queue().submit_many([("job", number) for number in range(3)], max_retries=0)
    run, claims = claim_all(worker_on(world, store))
    [(_, claim)] = claims.items()  # the others are claimed one by one
    key = batch_key(claim.task.batch_id)
    world.store.delete([key])
    store.calls.clear()

    end(run, claim)
    for _ in range(20):
        if (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)

    assert [call.op for call in store.calls if call.key == key] == ["put", "get"]
    assert not run.claims.is_held(claim.task.batch_id)


def test_a_batch_that_cannot_be_written_costs_the_tasks_of_others_no_lease(
    world: World, store: AilingStore
) -> None:
    queue = world.queue()
    bad, _ = queue.submit_many([("job", "bad"), ("job", "beside it")])
    good = queue.submit("job", "good")
    run, claims = claim_all(worker_on(world, store))
    key = batch_key(bad.batch_id)
    sound = world.store.get(key)
    assert sound is not None
    world.store.put(key, b"{")
    queue.cancel(good.id)

    def return_meanwhile(call: Call) -> None:
        if call == Call("get", key):
            store.before = well
            end(run, claims["bad"])

    store.before = return_meanwhile
    begun = world.clock.monotonic()
    run.claims.refresh()

    assert world.clock.monotonic() - begun < 5
    assert claims["good"].cancel_requested

    world.store.put(key, sound.body)
    now = world.queue().now()
    assert run.claims.next_due(now) == now + timedelta(seconds=1)
    world.clock.advance(seconds=1)
    run.claims.write_what_waits()
    assert queue.get(bad.id).output == "done"
    assert claims["beside it"] in run.claims.all()
    assert run.claims.next_due(now) is None


@pytest.mark.parametrize("refused", ["first", "second"])
def test_a_batch_that_cannot_be_read_keeps_no_request_from_the_tasks_of_others(
    world: World, store: AilingStore, refused: str
) -> None:
    queue = world.queue()
    tasks = {name: queue.submit("job", name) for name in ("first", "second")}
    run, claims = claim_all(worker_on(world, store, threads=2))
    for task in tasks.values():
        queue.cancel(task.id)

    def give_up_after_long(call: Call) -> None:
        if call.key == batch_key(tasks[refused].batch_id):
            world.clock.advance(seconds=31)  # then the lease must be renewed before all else
            away(call)

    store.before = give_up_after_long
    for _ in range(2):
        run.heartbeat.beat()
        run.claims.refresh()

    told = {name for name, claim in claims.items() if claim.cancel_requested}
    assert told == {"first", "second"} - {refused}


def test_a_result_that_could_not_be_written_is_written_while_another_task_runs_on(
    world: World, store: AilingStore
) -> None:
    queue = world.queue()
    short, long = queue.submit_many([("job", "short"), ("job", "long")])
    run, claims = claim_all(worker_on(world, store))
    store.before = refusing(BATCHES)
    end(run, claims["short"])
    store.before = well
    assert queue.get(short.id).status is TaskStatus.RUNNING

    run.heartbeat.beat()
    run.claims.refresh()

    assert [each.event for each in queue.get(short.id).history] == [
        "created",
        "claimed",
        "completed",
    ]
    assert queue.get(long.id).status is TaskStatus.RUNNING
    assert run.claims.all() == [claims["long"]]


# --- heartbeats


class Countdown:
    """Tells a poll loop to stop after so many polls."""

    def __init__(self, run: Run, polls: int) -> None:
        self.left = polls
        self._run = run

    def __call__(self) -> bool:
        self._run.wake()  # so that it makes no pause
        self.left -= 1
        return self.left == 0


class Beats:
    """The stop of a heartbeat, for so many beats: whoever waits for it has the clock move."""

    def __init__(self, run: Run, clock: FakeClock, count: int) -> None:
        self.was_lapsed: list[bool] = []
        """Whether the lease had lapsed by the time of each beat."""
        self._run = run
        self._clock = clock
        self._count = count

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time until the next beat pass."""
        self._clock.advance(seconds=timeout or 0)
        self.was_lapsed.append(self._run.lease.has_lapsed(self._clock.now()))
        return len(self.was_lapsed) > self._count


def test_after_a_heartbeat_that_took_long_the_next_comes_in_time_for_the_lease(
    world: World, store: AilingStore
) -> None:
    run, _ = claim_all(worker_on(world, store))

    def take_long_once(call: Call) -> None:
        if call.op == "put":
            store.before = well
            world.clock.advance(seconds=42)

    store.before = take_long_once
    beats = Beats(run, world.clock, 3)
    run.heartbeat.run(beats)  # type: ignore[arg-type]  # it uses nothing else of an event

    assert beats.was_lapsed == [False] * 4


def test_while_heartbeats_fail_what_is_due_is_not_read_again_and_again(
    world: World, store: AilingStore
) -> None:
    run, _ = claim_all(worker_on(world, store))
    world.clock.advance(seconds=31)  # less than half of the lease is left: it allows no claims
    tasks = [world.queue(seed=seed).submit("job", seed) for seed in (7, 8, 9)]
    store.calls.clear()

    for _ in range(40):
        world.clock.advance(seconds=0.1)
        look(run)
    assert store.reads_of(*tasks) == 3

    run.heartbeat.beat()
    world.clock.advance(seconds=5)
    look(run)
    assert {world.statuses()[task.id] for task in tasks} == {TaskStatus.RUNNING}


def test_a_stop_while_each_call_takes_long_and_fails_does_not_take_long_for_each_batch(
    world: World, store: AilingStore
) -> None:
    queue = world.queue()
    for number in range(20):
        queue.submit("job", number)
    run, claims = claim_all(worker_on(world, store, threads=20))
    assert len(claims) == 20

    def time_out(call: Call) -> None:
        world.clock.advance(seconds=15)
        away(call)

    store.before = time_out
    begun = world.clock.monotonic()
    run.claims.give_back(run.dispatcher.close())
    run._end_claims()

    assert world.clock.monotonic() - begun <= 4 * 15
    assert run.claims.count_unwritten() == 20


def test_a_redirect_by_a_proxy_ends_neither_the_heartbeat_nor_the_polls(
    world: World, store: AilingStore
) -> None:
    run, _ = claim_all(worker_on(world, store))
    was = run.lease.expires_at

    def redirect_once(call: Call) -> None:
        store.before = well
        raise ConfigurationError("The bucket is in another region.")

    store.before = redirect_once
    run.heartbeat.run(Beats(run, world.clock, 3))  # type: ignore[arg-type]
    assert run.lease.expires_at > was

    store.before = redirect_once
    polls = Countdown(run, 3)
    run.poll_loop.run(polls)
    assert polls.left == 0
