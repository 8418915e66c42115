from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from buquet import InvalidOptions, InvalidPayload, PayloadTooLarge, RetryPolicy, TaskStatus
from buquet.client import submit
from buquet.client.submit import BATCH_BYTES, OPEN_TASKS, Item, SubmitOptions
from buquet.core import index, keys
from buquet.testing.clock import START
from tests.core.making import BATCH_ID, facts, make_any, make_task

MINUTE = timedelta(minutes=1)


def terms(**options: Any) -> submit.Terms:
    return submit.terms(options, START)


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# --- options


def test_without_options_a_task_is_due_at_once_and_never_expires() -> None:
    agreed = terms()

    assert (agreed.available_at, agreed.expires_at) == (START, None)
    assert (agreed.max_retries, agreed.priority, agreed.timeout_seconds) == (3, 0, None)
    assert agreed.retry_policy == RetryPolicy()


@pytest.mark.parametrize(
    "options",
    [{"ttl": timedelta(minutes=5)}, {"ttl_seconds": 300}, {"expires_at": START + 5 * MINUTE}],
)
def test_a_deadline_can_be_given_in_three_ways(options: dict[str, Any]) -> None:
    assert terms(**options).expires_at == START + 5 * MINUTE


@pytest.mark.parametrize("start", [{"schedule_at": START + 60 * MINUTE}, {"delay": 60 * MINUTE}])
def test_a_relative_deadline_counts_from_when_the_task_is_due(start: dict[str, Any]) -> None:
    agreed = terms(**start, ttl_seconds=60)

    assert agreed.available_at == START + 60 * MINUTE
    assert agreed.expires_at == START + 61 * MINUTE


@pytest.mark.parametrize("behind", [timedelta(0), MINUTE])
def test_a_task_scheduled_at_or_after_its_deadline_is_refused_with_both_times(
    behind: timedelta,
) -> None:
    with pytest.raises(ValueError, match="never start") as refused:
        terms(schedule_at=START + 60 * MINUTE, expires_at=START + 60 * MINUTE - behind)

    assert "2026-01-01T13:00:00.000000Z" in str(refused.value)
    assert f"deadline is {(START + 60 * MINUTE - behind).isoformat()[:16]}" in str(refused.value)


def test_a_deadline_that_has_passed_or_is_now_is_taken_as_it_is() -> None:
    assert terms(ttl_seconds=0).expires_at == START
    assert terms(ttl=timedelta(0)).expires_at == START
    assert terms(expires_at=START - MINUTE).expires_at == START - MINUTE


def test_none_means_no_deadline_and_zero_does_not() -> None:
    assert terms(ttl=None, ttl_seconds=None, expires_at=None).expires_at is None
    assert terms(ttl=None, ttl_seconds=5).expires_at == START + timedelta(seconds=5)


