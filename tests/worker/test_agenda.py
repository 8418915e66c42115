"""What waits for the threads of a worker, and how they hear of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve

from buquet.core import keys
from buquet.testing import FakeClock
from buquet.worker.dispatcher import EARLY, Dispatcher, Claim, Candidate, Wanted

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


def test_all_threads_that_wait_hear_of_what_is_offered_at_once() -> None:
    dispatcher = Dispatcher(THREADS)
    hungry = threading.Semaphore(0)
    dispatcher.on_hungry = hungry.release

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(dispatcher.next) for _ in range(THREADS)]
        assert all(hungry.acquire(timeout=30) for _ in waiting)
        dispatcher.offer(candidates(THREADS))
        taken = [job.result(timeout=30) for job in waiting]

    assert len({job.entry.batch_id for job in taken if isinstance(job, Candidate)}) == THREADS


@pytest.mark.parametrize(("more_is_due", "per_thread"), [(False, 1), (True, EARLY)])
def test_more_is_looked_for_early_only_where_more_is_known_to_be_due(
    more_is_due: bool, per_thread: int
) -> None:
    dispatcher = Dispatcher(THREADS)
    left_when_low: list[int] = []
    dispatcher.more_is_due = more_is_due
    dispatcher.offer(found := candidates(8 * THREADS))

    taken = 0
    dispatcher.on_low = lambda: left_when_low.append(len(found) - taken - 1)
    while dispatcher.next(block=False) is not None:
        taken += 1

    assert left_when_low == [per_thread * THREADS - 1]


def test_what_needs_a_free_thread_is_not_looked_into_again_and_again_while_none_is() -> None:
    dispatcher = Dispatcher(2)
    dispatcher.done_meanwhile = lambda _: 64
    [candidate] = candidates(1)
    # One thread is admission for all: until its write has come back, there is no room.
    in_flight = dispatcher.reserve(Wanted(plain=8), ahead=64, priority=0)
    dispatcher.hand_back(evolve(candidate, is_careful=True))

    assert dispatcher.next(block=False) is None

    dispatcher.assign([], in_flight)
    job = dispatcher.next(block=False)
    assert isinstance(job, Candidate)
    assert job.entry == candidate.entry


def test_what_is_claimed_once_it_is_closed_waits_for_no_thread() -> None:
    dispatcher = Dispatcher(1)
    granted = dispatcher.reserve(Wanted(plain=1), ahead=1, priority=0)
    dispatcher.close()
    claim = Claim(held := Late(), None, 0.0)  # type: ignore[arg-type]

    dispatcher.assign([claim], granted)

    assert not dispatcher.has_waiting(held)


def test_what_had_to_be_alone_and_is_withdrawn_keeps_no_other_from_beginning() -> None:
    dispatcher = Dispatcher(1)
    alone = Claim(Late(), None, 0.0)  # type: ignore[arg-type]
    dispatcher.assign([alone], dispatcher.reserve(Wanted(alone=1), ahead=0, priority=0))
    assert dispatcher.reserve(Wanted(plain=1), ahead=1, priority=0).total == 0

    assert dispatcher.withdraw(5.0) == [alone]

    assert dispatcher.reserve(Wanted(plain=1), ahead=1, priority=0).total == 1


class Late:
    """The held of a batch that was being claimed in."""

    def finish(self, outcome: object) -> None:
        """Take nothing."""
