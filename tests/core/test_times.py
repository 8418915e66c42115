"""Times that a user passes: with a zone or without, and what is no time at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve

from buquet import InvalidOptions, Queue, RescheduleError, Task, TaskExpired, WorkerRecord
from buquet.store import MemoryStore
from buquet.testing import FakeClock
from buquet.testing.clock import START

RECORD = WorkerRecord(
    id="w1",
    host="h",
    pid=1,
    threads=1,
    task_types=(),
    started_at=START,
    heartbeat_at=START,
    lease_expires_at=START,
)


@pytest.fixture
def task() -> Task:
    made = Queue(MemoryStore(FakeClock())).submit("ok", ttl_seconds=60)
    return evolve(made, lease_expires_at=made.expires_at)


ASKS: dict[str, Callable[[Task, Any], bool]] = {
    "is_expired_at": Task.is_expired_at,
    "is_available_at": lambda task, now: not task.is_available_at(now),
    "is_lease_expired_at": Task.is_lease_expired_at,
    "is_lapsed_at": lambda task, now: evolve(RECORD, lease_expires_at=task.expires_at).is_lapsed_at(
        now
    ),
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5)), None], ids=str)
def test_a_time_is_taken_with_any_zone_and_without_one_as_local(
    task: Task, ask: str, zone: timezone | None
) -> None:
    assert task.expires_at is not None
    deadline = task.expires_at.astimezone(zone)
    if zone is None:
        deadline = deadline.replace(tzinfo=None)

    assert ASKS[ask](task, deadline)
    assert not ASKS[ask](task, deadline - timedelta(seconds=1))


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("value", ["2026-01-01T12:00:00Z", 1767268800, None], ids=repr)
def test_what_is_no_time_is_refused_by_name(task: Task, ask: str, value: Any) -> None:
    with pytest.raises(InvalidOptions, match="now must be a datetime"):
        ASKS[ask](task, value)


@pytest.mark.parametrize("option", ["expires_at", "schedule_at"])
def test_text_in_the_place_of_a_time_is_refused_with_the_remedy(option: str) -> None:
    queue = Queue(MemoryStore())

    with pytest.raises(InvalidOptions, match=rf"{option} must be a datetime.*fromisoformat"):
        queue.submit("ok", **{option: "2026-12-24T17:00:00Z"})  # type: ignore[misc]


@pytest.mark.parametrize("option", ["ttl", "delay"])
def test_a_number_in_the_place_of_a_span_is_refused_with_the_remedy(option: str) -> None:
    queue = Queue(MemoryStore())

    with pytest.raises(InvalidOptions, match=rf"{option} must be .* timedelta\(seconds=0\)"):
        queue.submit("ok", **{option: 0})  # type: ignore[misc]


def test_a_task_that_expired_after_an_attempt_says_what_that_died_of() -> None:
    never = str(TaskExpired("id", datetime(2026, 1, 1, tzinfo=UTC)))
    after = str(TaskExpired("id", datetime(2026, 1, 1, tzinfo=UTC), "ValueError: no"))

    assert "nobody started it" in never
    assert "another attempt would have started too late. Last error: ValueError: no" in after
    assert "nobody" not in after


def test_a_request_to_be_put_off_says_for_how_long() -> None:
    assert str(RescheduleError(120)) == "The handler put its task off by 120 seconds."
    assert "60 seconds more" in str(RescheduleError(120, 60))
