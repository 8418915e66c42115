from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buquet import InvalidOptions, TaskNotFound, TaskStatus
from buquet.clock import EPOCH
from buquet.core import keys
from buquet.core.keys import EndedKey, Entry

MOMENTS = st.datetimes().map(lambda at: at.replace(tzinfo=UTC)).filter(lambda at: at >= EPOCH)
BATCH_IDS = st.integers(0, 2**128 - 1).map(keys.new_batch_id)
MINUTES = st.integers(0, keys.minute_of(datetime.max.replace(tzinfo=UTC)))
ENTRIES = st.builds(
    Entry,
    minute=MINUTES,
    batch_id=BATCH_IDS,
    generation=st.integers(0, 10**9),
    tail=st.text("0123456789abcdef", min_size=1, max_size=16),
    priority=st.integers(-100, 100),
    count=st.integers(0, 65536),
    expires=st.none() | st.integers(0, 253402300800),
    task_type=st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True),
)
ENDED = st.builds(EndedKey, status=st.sampled_from(TaskStatus), minute=MINUTES, batch_id=BATCH_IDS)
ONE = Entry(29454000, keys.new_batch_id(0xABCDEF << 64), 3, "ab", -5, 12, 1767268800, "send.email")


@given(ENTRIES)
def test_the_key_of_an_entry_says_all_that_is_in_it(entry: Entry) -> None:
    assert keys.parse_entry(entry.key) == entry


@given(ENDED)
def test_the_key_of_what_has_ended_says_all_that_is_in_it(ended: EndedKey) -> None:
    assert keys.parse_ended(ended.key) == ended


@given(st.lists(ENTRIES, max_size=20))
def test_entries_sort_by_the_minute_at_which_they_are_due(found: list[Entry]) -> None:
    in_order = sorted(found, key=lambda entry: entry.key)

    assert [entry.minute for entry in in_order] == sorted(entry.minute for entry in found)


@given(
    st.lists(
        st.builds(EndedKey, status=st.just(TaskStatus.FAILED), minute=MINUTES, batch_id=BATCH_IDS),
        max_size=20,
    )
)
def test_what_ended_last_sorts_first(found: list[EndedKey]) -> None:
    in_order = sorted(found, key=lambda ended: ended.key)

    minutes = [ended.minute for ended in found]
    assert [ended.minute for ended in in_order] == sorted(minutes, reverse=True)


@given(ENTRIES, MINUTES)
def test_a_listing_after_a_minute_finds_that_minute_and_later_ones(
    entry: Entry, minute: int
) -> None:
    assert (entry.key > keys.ready_after(minute)) == (entry.minute >= minute)


def test_a_listing_can_begin_within_a_minute() -> None:
    assert keys.ready_from(29454000, "7f") == "ready/0029454000/7f"
    assert keys.ready_after(-3) == "ready/0000000000/"


HOSTILE = [
    "",
    "ready/",
    "ready/0029454000",
    ONE.key + "/more",
    ONE.key + "\n",
    "/" + ONE.key,
    ONE.key.upper(),
    ONE.key.replace("0029454000", "29454000"),
    ONE.key.replace("0029454000", "-029454000"),
    ONE.key.replace("/3-ab/", "/03-ab/"),
    ONE.key.replace("/3-ab/", "/3/"),
    ONE.key.replace("/3-ab/", "/-3-ab/"),
    ONE.key.replace("/-5/", "/-0/"),
    ONE.key.replace("/-5/", "/05/"),
    ONE.key.replace("/-5/", "/1000/"),
    ONE.key.replace("/12/", "/012/"),
    ONE.key.replace("/12/", "/٢/"),
    ONE.key.replace("0029454000", "٠٠٢٩٤٥٤٠٠٠"),
    ONE.key.replace("1767268800", ""),
    ONE.key.replace("1767268800", "9" * 5000),
    ONE.key.replace("send.email", ""),
    ONE.key.replace("send.email", "a b"),
    ONE.key.replace("send.email", "a" * 129),
    ONE.key.replace("send.email", "../x"),
    ONE.key.replace(ONE.batch_id, "../../etc/passwd"),
    ONE.key.replace(ONE.batch_id, ONE.batch_id.upper()),
    ONE.key.replace("ready/", "ended/"),
]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_that_is_not_quite_ours_is_nobodys(key: str) -> None:
    assert key != ONE.key
    assert keys.parse_entry(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "ended/failed/",
        f"ended/lost/9970545999/{ONE.batch_id}",
        f"ended/failed/99705459990/{ONE.batch_id}",
        f"ended/failed/٩٩٧٠٥٤٥٩٩٩/{ONE.batch_id}",
        f"ended/failed/9970545999/{ONE.batch_id}/x",
        "ended/failed/9970545999/none",
    ],
)
def test_a_key_of_what_ended_that_is_not_quite_ours_is_nobodys(key: str) -> None:
    assert keys.parse_ended(key) is None