LATE = datetime(9999, 12, 31, tzinfo=UTC)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ttl": timedelta(seconds=-5)}, "ttl must not be negative"),
    ({"ttl_seconds": -0.001}, "ttl_seconds must not be negative"),
    ({"ttl_seconds": float("nan")}, "ttl_seconds must be finite"),
    ({"ttl_seconds": float("inf")}, "ttl_seconds must be finite"),
    ({"ttl_seconds": 1e300}, "ttl_seconds is too long"),
    ({"ttl_seconds": 10**400}, "ttl_seconds is too long"),
    ({"ttl_seconds": "60"}, "ttl_seconds must be a number"),
    ({"ttl_seconds": True}, "ttl_seconds must be a number"),
    ({"ttl_seconds": timedelta(1)}, "ttl_seconds must be a number"),
    ({"ttl": 60}, "ttl must be a timedelta"),
    ({"ttl": timedelta.max}, "ttl is too long"),
    ({"ttl": MINUTE, "expires_at": START}, "ttl or expires_at, not both"),
    ({"ttl": MINUTE, "ttl_seconds": 60}, "ttl or ttl_seconds, not both"),
    ({"ttl_seconds": 60, "expires_at": START}, "ttl_seconds or expires_at, not both"),
    ({"expires_at": "2026-01-01"}, "expires_at must be a datetime"),
    ({"expires_at": START.date()}, "expires_at must be a datetime"),
    ({"expires_at": 1767268800}, "expires_at must be a datetime"),
    ({"expires_at": LATE.replace(hour=23, tzinfo=timezone(-timedelta(hours=5)))}, "UTC"),
    ({"schedule_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))}, "UTC"),
    ({"schedule_at": 5}, "schedule_at must be a datetime"),
    ({"schedule_at": START, "delay": MINUTE}, "schedule_at or delay, not both"),
    ({"delay": -MINUTE}, "delay must not be negative"),
    ({"delay": 60}, "delay must be a timedelta"),
    ({"delay": timedelta.max}, "delay is too long"),
    ({"schedule_at": LATE, "ttl": timedelta(days=2)}, "ttl is too long"),
    ({"timeout_seconds": 0}, "timeout_seconds must be above 0"),
    ({"timeout_seconds": -1}, "timeout_seconds must be above 0"),
    ({"timeout_seconds": float("nan")}, "timeout_seconds must be finite"),
    ({"timeout_seconds": MINUTE}, "timeout_seconds must be a number"),
    ({"max_retries": -1}, "max_retries must be a whole number"),
    ({"max_retries": 1.0}, "max_retries must be a whole number"),
    ({"max_retries": True}, "max_retries must be a whole number"),
    ({"max_retries": None}, "max_retries must be a whole number"),
    ({"max_retries": 10**7}, "from 0 to 1,000,000"),
    ({"priority": 101}, "priority must be a whole number from -100 to 100"),
    ({"priority": "high"}, "priority must be a whole number"),
    ({"max_reschedules": -1}, "max_reschedules must be a whole number"),
    ({"retry_policy": 5}, "retry_policy must be a RetryPolicy"),
    ({"retry_policy": {}}, "retry_policy must be a RetryPolicy"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOptions, match=words) as refused:
        terms(**options)

    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("name", ["expires_in", "TTL", "countdown", "eta", "input"])
def test_an_option_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(TypeError) as refused:
        terms(**{name: 60})

    assert repr(name) in str(refused.value)
    assert all(known in str(refused.value) for known in SubmitOptions.__annotations__)


def test_an_option_that_does_not_exist_is_refused_where_a_new_deadline_is_given() -> None:
    with pytest.raises(TypeError, match="expires_in"):
        submit.deadline({"expires_in": 5}, START)
    assert submit.deadline({}, START) is None
    assert submit.deadline({"ttl": MINUTE}, START) == START + MINUTE


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=3)
            | st.timedeltas()
            | st.datetimes(timezones=st.none() | st.timezones())
            for name in SubmitOptions.__annotations__
        },
    )
)
def test_any_options_are_agreed_to_or_refused(options: dict[str, Any]) -> None:
    try:
        agreed = terms(**options)
    except InvalidOptions:
        return

    assert agreed.available_at.tzinfo is UTC
    assert agreed.expires_at is None or agreed.expires_at.tzinfo is UTC
    group = [submit.item(0, "email", None)]
    batch = submit.batch(BATCH_ID, group, agreed, facts())
    key = index.ready_key(batch)
    assert key is not None
    assert keys.parse_entry(key) is not None


# --- zones


@pytest.mark.usefixtures("local_zone")
def test_a_naive_time_is_local_time() -> None:
    summer = datetime(2026, 7, 1, 12, 0)  # noqa: DTZ001
    winter = datetime(2026, 12, 24, 17, 0)  # noqa: DTZ001

    assert terms(expires_at=summer).expires_at == datetime(2026, 7, 1, 10, 0, tzinfo=UTC)
    assert terms(schedule_at=winter).available_at == datetime(2026, 12, 24, 16, 0, tzinfo=UTC)


@pytest.mark.usefixtures("local_zone")
def test_the_hour_that_comes_twice_is_told_apart_as_python_does() -> None:
    first = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001
    second = first.replace(fold=1)

    assert terms(schedule_at=first).available_at == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert terms(schedule_at=second).available_at == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


