from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from buquet import TaskStatus
from buquet.core import index, keys, transitions
from buquet.core.index import Standing
from buquet.core.model import Batch, Task
from buquet.testing.clock import START
from tests.core.making import MINUTE, claimed, facts, make_any, make_batch, make_running, make_task


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def put(batch: Batch, *tasks: Task, at: float = 0, wake: bool = False) -> Batch:
    return index.with_tasks(batch, tasks, after(at), "ff", wake=wake)


def wanted(batch: Batch) -> keys.Entry:
    key = index.ready_key(batch)
    assert key is not None
    entry = keys.parse_entry(key)
    assert entry is not None
    return entry


def test_a_batch_wants_a_ready_entry_as_long_as_a_task_is_unfinished() -> None:
    for status in TaskStatus:
        batch = make_batch(make_any(status))

        assert (index.ready_key(batch) is not None) == (not status.is_final)
    assert index.ready_key(make_batch(make_any(TaskStatus.FAILED), make_task(1))) is not None
    assert index.ready_key(None) is None


def test_the_ready_entry_says_what_a_poller_must_know() -> None:
    batch = make_batch(
        make_task(0, ttl=50.5), make_task(1, ttl=40.000001), make_running(2), priority=7
    )

    entry = wanted(batch)

    assert (entry.batch_id, entry.minute, entry.count) == (batch.id, MINUTE, 3)
    assert (entry.priority, entry.task_type) == (7, "email")
    assert entry.expires == keys.epoch_seconds_up(START) + 41


def test_a_deadline_before_the_epoch_is_written_as_its_beginning() -> None:
    task = evolve(make_task(), expires_at=datetime(1960, 1, 1, tzinfo=UTC))

    assert wanted(make_batch(task)).expires == 0


def test_a_deadline_at_the_end_of_time_has_a_key() -> None:
    task = evolve(make_task(), expires_at=datetime.max.replace(tzinfo=UTC))

    assert wanted(make_batch(task)).expires == 253402300800


def test_failed_cancelled_and_expired_tasks_are_listed_by_the_minute_of_their_end() -> None:
    tasks = [make_any(status, number=n) for n, status in enumerate(TaskStatus)]
    batch = make_batch(*tasks)

    found = {keys.parse_ended(key) for key in index.ended_keys(batch)}

    assert found == {
        keys.EndedKey(status, MINUTE, batch.id)
        for status in (TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)
    }
    assert index.ended_keys(None) == frozenset()
    assert index.entries(batch) == index.ended_keys(batch) | {index.ready_key(batch)}


def test_tasks_that_end_in_the_same_minute_share_a_key_and_others_do_not() -> None:
    def ended(number: int, at: float) -> Task:
        return transitions.expire(make_task(number), facts(at))

    assert len(index.ended_keys(make_batch(ended(0, 1), ended(1, 59)))) == 1
    assert len(index.ended_keys(make_batch(ended(0, 1), ended(1, 60)))) == 2


def test_a_new_batch_adds_its_entry_and_drops_none() -> None:
    batch = make_batch(make_task())

    assert index.to_add(None, batch) == (index.ready_key(batch),)
    assert index.to_drop(None, batch) == ()


def test_a_claim_changes_no_entry() -> None:
    old = make_batch(make_task())
    new = put(old, claimed(old.tasks[0]))

    assert index.to_add(old, new) == ()
    assert index.to_drop(old, new) == ()


def test_a_batch_that_ends_drops_its_entry_and_lists_what_failed() -> None:
    old = make_batch(make_running())
    new = put(old, transitions.fail(old.tasks[0], facts(1), error="no"))

    assert index.to_add(old, new) == tuple(index.ended_keys(new))
    assert index.to_drop(old, new) == (index.ready_key(old),)


def test_an_ended_key_is_never_dropped() -> None:
    old = make_batch(make_any(TaskStatus.FAILED))
    new = put(old, transitions.replay(old.tasks[0], facts(5), expires_at=None), at=5)

    assert index.ended_keys(old)
    assert not index.ended_keys(new)
    assert index.to_drop(old, new) == ()
    assert index.to_add(old, new) == (index.ready_key(new),)


def test_an_entry_that_moves_is_added_anew_and_dropped_at_its_old_place() -> None:
    old = make_batch(make_running())
    new = put(old, transitions.retry(old.tasks[0], facts(1), error="no"), at=1)

    assert index.to_add(old, new) == (index.ready_key(new),)
    assert index.to_drop(old, new) == (index.ready_key(old),)
    assert index.ready_key(new) != index.ready_key(old)


def test_an_entry_moves_when_all_that_is_left_is_for_later() -> None:
    old = make_batch(make_running(0), make_any(TaskStatus.FAILED, number=1))
    later = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(600))

    new = put(old, later, old.tasks[1])

    entry = wanted(new)
    assert (entry.minute, entry.generation, entry.tail) == (MINUTE + 10, old.generation + 1, "ff")


