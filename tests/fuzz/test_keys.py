"""Any text is a key of ours, which it says again exactly, or it is nobody's."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from buquet import BuquetError, InvalidOptions, TaskNotFound, TaskStatus
from buquet.core import keys
from tests.core.making import BATCH_ID
from tests.fuzz.documents import ODD_TEXTS
from tests.fuzz.effort import examples

PARTS = st.sampled_from(
    [
        *("ready", "ended", "tasks", "workers", "locks", "failed", "pending", "expired", "lost"),
        *(
            "0029454000",
            "9999999999",
            "0000000000",
            "4225902480",
            "\u0660\u0660" + "29454000",
            "1-ab",
            "01-ab",
        ),
        *("999999999999-ffff", "1-", "-1-ab", "0", "-0", "-100", "1000", "007", "-", "99999"),
        *(BATCH_ID, BATCH_ID.upper(), f"{BATCH_ID}.json", "w1.json", "email", "a" * 129, ".."),
    ]
)
"""What keys are made of, and what looks like it."""

KEYS = st.lists(PARTS | ODD_TEXTS, max_size=9).map("/".join) | st.text()


@st.composite
def near_entries(draw: st.DrawFn) -> str:
    """Draw a key in which each part may be what it should be."""
    right = ["ready", "0029454000", BATCH_ID, "1-ab", "5", "1", "1767268800", "email"]
    wrong = draw(st.integers(0, len(right)))
    return "/".join(draw(PARTS) if index == wrong else part for index, part in enumerate(right))


@given(KEYS | near_entries())
@examples(600)
def test_the_key_of_an_entry_is_read_as_it_is_written_or_not_at_all(text: str) -> None:
    entry = keys.parse_entry(text)

    assert entry is None or entry.key == text
    if entry is not None:
        assert isinstance(keys.start_of(entry.minute), datetime)


@given(KEYS | st.tuples(PARTS, PARTS, PARTS).map(lambda parts: "/".join(["ended", *parts])))
@examples(600)
def test_the_key_of_what_has_ended_is_read_as_it_is_written_or_not_at_all(text: str) -> None:
    ended = keys.parse_ended(text)

    assert ended is None or ended.key == text
    assert ended is None or ended.status in TaskStatus


@given(KEYS | st.tuples(PARTS, PARTS).map("/".join))
@examples(300)
def test_the_key_of_a_batch_is_read_as_it_is_written_or_not_at_all(text: str) -> None:
    batch_id = keys.batch_id_of(text)

    assert batch_id is None or keys.batch_key(batch_id) == text


@given(KEYS | PARTS)
@examples(300)
def test_any_text_is_the_id_of_a_worker_or_refused(text: str) -> None:
    try:
        key = keys.worker_key(text)
    except InvalidOptions:
        return
    assert key == f"workers/{text}.json"
    assert "/" not in text


@given(
    KEYS | PARTS | ODD_TEXTS.map(BATCH_ID.__add__) | st.sampled_from([None, 5, b"x", [BATCH_ID]])
)
@examples(300)
def test_whatever_is_given_for_an_id_is_one_or_leads_to_no_task(given_id: Any) -> None:
    try:
        task_id = keys.check_task_id(given_id)
    except TaskNotFound as error:
        assert isinstance(str(error), str)
        return
    batch_id = keys.batch_id_of_task(task_id)
    assert keys.batch_id_of(keys.batch_key(batch_id)) == batch_id
    assert keys.task_id(batch_id, int(task_id[-4:], 16)) == task_id


@given(KEYS | PARTS | st.sampled_from([None, 5, b"email", ["email"]]))
@examples(300)
def test_whatever_is_given_for_a_task_type_makes_the_key_of_an_entry_or_is_refused(
    given_type: Any,
) -> None:
    try:
        task_type = keys.check_task_type(given_type)
    except BuquetError as error:
        assert isinstance(error, InvalidOptions)
        return
    entry = keys.Entry(29454000, BATCH_ID, 1, "ab", 0, 1, None, task_type)
    assert keys.parse_entry(entry.key) == entry