@pytest.mark.usefixtures("local_zone")
def test_a_span_over_the_change_of_the_clocks_is_as_long_as_it_says() -> None:
    before = datetime(2026, 3, 29, 1, 59)  # noqa: DTZ001

    agreed = terms(schedule_at=before, ttl=timedelta(hours=2))

    assert agreed.available_at == datetime(2026, 3, 29, 0, 59, tzinfo=UTC)
    assert agreed.expires_at == datetime(2026, 3, 29, 2, 59, tzinfo=UTC)


@pytest.mark.usefixtures("local_zone")
def test_the_same_moment_in_two_zones_is_no_window() -> None:
    local = datetime(2026, 1, 1, 14, 0)  # noqa: DTZ001

    with pytest.raises(InvalidOptions, match="2026-01-01T13:00"):
        terms(schedule_at=local, expires_at=START + 60 * MINUTE)


# --- items


def test_a_pair_that_is_none_is_refused_by_its_number() -> None:
    for wrong in ("ab", ("only",), ("a", 1, 2), 5, None, {"a": 1}):
        with pytest.raises(InvalidOptions, match=r"tasks\[1\] must be a pair"):
            list(submit.items([("email", 1), wrong]))  # type: ignore[list-item]


def test_an_input_among_many_is_refused_with_its_number_and_path() -> None:
    with pytest.raises(InvalidPayload) as refused:
        list(submit.items([("email", 1), ("email", {"to": [{1, 2}]})]))

    assert refused.value.path == "tasks[1].input.to[0]"


def test_an_input_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="input is at least 300,002 bytes"):
        submit.item(0, "email", "x" * 300_000)


def test_an_item_does_not_show_its_input() -> None:
    assert "s3cr3t" not in repr(submit.item(0, "email", "s3cr3t"))


# --- groups


def make_items(*types: str, size: int = 1) -> Iterator[Item]:
    return (Item(number, each, None, size) for number, each in enumerate(types))


def numbers(found: Iterator[list[Item]]) -> list[list[int]]:
    return [[item.number for item in group] for group in found]


def test_a_group_is_of_one_type_and_of_so_many_at_the_most() -> None:
    found = submit.groups(make_items(*"aabababbb"), 2)

    assert numbers(found) == [[0, 1], [2, 4], [3, 5], [6, 7], [8]]


def test_a_group_takes_so_many_bytes_unless_a_single_task_has_more() -> None:
    third = BATCH_BYTES // 3
    assert numbers(submit.groups(make_items(*"aaaa", size=third), 99)) == [[0, 1, 2], [3]]
    assert numbers(submit.groups(make_items(*"aa", size=BATCH_BYTES), 99)) == [[0], [1]]
    assert numbers(submit.groups(make_items(*"aa", size=BATCH_BYTES + 1), 99)) == [[0], [1]]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, BATCH_BYTES * 2)), max_size=60),
    st.integers(1, 7),
)
def test_every_item_is_in_one_group_in_order_and_no_group_is_too_large(
    found: list[tuple[str, int]], batch_size: int
) -> None:
    items = [Item(number, each, None, size) for number, (each, size) in enumerate(found)]

    groups = list(submit.groups(items, batch_size))

    assert sorted(item.number for group in groups for item in group) == list(range(len(items)))
    for group in groups:
        assert 1 <= len(group) <= batch_size
        assert len({item.task_type for item in group}) == 1
        assert [item.number for item in group] == sorted(item.number for item in group)
        assert len(group) == 1 or sum(item.size for item in group) <= BATCH_BYTES
    for name in "abc":
        mine = [item.number for group in groups for item in group if item.task_type == name]
        assert mine == sorted(mine)