@pytest.mark.parametrize("other", [make_running(1), make_task(1), make_task(1, delay=0)])
def test_an_entry_stays_while_something_is_running_or_due(other: Task) -> None:
    old = make_batch(make_running(0), other)
    later = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(600))

    new = put(old, later, other)

    assert index.ready_key(new) == index.ready_key(old)


def test_an_entry_moves_to_the_earliest_of_what_is_for_later() -> None:
    old = make_batch(make_running(0), make_task(1, delay=1200))
    later = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(600))

    assert wanted(put(old, later, old.tasks[1])).minute == MINUTE + 10


def test_an_entry_that_stands_where_it_must_does_not_move() -> None:
    old = make_batch(make_task(0, delay=600), make_task(1, delay=600))
    at_ten = index.moved(old, MINUTE + 10, "01")
    ended = transitions.cancel(old.tasks[0], facts(5))

    new = put(at_ten, ended, old.tasks[1], at=5)

    assert index.ready_key(new) == index.ready_key(at_ten)


def test_an_entry_moves_on_when_the_earliest_has_gone() -> None:
    old = make_batch(make_task(0, delay=600), make_task(1, delay=1200))
    at_ten = index.moved(old, MINUTE + 10, "01")
    ended = transitions.cancel(old.tasks[0], facts(5))

    assert wanted(put(at_ten, ended, old.tasks[1], at=5)).minute == MINUTE + 20


def test_a_finished_batch_that_comes_back_to_life_is_due_now() -> None:
    old = make_batch(make_any(TaskStatus.FAILED))
    again = transitions.replay(old.tasks[0], facts(600), expires_at=None)

    new = put(old, again, at=600)

    entry = wanted(new)
    assert (entry.minute, entry.generation) == (MINUTE + 10, old.generation + 1)


def test_pollers_are_made_to_look_again_at_once_by_a_move_of_the_entry() -> None:
    old = make_batch(make_running(0), make_running(1))
    released = transitions.release(old.tasks[0], facts(120))

    assert index.ready_key(put(old, released, old.tasks[1], at=120)) == index.ready_key(old)
    woken = wanted(put(old, released, old.tasks[1], at=120, wake=True))
    assert (woken.minute, woken.generation) == (MINUTE + 2, old.generation + 1)


def test_a_batch_with_nothing_left_is_not_woken() -> None:
    old = make_batch(make_running(0))
    done = transitions.complete(old.tasks[0], facts(1), output=1)

    new = put(old, done, at=1, wake=True)

    assert (new.due, new.generation) == (old.due, old.generation)


def test_a_move_counts_what_is_left_and_its_earliest_deadline_anew() -> None:
    old = make_batch(make_running(0, ttl=30), make_task(1, ttl=90), make_task(2))
    tasks = (transitions.complete(old.tasks[0], facts(1), output=1), old.tasks[1], old.tasks[2])

    assert (wanted(put(old, *tasks)).count, wanted(put(old, *tasks)).expires) == (
        3,
        keys.epoch_seconds_up(after(30)),
    )
    new = wanted(put(old, *tasks, wake=True))
    assert (new.count, new.expires) == (2, keys.epoch_seconds_up(after(90)))


@pytest.mark.parametrize("at", [0, 59, 60, 3600])
@pytest.mark.parametrize("delay", [0.000001, 1, 59, 60, 61])
def test_an_entry_is_never_written_with_a_minute_in_the_past(at: float, delay: float) -> None:
    old = make_batch(make_running(0))
    later = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(at + delay))

    assert wanted(put(old, later, at=at)).minute >= keys.minute_of(after(at))


def test_an_entry_beside_its_batch_is_wanted_stale_or_early() -> None:
    batch = index.moved(make_batch(make_task()), MINUTE + 1, "ab")
    entry = wanted(batch)

    assert index.standing(entry, batch) is Standing.WANTED
    assert index.standing(entry, None) is Standing.EARLY
    newer = evolve(entry, generation=entry.generation + 1)
    assert index.standing(newer, batch) is Standing.EARLY
    older = evolve(entry, generation=entry.generation - 1)
    assert index.standing(older, batch) is Standing.STALE
    for other in (
        evolve(entry, tail="ac"),
        evolve(entry, minute=MINUTE),
        evolve(entry, count=2),
        evolve(entry, task_type="other"),
    ):
        assert index.standing(other, batch) is Standing.STALE


def test_an_entry_of_a_finished_batch_is_stale_unless_somebody_is_bringing_it_back() -> None:
    old = make_batch(make_running())
    done = put(old, transitions.fail(old.tasks[0], facts(1), error="no"))

    assert index.standing(wanted(old), done) is Standing.STALE
    replayed = put(done, transitions.replay(done.tasks[0], facts(2), expires_at=None))
    assert index.standing(wanted(replayed), done) is Standing.EARLY