@given(st.text(max_size=60) | st.text().map(lambda text: f"ready/0029454000/{text}"))
def test_any_text_is_our_key_exactly_or_not_at_all(text: str) -> None:
    entry, ended = keys.parse_entry(text), keys.parse_ended(text)

    assert entry is None or entry.key == text
    assert ended is None or ended.key == text
    assert keys.batch_id_of(text) is None


@given(st.integers(0, 2**128 - 1))
def test_a_batch_id_is_a_uuid_whose_last_16_bits_are_zero(bits: int) -> None:
    batch_id = keys.new_batch_id(bits)

    parsed = uuid.UUID(batch_id)
    assert str(parsed) == batch_id
    assert parsed.version == 4
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int % 65536 == 0


@given(BATCH_IDS, st.integers(0, 65535))
def test_the_batch_and_its_key_follow_from_a_task_id(batch_id: str, number: int) -> None:
    task_id = keys.task_id(batch_id, number)

    assert str(uuid.UUID(task_id)) == task_id
    assert keys.batch_id_of_task(task_id) == batch_id
    assert keys.batch_id_of(keys.batch_key(batch_id)) == batch_id


def test_ids_differ_in_their_random_bits() -> None:
    assert keys.new_batch_id(1 << 16) != keys.new_batch_id(2 << 16)
    assert keys.new_batch_id(1 << 127) != keys.new_batch_id(0)


@pytest.mark.parametrize("text", ["tasks/x.json", f"tasks/{ONE.batch_id}", f"{ONE.batch_id}.json"])
def test_what_is_no_batchs_key_has_no_batch(text: str) -> None:
    assert keys.batch_id_of(text) is None


@pytest.mark.parametrize("text", ["", "x", "../x", ONE.batch_id[:-1], ONE.batch_id + "0", 5, None])
def test_what_is_no_task_id_is_not_found(text: Any) -> None:
    with pytest.raises(TaskNotFound):
        keys.check_task_id(text)


def test_a_task_id_may_be_pasted_with_blanks_and_capitals() -> None:
    assert keys.check_task_id(f" {ONE.batch_id.upper()}\n") == ONE.batch_id


Kind = Enum("Kind", {"EMAIL": "email"}, type=str)


def test_a_task_type_that_is_a_member_of_an_enum_is_its_text() -> None:
    checked = keys.check_task_type(Kind["EMAIL"])

    assert type(checked) is str
    assert f"{checked}" == "email"


@pytest.mark.parametrize("text", ["", "a b", "a/b", "é", "a" * 129, "a\n", 5, None, b"email", Kind])
def test_what_is_no_task_type_is_refused(text: Any) -> None:
    with pytest.raises(InvalidOptions, match="not a task type"):
        keys.check_task_type(text)


@pytest.mark.parametrize("text", ["", "a/b", "..\n", "é", "a" * 201])
def test_what_is_no_worker_id_makes_no_key(text: str) -> None:
    with pytest.raises(InvalidOptions, match="not a worker id"):
        keys.worker_key(text)


@given(MOMENTS)
def test_a_moment_lies_in_its_minute(moment: datetime) -> None:
    start = keys.start_of(keys.minute_of(moment))

    assert timedelta(0) <= moment - start < timedelta(minutes=1)


@given(MOMENTS)
def test_the_deadline_in_a_key_is_never_too_early_and_less_than_a_second_late(
    moment: datetime,
) -> None:
    said = keys.epoch_seconds_up(moment) - moment.timestamp()

    assert -1e-5 <= said < 1 + 1e-5


def test_an_entry_tells_whether_a_deadline_has_passed() -> None:
    deadline = datetime.fromtimestamp(1767268800, UTC)

    assert not ONE.has_expired_at(deadline - timedelta(microseconds=1))
    assert ONE.has_expired_at(deadline)
