"""What waits for the threads of a worker, and how they hear of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from attrs import evolve

from buquet.core import keys
from buquet.testing import FakeClock
from buquet.worker.dispatcher import EARLY, Dispatcher, Room
from buquet.worker.jobs import Candidate, Claim
from buquet.worker.pacer import Pacer
from buquet.worker.registry import Registry
from tests.helpers import World

THREADS = 8


def candidates(count: int) -> list[Candidate]:
    now = FakeClock().now()
    entries = [
        keys.Entry(
            minute=1,
            batch_id=keys.new_batch_id(number << 64),
            generation=1,
            tail="0",
            priority=0,
            count=1,
            expires=None,
            task_type="job",
        )
        for number in range(count)
    ]
    return [Candidate(entry, now) for entry in entries]


def make_claim(world: World) -> Claim:
    return Claim(world.queue().submit("job"), claimed_at=0.0)


class Hurried(Pacer):
    """Notes when there is work for another poll, and when all threads wait."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world.queue().ledger, shortest=timedelta(seconds=0.1), longest=timedelta(seconds=5)
        )
        self.wakes = threading.Semaphore(0)
        self.on_hurry: list[int] = []
        self.taken = 0

    def hurry(self) -> None:
        """Note how many had been taken."""
        self.on_hurry.append(self.taken)

    def wake(self) -> None:
        """Note it."""
        self.wakes.release()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pacer(world: World) -> Hurried:
    return Hurried(world)


def test_all_threads_that_wait_hear_of_what_is_offered_at_once(pacer: Hurried) -> None:
    dispatcher = Dispatcher(THREADS, Registry(), pacer, is_burst=True)

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(dispatcher.next) for _ in range(THREADS)]
        assert pacer.wakes.acquire(timeout=30)  # when all of them wait
        dispatcher.offer(candidates(THREADS))
        taken = [job.result(timeout=30) for job in waiting]

    assert len({job.entry.batch_id for job in taken if isinstance(job, Candidate)}) == THREADS


@pytest.mark.parametrize(("more_is_due", "per_thread"), [(False, 1), (True, EARLY)])
def test_more_is_looked_for_early_only_where_more_is_known_to_be_due(
    pacer: Hurried, more_is_due: bool, per_thread: int
) -> None:
    dispatcher = Dispatcher(THREADS, Registry(), pacer)
    dispatcher.more_is_due = more_is_due
    dispatcher.offer(found := candidates(8 * THREADS))

    while dispatcher.next(block=False) is not None:
        pacer.taken += 1

    assert [len(found) - taken - 1 for taken in pacer.on_hurry] == [per_thread * THREADS - 1]


def test_what_needs_a_free_thread_is_not_looked_into_again_and_again_while_none_is(
    pacer: Hurried,
) -> None:
    registry = Registry()
    registry.note_duration("job", 0.0001)
    dispatcher = Dispatcher(2, registry, pacer)
    [candidate] = candidates(1)
    # One thread is claiming for all: until its write has come back, there is no room.
    in_flight = dispatcher.reserve(Room(plain=8), ahead=64, priority=0)
    dispatcher.hand_back(evolve(candidate, is_careful=True))

    assert dispatcher.next(block=False) is None

    dispatcher.assign([], in_flight)
    job = dispatcher.next(block=False)
    assert isinstance(job, Candidate)
    assert job.entry == candidate.entry


def test_what_is_claimed_once_it_is_closed_waits_for_no_thread(
    world: World, pacer: Hurried
) -> None:
    dispatcher = Dispatcher(1, Registry(), pacer)
    room = dispatcher.reserve(Room(plain=1), ahead=1, priority=0)
    dispatcher.close()
    claim = make_claim(world)

    assert dispatcher.assign([claim], room) == [claim]

    assert not dispatcher.has_waiting(claim.task.batch_id)


def test_what_had_to_be_alone_and_is_withdrawn_keeps_no_other_from_beginning(
    world: World, pacer: Hurried
) -> None:
    dispatcher = Dispatcher(1, Registry(), pacer)
    alone = make_claim(world)
    dispatcher.assign([alone], dispatcher.reserve(Room(alone=1), ahead=0, priority=0))
    assert dispatcher.reserve(Room(plain=1), ahead=1, priority=0).total == 0

    assert dispatcher.withdraw(5.0) == [alone]

    assert dispatcher.reserve(Room(plain=1), ahead=1, priority=0).total == 1