def test_a_claim_holds_as_long_as_it_says_or_its_worker_later_says() -> None:
    task = make_running(at=0)

    assert index.held_until(task, {}) == after(60)
    assert index.held_until(task, {"w1": after(90)}) == after(90)
    assert index.held_until(task, {"w1": after(30)}) == after(60)
    assert index.held_until(task, {"w2": after(90)}) == after(60)


def test_a_claim_of_nobody_is_not_taken_for_one_that_holds_for_ever() -> None:
    task = evolve(make_running(at=0), worker_id=None)

    assert index.held_until(task, {"": after(9999)}) == after(60)


def test_the_next_event_is_when_a_task_is_due_or_a_claim_lapses() -> None:
    batch = make_batch(make_task(0, delay=100, ttl=50), make_running(1))

    assert index.next_event(batch, {}) == after(60)
    assert index.next_event(batch, {"w1": after(300)}) == after(100)
    assert index.next_event(make_batch(make_any(TaskStatus.FAILED)), {}) is None


def test_the_next_settling_is_a_deadline_or_the_lapse_of_a_claim() -> None:
    batch = make_batch(make_task(0, delay=10, ttl=100), make_running(1, ttl=5), make_task(2))

    assert index.next_settling(batch, {}) == after(60)
    assert index.next_settling(batch, {"w1": after(300)}) == after(100)
    assert index.next_settling(make_batch(make_task(0)), {}) is None


def test_an_entry_is_parked_when_all_that_is_left_has_been_running_for_five_minutes() -> None:
    batch = make_batch(
        make_running(0), make_running(1, at=10), make_any(TaskStatus.FAILED, number=2)
    )

    assert index.parked(batch, after(309.9), "ff") is None
    parked = index.parked(batch, after(310), "ff")

    assert parked is not None
    entry = wanted(parked)
    assert (entry.minute, entry.generation, entry.tail) == (MINUTE + 15, 2, "ff")
    assert entry.count == 2
    assert parked.tasks == batch.tasks


@pytest.mark.parametrize(
    "other", [make_task(1), make_task(1, delay=99999), make_running(1, at=3000)], ids=range(3)
)
def test_an_entry_is_not_parked_while_a_task_is_pending_or_has_just_begun(other: Task) -> None:
    assert index.parked(make_batch(make_running(0), other), after(3001), "ff") is None


def test_a_batch_that_has_ended_is_not_parked() -> None:
    assert index.parked(make_batch(make_any(TaskStatus.FAILED)), after(9999), "ff") is None


def test_an_entry_is_parked_again_before_its_minute_comes_and_not_earlier() -> None:
    batch = index.parked(make_batch(make_running(0)), after(300), "01")
    assert batch is not None
    due = (batch.due - MINUTE) * 60

    assert index.parked(batch, after(due - 61), "02") is None
    again = index.parked(batch, after(due - 60), "02")

    assert again is not None
    assert (again.due, again.generation) == (batch.due + 9, batch.generation + 1)


def parked_at(minute: int, *tasks: Task) -> Batch:
    return index.moved(make_batch(*tasks), MINUTE + minute, "01")


@pytest.mark.parametrize(("delay", "minute"), [(0, 5), (1, 5), (61, 6), (599, 14), (600, 15)])
def test_an_entry_that_is_parked_moves_back_to_a_task_that_is_due_before_it(
    delay: float, minute: int
) -> None:
    old = parked_at(15, make_running(0), make_running(1))
    pending = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(300 + delay))

    new = put(old, pending, old.tasks[1], at=300)

    assert new.due == MINUTE + minute
    assert (new.generation > old.generation) == (minute < 15)


def test_an_entry_that_is_parked_does_not_move_back_into_the_past() -> None:
    old = parked_at(15, make_running(0), make_running(1))
    pending = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(10))

    assert put(old, pending, old.tasks[1], at=300).due == MINUTE + 5


def test_an_entry_that_is_parked_stays_when_one_of_the_running_ends_or_comes_back_much_later() -> (
    None
):
    old = parked_at(15, make_running(0), make_running(1))
    later = evolve(old.tasks[0], status=TaskStatus.PENDING, available_at=after(9999))
    done = transitions.complete(old.tasks[0], facts(400), output=1)

    for task in (later, done):
        assert put(old, task, old.tasks[1], at=400).due == MINUTE + 15


def test_the_tasks_of_a_lost_worker_bring_a_parked_entry_back() -> None:
    old = parked_at(15, make_running(0), make_running(1))

    new = transitions.settle(old, facts(400), {})

    assert {task.status for task in new.tasks} == {TaskStatus.PENDING}
    assert new.due <= keys.minute_of(min(task.available_at for task in new.tasks))
