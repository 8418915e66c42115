from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from buquet import (
    ConfigurationError,
    RetryPolicy,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskStatus,
    TaskUnfinished,
)
from buquet.core import transitions
from buquet.core.model import LONGEST_WAIT, Task, moment, rfc3339
from buquet.testing.clock import START
from tests.core.making import facts, make_any, make_batch, make_running, make_task

POLICIES = st.builds(
    RetryPolicy,
    initial_seconds=st.floats(0.001, LONGEST_WAIT),
    factor=st.floats(1, 1e300) | st.integers(1, 10),
    max_seconds=st.floats(0.001, LONGEST_WAIT),
    jitter=st.floats(0, 1),
)


@pytest.mark.parametrize("name", ["Pending", "Running", "Completed", "Failed", "Cancelled"])
def test_a_status_can_be_spelled_in_two_ways(name: str) -> None:
    assert getattr(TaskStatus, name) is TaskStatus[name.upper()]
    assert str(TaskStatus[name]) == name.lower()


def test_all_but_pending_and_running_are_final() -> None:
    assert [status for status in TaskStatus if not status.is_final] == ["pending", "running"]


def test_waits_grow_by_the_factor_up_to_the_cap() -> None:
    policy = RetryPolicy(initial_seconds=1, factor=2, max_seconds=10, jitter=0)

    assert [policy.delay_seconds(n, 0.7) for n in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 10, 10]


@given(POLICIES, st.integers(0, 10**6), st.floats(0, 1, exclude_max=True))
def test_no_wait_overflows_exceeds_the_cap_or_is_negative(
    policy: RetryPolicy, retry: int, chance: float
) -> None:
    wait = policy.delay_seconds(retry, chance)

    assert 0 <= wait <= policy.max_seconds
    assert START + timedelta(seconds=wait) >= START


@given(POLICIES, st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens_a_wait_and_by_its_part_at_most(
    policy: RetryPolicy, retry: int, chance: float
) -> None:
    longest = policy.delay_seconds(retry, 0)

    wait = policy.delay_seconds(retry, chance)

    assert longest * (1 - policy.jitter) * 0.999999 <= wait <= longest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_seconds", 0),
        ("initial_seconds", -1),
        ("initial_seconds", float("nan")),
        ("initial_seconds", float("inf")),
        ("max_seconds", 0),
        ("max_seconds", LONGEST_WAIT + 1),
        ("factor", 0.5),
        ("factor", float("nan")),
        ("factor", float("inf")),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", float("nan")),
        ("initial_seconds", "1"),
        ("factor", None),
        ("jitter", "0.5"),
        ("max_seconds", timedelta(1)),
        ("factor", True),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=field):
        RetryPolicy(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["created_at", "expires_at", "lease_expires_at", "expired_at"])
def test_a_task_takes_no_naive_time(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        evolve(make_task(), **{field: datetime(2026, 1, 1)})  # noqa: DTZ001


def test_a_deadline_has_passed_once_it_has_come() -> None:
    task = make_task(ttl=10)

    assert not task.is_expired_at(START + timedelta(seconds=10, microseconds=-1))
    assert task.is_expired_at(START + timedelta(seconds=10))
    assert not make_task().is_expired_at(datetime.max.replace(tzinfo=UTC))


def test_a_task_is_available_from_its_due_time_until_its_deadline() -> None:
    task = make_task(delay=5, ttl=10)

    available = [task.is_available_at(START + timedelta(seconds=n)) for n in (4, 5, 9, 10)]

    assert available == [False, True, True, False]
    assert not make_running(delay=5, ttl=10).is_available_at(START + timedelta(seconds=6))


def test_a_lease_has_lapsed_once_its_end_has_come() -> None:
    task = make_running()

    assert not task.is_lease_expired_at(START + timedelta(seconds=59))
    assert task.is_lease_expired_at(START + timedelta(seconds=60))
    assert not make_task().is_lease_expired_at(START + timedelta(days=1))


def test_the_result_is_the_output_or_an_error_that_says_what_became_of_it() -> None:
    assert make_any(TaskStatus.COMPLETED).result() == "out"
    with pytest.raises(TaskFailed, match="broken"):
        make_any(TaskStatus.FAILED).result()
    with pytest.raises(TaskCancelled):
        make_any(TaskStatus.CANCELLED).result()
    with pytest.raises(TaskExpired) as expired:
        make_any(TaskStatus.EXPIRED).result()
    assert expired.value.expired_at == START + timedelta(seconds=1)
    for status in (TaskStatus.PENDING, TaskStatus.RUNNING):
        with pytest.raises(TaskUnfinished, match=status):
            make_any(status).result()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (TaskStatus.FAILED, TaskFailed),
        (TaskStatus.CANCELLED, TaskCancelled),
        (TaskStatus.EXPIRED, TaskExpired),
    ],
)
def test_archiving_does_not_change_the_result(status: TaskStatus, error: type[Exception]) -> None:
    archived = transitions.archive(make_any(status), facts(9))

    with pytest.raises(error):
        archived.result()
    done = transitions.archive(make_any(TaskStatus.COMPLETED), facts(9))
    assert done.result() == "out"


def test_a_task_tells_its_batch_and_when_it_ended() -> None:
    task = make_task(0x2A)

    assert task.id.endswith("002a")
    assert task.batch_id == make_batch().id
    assert task.ended_at is None
    ended = [make_any(status).ended_at for status in TaskStatus if status.is_final]
    assert ended == [START + timedelta(seconds=1)] * 5


def test_a_batch_finds_its_tasks() -> None:
    tasks = (make_task(0), make_any(TaskStatus.FAILED, number=1), make_running(2))
    batch = make_batch(*tasks)

    assert batch.unfinished == (tasks[0], tasks[2])
    assert batch.task(tasks[1].id) is tasks[1]
    assert batch.task("other") is None


def test_what_a_person_prints_does_not_show_payloads_or_errors() -> None:
    task = evolve(
        make_any(TaskStatus.FAILED, input={"password": "s3cr3t"}),
        output="s3cr3t",
        last_error="s3cr3t",
    )

    assert "s3cr3t" not in repr(task)
    assert "s3cr3t" not in repr(make_batch(task))


def test_times_are_written_in_utc_with_microseconds() -> None:
    berlin = datetime(2026, 7, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))

    assert rfc3339(moment(berlin)) == "2026-07-01T10:00:00.000005Z"
    assert rfc3339(START) == "2026-01-01T12:00:00.000000Z"


def test_a_dict_of_a_task_has_all_its_fields_as_json() -> None:
    shown = make_any(TaskStatus.EXPIRED, ttl=1, input={"a": [1]}).to_dict()

    hidden = {"extra", "memo"}
    assert set(shown) == {name for name in Task.__annotations__ if name not in hidden}
    assert shown["status"] == "expired"
    assert shown["expired_at"] == "2026-01-01T12:00:01.000000Z"
    assert shown["history"][1]["event"] == "expired"
    assert shown["retry_policy"]["factor"] == 2.0
