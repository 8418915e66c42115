from __future__ import annotations

from datetime import datetime, timedelta

from buquet.core import keys
from buquet.core.index import Backlog, backlog_of
from buquet.core.keys import Entry
from buquet.testing.clock import START
from tests.core.making import BATCH_ID, MINUTE


def entry(task_type: str, minutes: int, count: int, *, expires_in: float | None = None) -> Entry:
    expires = (
        None if expires_in is None else keys.epoch_seconds_up(START + timedelta(seconds=expires_in))
    )
    return Entry(MINUTE + minutes, BATCH_ID, 1, "aa", 0, count, expires, task_type)


def census(entries: list[Entry], now: datetime) -> dict[str, Backlog]:
    """Count entries by task type."""
    found: dict[str, Backlog] = {}
    for each in entries:
        backlog_of(found, each.task_type).count(each, now)
    return found


def test_entries_are_counted_by_type_and_by_whether_they_are_due() -> None:
    found = census(
        [entry("a", -5, 3), entry("a", 0, 2), entry("a", 1, 10), entry("b", 60, 1)], START
    )

    assert found == {
        "a": Backlog("a", 5, 10, oldest_due_at=START - timedelta(minutes=5)),
        "b": Backlog("b", scheduled=1),
    }


def test_the_oldest_is_found_in_whatever_order_they_come() -> None:
    found = census([entry("a", 0, 1), entry("a", -9, 1), entry("a", -3, 1)], START)

    assert found["a"].oldest_due_at == START - timedelta(minutes=9)


def test_a_deadline_is_near_within_five_minutes_and_until_it_has_passed() -> None:
    spans = [0, 1, 300, 301, -1, None]

    near = [
        census([entry("a", 0, 2, expires_in=span)], START)["a"].near_expiration for span in spans
    ]

    assert near == [0, 2, 2, 0, 0, 0]


def test_what_is_known_to_run_or_to_have_ended_is_not_counted() -> None:
    backlog = Backlog("a")

    backlog.count(entry("a", 0, 5, expires_in=9), START, not_pending=3)
    backlog.count(entry("a", -1, 2), START, not_pending=2)

    assert backlog == Backlog("a", 2, near_expiration=2, oldest_due_at=START)
