"""G4 and the policies: what may become of a task from where, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from buquet import (
    CannotArchive,
    CannotCancel,
    CannotExpire,
    CannotReplay,
    InvalidTransition,
    RetryPolicy,
    TaskStatus,
)
from buquet.core import transitions
from buquet.core.batch import Commit
from buquet.core.model import Task, rfc3339
from buquet.core.transitions import KEPT_REVISIONS, Facts
from buquet.testing.clock import START
from tests.core.making import (
    claimed,
    facts,
    make_any,
    make_batch,
    make_running,
    make_task,
)

P, R = TaskStatus.PENDING, TaskStatus.RUNNING
C, F = TaskStatus.COMPLETED, TaskStatus.FAILED
X, E, A = TaskStatus.CANCELLED, TaskStatus.EXPIRED, TaskStatus.ARCHIVED

Move = Callable[[Task, Facts], Task]

MOVES: dict[str, tuple[Move, set[TaskStatus], type[InvalidTransition]]] = {
    "claim": (lambda task, known: claimed(task, 9), {P}, InvalidTransition),
    "complete": (partial(transitions.complete, output=1), {R}, InvalidTransition),
    "fail": (partial(transitions.fail, error="e"), {R}, InvalidTransition),
    "retry": (partial(transitions.retry, error="e"), {R}, InvalidTransition),
    "reschedule": (partial(transitions.reschedule, delay=timedelta(1)), {R}, InvalidTransition),
    "release": (transitions.release, {R}, InvalidTransition),
    "recover": (transitions.recover, {R}, InvalidTransition),
    "give in": (transitions.give_in, {R}, InvalidTransition),
    "expire": (transitions.expire, {P, R}, InvalidTransition),
    "mark expired": (transitions.mark_expired, {P}, CannotExpire),
    "cancel": (transitions.cancel, {P, R, X}, CannotCancel),
    "replay": (partial(transitions.replay, expires_at=None), {F, X}, CannotReplay),
    "archive": (transitions.archive, {C, F, X, E, A}, CannotArchive),
}


@pytest.mark.parametrize("status", TaskStatus)
@pytest.mark.parametrize("name", MOVES)
def test_a_move_is_made_from_the_statuses_that_allow_it_and_refused_from_all_others(
    name: str, status: TaskStatus
) -> None:
    move, allowed, error = MOVES[name]
    task = make_any(status)

    if status in allowed:
        moved = move(task, facts(9))
        assert moved is task or moved.version == task.version + 1
    else:
        with pytest.raises(error) as refused:
            move(task, facts(9))
        assert type(refused.value) is error
        assert (refused.value.task_id, refused.value.status) == (task.id, status)
        assert str(status) in str(refused.value)


def test_the_table_of_moves_is_the_one_that_is_written_down() -> None:
    assert {name: allowed for name, (_, allowed, _) in MOVES.items() if name != "mark expired"} == {
        name: set(allowed) for name, allowed in transitions.ALLOWED.items()
    }


@pytest.mark.parametrize("status", [status for status in TaskStatus if status.is_final])
@pytest.mark.parametrize("name", [name for name in MOVES if name not in ("replay", "archive")])
def test_nothing_but_replay_and_archive_changes_a_task_that_has_ended(
    name: str, status: TaskStatus
) -> None:
    task = make_any(status)

    try:
        moved = MOVES[name][0](task, facts(9))
    except InvalidTransition:
        moved = task

    assert moved is task


# --- create, claim, end


def test_a_new_task_begins_its_history_with_what_it_was_given() -> None:
    plain, dated = make_task(), make_task(delay=60, ttl=90)

    [first] = plain.history
    assert (first.version, first.status, first.event) == (1, P, "created")
    assert (first.at, first.by, first.details) == (START, "submitter", {})
    assert dated.history[0].details == {
        "schedule_at": rfc3339(START + timedelta(seconds=60)),
        "expires_at": rfc3339(START + timedelta(seconds=90)),
    }


def test_a_claim_names_its_worker_and_counts_the_attempt() -> None:
    task = make_running(at=5)

    assert (task.status, task.worker_id, task.lease_id, task.attempt) == (R, "w1", "l1", 1)
    assert task.started_at == START + timedelta(seconds=5)
    assert task.lease_expires_at == START + timedelta(seconds=65)


@pytest.mark.parametrize("status", [C, F])
def test_a_task_that_ends_lets_go_of_its_lease_and_remembers_its_worker(status: TaskStatus) -> None:
    task = make_any(status)

    assert (task.lease_id, task.lease_expires_at, task.worker_id) == (None, None, "w1")
    assert task.completed_at == START + timedelta(seconds=1)


def test_a_completed_task_has_its_output_and_no_error() -> None:
    task = evolve(make_running(), last_error="before")

    done = transitions.complete(task, facts(3), output={"n": 1})

    assert (done.output, done.last_error) == ({"n": 1}, None)


def test_work_that_was_started_in_time_may_end_after_its_deadline() -> None:
    task = make_running(ttl=1)

    assert transitions.complete(task, facts(100), output=1).status is C
    assert transitions.fail(task, facts(100), error="e").status is F


# --- retry


def test_a_failed_attempt_is_made_again_after_the_wait_of_its_policy() -> None:
    policy = RetryPolicy(initial_seconds=10, factor=3, jitter=0.5)
    task = make_running(retry_policy=policy)

    again = transitions.retry(task, facts(1, chance=0.5), error="boom")

    assert (again.status, again.attempt, again.retry_count) == (P, 1, 1)
    assert again.available_at == START + timedelta(seconds=1 + 7.5)
    assert (again.lease_id, again.last_error) == (None, "boom")
    assert again.history[-1].details == {
        "error": "boom",
        "available_at": rfc3339(again.available_at),
    }


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_so_many_retries_mean_one_attempt_more(max_retries: int) -> None:
    task = make_task(max_retries=max_retries)

    attempts = 0
    while task.status is P:
        attempts += 1
        task = transitions.retry(claimed(task), facts(attempts), error=f"no {attempts}")

    assert attempts == max_retries + 1
    assert (task.status, task.last_error, task.attempt) == (F, f"no {attempts}", attempts)
    assert task.history[-1].event == "failed"


@pytest.mark.parametrize(("ttl", "status"), [(11, E), (11.000001, P)])
def test_a_retry_that_would_start_at_or_after_the_deadline_expires_there_and_then(
    ttl: float, status: TaskStatus
) -> None:
    task = make_running(ttl=ttl, retry_policy=RetryPolicy(initial_seconds=10, jitter=0))

    ended = transitions.retry(task, facts(1), error="boom")

    assert (ended.status, ended.last_error) == (status, "boom")
    assert ended.expires_at == task.expires_at


def test_the_history_says_why_a_retry_expired() -> None:
    task = make_running(ttl=5, retry_policy=RetryPolicy(initial_seconds=10, jitter=0))

    ended = transitions.retry(task, facts(1), error="boom")

    last = ended.history[-1]
    assert (last.event, last.status) == ("expired", E)
    assert ended.expired_at == START + timedelta(seconds=1)
    assert last.details["reason"] == (
        "it could begin again at 2026-01-01T12:00:11.000000Z, not before its deadline"
    )
    assert ended.lease_id is None


# --- reschedule


def test_a_task_that_is_put_off_uses_no_attempt_and_keeps_its_deadline() -> None:
    task = make_running(ttl=100)

    off = transitions.reschedule(task, facts(1), delay=timedelta(seconds=60))

    assert (off.status, off.attempt, off.reschedule_count) == (P, 0, 1)
    assert off.available_at == START + timedelta(seconds=61)
    assert off.expires_at == task.expires_at
    assert "expires_at" not in off.history[-1].details


def test_a_task_that_is_put_off_again_and_again_expires_at_its_deadline() -> None:
    task, seconds = make_task(ttl=60), 0.0

    while task.status is P:
        task = transitions.reschedule(
            claimed(task, seconds), facts(seconds), delay=timedelta(seconds=25)
        )
        assert task.expires_at == START + timedelta(seconds=60)
        seconds += 25

    assert (task.status, task.reschedule_count) == (E, 3)


def test_a_handler_can_move_the_deadline_where_there_is_one() -> None:
    known, delay, extend = facts(1), timedelta(seconds=60), timedelta(seconds=30)

    moved = transitions.reschedule(make_running(ttl=40), known, delay=delay, extend=extend)
    none = transitions.reschedule(make_running(), known, delay=delay, extend=extend)

    assert moved.status is P
    assert moved.expires_at == START + timedelta(seconds=70)
    assert moved.history[-1].details["expires_at"] == rfc3339(moved.expires_at)
    assert none.status is P
    assert none.expires_at is None


def test_an_extension_that_is_too_short_does_not_save_a_task() -> None:
    task = make_running(ttl=40)

    ended = transitions.reschedule(
        task, facts(1), delay=timedelta(seconds=60), extend=timedelta(seconds=21)
    )

    assert ended.status is E


def test_a_task_may_be_put_off_so_many_times_and_then_fails() -> None:
    task, counts = make_task(max_reschedules=2), []

    while task.status is P:
        counts.append(task.reschedule_count)
        task = transitions.reschedule(claimed(task), facts(1), delay=timedelta(0))

    assert counts == [0, 1, 2]
    assert task.status is F
    assert "more than 2 times" in (task.last_error or "")


def test_being_put_off_beyond_the_end_of_time_fails_and_says_so() -> None:
    far = timedelta(days=366 * 9000)

    delayed = transitions.reschedule(make_running(ttl=9), facts(1), delay=far)
    extended = transitions.reschedule(make_running(ttl=9), facts(1), delay=timedelta(0), extend=far)

    assert (delayed.status, extended.status) == (F, F)
    assert "delay_seconds is too long" in (delayed.last_error or "")
    assert "extend_expiration_seconds is too long" in (extended.last_error or "")


# --- release, recover


def test_a_task_that_is_given_back_is_as_it_was_and_due_at_once() -> None:
    back = transitions.release(make_running(ttl=10), facts(3))

    assert (back.status, back.attempt, back.lease_id) == (P, 0, None)
    assert back.available_at == START + timedelta(seconds=3)


def test_a_task_that_is_given_back_after_its_deadline_expires() -> None:
    assert transitions.release(make_running(ttl=10), facts(10)).status is E
    assert transitions.release(make_running(ttl=10), facts(9.999999)).status is P


def test_a_lost_worker_uses_up_the_attempt() -> None:
    task = make_running()

    again = transitions.recover(task, facts(61))

    assert (again.status, again.attempt, again.retry_count) == (P, 1, 1)
    assert again.history[-1].event == "recovered"
    assert "worker lost: w1" in (again.last_error or "")
    assert transitions.recover(make_running(max_retries=0), facts(61)).status is F


def test_a_task_whose_worker_is_lost_after_the_deadline_expires_with_a_note() -> None:
    ended = transitions.recover(make_running(ttl=30), facts(61))

    assert ended.status is E
    assert ended.history[-1].details["reason"] == "worker lost"
    assert "worker lost" in (ended.last_error or "")


def test_a_lost_worker_and_a_deadline_before_the_backoff_make_an_expired_task() -> None:
    task = make_running(ttl=65, retry_policy=RetryPolicy(initial_seconds=10, jitter=0))

    ended = transitions.recover(task, facts(61))

    assert ended.status is E
    assert "not before its deadline" in ended.history[-1].details["reason"]


# --- expire


def test_expiring_keeps_the_input_the_errors_and_the_times() -> None:
    task = evolve(make_task(ttl=5, input={"a": 1}), last_error="before")

    ended = transitions.expire(task, facts(7, by="sweeper"))

    assert (ended.input, ended.last_error) == ({"a": 1}, "before")
    assert (ended.created_at, ended.available_at, ended.expires_at) == (
        task.created_at,
        task.available_at,
        task.expires_at,
    )
    assert ended.expired_at == ended.updated_at == START + timedelta(seconds=7)
    assert (ended.completed_at, ended.cancelled_at) == (None, None)
    assert ended.history[-1].details == {"expired_at": rfc3339(ended.expired_at)}


def test_an_operator_may_expire_a_pending_task_whatever_its_deadline() -> None:
    ended = transitions.mark_expired(make_task(), facts(1, by="ann"))

    assert (ended.status, ended.history[-1].by) == (E, "ann")
    assert ended.history[-1].details["reason"] == "marked by an operator"


def test_marking_what_the_same_write_has_just_expired_is_fine() -> None:
    ended = transitions.expire(make_task(ttl=0), facts(1))

    assert transitions.mark_expired(ended, facts(1)) is ended
    with pytest.raises(CannotExpire):
        transitions.mark_expired(ended, facts(2))


# --- cancel


def test_a_pending_task_is_cancelled_at_once_and_says_by_whom() -> None:
    task = make_any(X)

    assert (task.cancelled_by, task.cancelled_at) == ("ann", START + timedelta(seconds=1))
    assert task.history[-1].details == {"by": "ann"}
    assert not task.cancel_requested


def test_cancelling_twice_changes_nothing() -> None:
    cancelled = make_any(X)
    requested = transitions.cancel(make_running(), facts(1, by="ann"))

    assert transitions.cancel(cancelled, facts(5, by="bob")) is cancelled
    assert transitions.cancel(requested, facts(5, by="bob")) is requested


def test_a_running_task_is_only_asked_to_give_in() -> None:
    asked = transitions.cancel(make_running(), facts(1, by="ann"))

    assert (asked.status, asked.cancel_requested, asked.cancelled_by) == (R, True, "ann")
    assert (asked.lease_id, asked.history[-1].event) == ("l1", "cancel requested")
    gave_in = transitions.give_in(asked, facts(2, by="w1"))
    assert (gave_in.status, gave_in.cancelled_by) == (X, "ann")
    assert gave_in.cancelled_at == START + timedelta(seconds=2)


def test_a_handler_that_takes_no_notice_ends_as_it_ends_with_the_flag_kept() -> None:
    asked = transitions.cancel(make_running(max_retries=0), facts(1))

    ends = [
        transitions.complete(asked, facts(2), output=1),
        transitions.fail(asked, facts(2), error="e"),
        transitions.retry(asked, facts(2), error="e"),
    ]

    assert [task.status for task in ends] == [C, F, F]
    assert all(task.cancel_requested for task in ends)


@pytest.mark.parametrize("name", ["retry", "reschedule", "release", "recover"])
def test_a_task_that_was_to_be_cancelled_does_not_run_again(name: str) -> None:
    asked = transitions.cancel(make_running(), facts(1, by="ann"))

    ended = MOVES[name][0](asked, facts(61))

    assert (ended.status, ended.cancelled_by, ended.lease_id) == (X, "ann", None)


# --- replay, archive


@pytest.mark.parametrize("status", [F, X])
def test_a_replayed_task_is_as_new_and_keeps_its_id_input_and_history(status: TaskStatus) -> None:
    old = make_any(status, input=[1])

    new = transitions.replay(old, facts(50, by="ann"), expires_at=None)

    assert (new.id, new.input, new.created_at) == (old.id, [1], old.created_at)
    assert new.history[:-1] == old.history
    assert (new.history[-1].event, new.history[-1].by) == ("replayed", "ann")
    assert (new.status, new.attempt, new.retry_count, new.reschedule_count) == (P, 0, 0, 0)
    assert new.available_at == START + timedelta(seconds=50)
    ended = (new.started_at, new.completed_at, new.cancelled_at, new.cancelled_by, new.last_error)
    assert ended == (None,) * 5
    assert new.ended_at is None
    assert not new.cancel_requested


def test_a_passed_deadline_must_be_replaced() -> None:
    failed = make_any(F, ttl=30)
    later = START + timedelta(seconds=90)

    assert transitions.replay(failed, facts(29), expires_at=None).expires_at == failed.expires_at
    with pytest.raises(CannotReplay, match=r"deadline was 2026-01-01T12:00:30.000000Z.*ttl"):
        transitions.replay(failed, facts(30), expires_at=None)
    with pytest.raises(CannotReplay, match="deadline"):
        transitions.replay(failed, facts(90), expires_at=later)
    again = transitions.replay(failed, facts(60), expires_at=later)
    assert again.expires_at == later
    assert again.history[-1].details == {"expires_at": rfc3339(later)}


def test_archiving_lays_a_task_aside_once() -> None:
    failed = make_any(F)
    aside = transitions.archive(failed, facts(5, by="ann"))

    assert (aside.status, aside.ended_at) == (A, failed.ended_at)
    assert transitions.archive(aside, facts(6)) is aside
    assert (aside.history[-1].event, aside.history[-1].by) == ("archived", "ann")


# --- history


def test_the_history_keeps_the_first_change_and_the_last_fifty() -> None:
    task = make_task(max_retries=10**6)
    for attempt in range(60):
        running = claimed(task, attempt)
        task = transitions.release(running, facts(attempt))

    versions = [revision.version for revision in task.history]

    assert task.version == 121
    assert versions == [1, *range(72, 122)]
    assert len(versions) == KEPT_REVISIONS + 1
    assert task.history_omitted == 121 - 51


def test_a_short_history_has_nothing_left_out() -> None:
    task = transitions.release(make_running(), facts(3))

    assert [revision.event for revision in task.history] == ["created", "claimed", "released"]
    assert [revision.version for revision in task.history] == [1, 2, 3]
    assert task.history_omitted == 0


def test_the_changes_of_a_commit_are_those_that_the_batch_did_not_have_before() -> None:
    old = make_batch(make_task(0), make_task(1))
    one = transitions.release(claimed(old.tasks[0]), facts(1))
    new = evolve(old, tasks=(one, old.tasks[1]))

    told = [(task.id, revision.event) for task, revision in Commit.of(old, new).revisions]

    assert told == [(one.id, "claimed"), (one.id, "released")]
    created = [revision.event for _, revision in Commit.of(None, old).revisions]
    assert created == ["created", "created"]


# --- settle


def settled(task: Task, seconds: float, leases: dict[str, datetime] | None = None) -> Task:
    [after] = transitions.settle(make_batch(task), facts(seconds), leases or {}).tasks
    return after


@pytest.mark.parametrize("delay", [0, 5])
def test_a_pending_task_expires_at_its_deadline_and_not_before(delay: float) -> None:
    task = make_task(ttl=10, delay=delay)

    assert settled(task, 9.999999) is task
    assert settled(task, 10).status is E


def test_a_task_that_waits_for_its_retry_expires_at_its_deadline() -> None:
    policy = RetryPolicy(initial_seconds=5, jitter=0)
    waiting = transitions.retry(make_running(ttl=10, retry_policy=policy), facts(0), error="boom")

    assert waiting.status is P
    assert settled(waiting, 9.999999) is waiting
    late = settled(waiting, 10)
    assert (late.status, late.last_error) == (E, "boom")


def test_a_running_task_is_left_alone_until_its_lease_has_lapsed() -> None:
    task = make_running(ttl=10)

    assert settled(task, 59.999999) is task
    assert settled(task, 60).status is E
    assert settled(make_running(), 60).status is P


def test_a_running_task_is_left_alone_as_long_as_its_worker_lives() -> None:
    task = make_running(ttl=10)

    assert settled(task, 600, {"w1": START + timedelta(seconds=601)}) is task
    assert settled(task, 601, {"w1": START + timedelta(seconds=601)}).status is E
    assert settled(task, 600, {"other": START + timedelta(seconds=9999)}).status is E


@pytest.mark.parametrize("status", [status for status in TaskStatus if status.is_final])
def test_settling_leaves_what_has_ended_as_it_is(status: TaskStatus) -> None:
    task = make_any(status, ttl=5)

    assert settled(task, 10**6) is task


def test_a_batch_with_nothing_to_settle_is_the_same_object() -> None:
    batch = make_batch(make_task(0, ttl=10), make_running(1), make_any(F, number=2))

    assert transitions.settle(batch, facts(5), {}) is batch


def test_one_settling_heals_all_of_a_batch() -> None:
    tasks = [make_task(0, ttl=10), make_task(1), make_running(2), make_running(3, max_retries=0)]

    after = transitions.settle(make_batch(*tasks), facts(60, chance=0.5), {})

    assert [task.status for task in after.tasks] == [E, P, P, F]


def test_a_change_to_a_task_that_is_not_in_the_batch_changes_nothing() -> None:
    batch = make_batch(make_task(0))

    assert transitions.change_task(batch, "other", facts(1), lambda task: make_any(F)) is batch


@given(
    st.sampled_from(sorted(MOVES)),
    st.sampled_from(TaskStatus),
    st.integers(0, 200),
    st.none() | st.integers(0, 100),
)
def test_a_deadline_moves_by_an_extension_or_a_replay_alone(
    name: str, status: TaskStatus, seconds: int, ttl: int | None
) -> None:
    task = make_any(status, ttl=ttl)
    moved: Any = task
    try:
        moved = MOVES[name][0](task, facts(seconds))
    except InvalidTransition:
        return

    assert moved.expires_at == task.expires_at