def test_so_many_types_that_no_batch_fills_do_not_fill_the_memory() -> None:
    pulled = 0

    def source() -> Iterator[Item]:
        nonlocal pulled
        for number in range(3 * OPEN_TASKS):
            pulled = number + 1
            yield Item(number, f"type{number}", None, 1)

    given_out = 0
    for group in submit.groups(source(), 100):
        given_out += len(group)
        assert pulled - given_out < OPEN_TASKS

    assert given_out == 3 * OPEN_TASKS


def test_large_inputs_of_many_types_do_not_fill_the_memory() -> None:
    held = given_out = 0

    def source() -> Iterator[Item]:
        nonlocal held
        for number in range(2000):
            held += BATCH_BYTES
            yield Item(number, f"type{number}", None, BATCH_BYTES)

    most = 0
    for group in submit.groups(source(), 100):
        most = max(most, held - given_out)
        given_out += sum(item.size for item in group)

    assert given_out == 2000 * BATCH_BYTES
    assert most <= 64 * 1024 * 1024


def test_what_came_before_the_source_broke_off_is_given_out() -> None:
    def source() -> Iterator[Item]:
        yield from make_items("a", "b", "a")
        raise OSError("the file ends here")

    found = submit.groups(source(), 2)

    assert [item.number for item in next(found)] == [0, 2]
    assert [item.number for item in next(found)] == [1]
    with pytest.raises(OSError, match="ends here"):
        next(found)


@pytest.mark.parametrize("size", [0, -1, 65_537, 1.0, True, None, "10"])
def test_a_batch_size_that_makes_no_sense_is_refused(size: Any) -> None:
    with pytest.raises(InvalidOptions, match="batch_size must be a whole number from 1 to 65,536"):
        submit.check_batch_size(size)


# --- batches


def test_a_batch_is_made_of_its_items_in_order() -> None:
    group = [submit.item(n, "email", {"n": n}) for n in (4, 7)]

    batch = submit.batch(BATCH_ID, group, terms(ttl_seconds=60, priority=5, max_retries=1), facts())

    assert [task.id for task in batch.tasks] == [keys.task_id(BATCH_ID, n) for n in (0, 1)]
    assert [task.input for task in batch.tasks] == [{"n": 4}, {"n": 7}]
    assert {(task.status, task.version, task.priority) for task in batch.tasks} == {
        (TaskStatus.PENDING, 1, 5)
    }
    entry = index.entry_of(batch)
    assert (entry.minute, entry.count, entry.priority) == (keys.minute_of(START), 2, 5)
    assert entry.expires == keys.epoch_seconds_up(START) + 60


def test_a_batch_for_later_is_due_later_and_one_for_earlier_is_due_now() -> None:
    group = [submit.item(0, "email", None)]

    later = submit.batch(BATCH_ID, group, terms(delay=60 * MINUTE), facts())
    earlier = submit.batch(BATCH_ID, group, terms(schedule_at=START - 60 * MINUTE), facts())

    assert later.due == keys.minute_of(START) + 60
    assert earlier.due == keys.minute_of(START)
    assert earlier.tasks[0].available_at == START - 60 * MINUTE


def test_what_the_caller_does_to_an_input_afterwards_does_not_reach_the_task() -> None:
    given: dict[str, Any] = {"to": ["ada"]}

    batch = submit.batch(BATCH_ID, [submit.item(0, "email", given)], terms(), facts())
    given["to"].append("eve")

    assert batch.tasks[0].input == {"to": ["ada"]}


def test_the_options_of_a_task_submitted_anew_are_its_own_without_times() -> None:
    policy = RetryPolicy(initial_seconds=9)
    task = evolve(
        make_any(TaskStatus.EXPIRED, ttl=5, retry_policy=policy, max_retries=7, priority=-3),
        timeout_seconds=2.5,
        max_reschedules=4,
    )

    agreed = terms(**submit.like(task, {}))

    assert (agreed.retry_policy, agreed.max_retries, agreed.priority) == (policy, 7, -3)
    assert (agreed.timeout_seconds, agreed.max_reschedules) == (2.5, 4)
    assert (agreed.available_at, agreed.expires_at) == (START, None)
    assert terms(**submit.like(make_task(), {})) == terms()
