"""G8: what goes in comes out, or is refused with its path; and no damage breaks a reader."""

from __future__ import annotations

import json
import math
import uuid
from collections import OrderedDict, namedtuple
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import PurePath
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buquet import DamagedObject, InvalidPayload, PayloadTooLarge, RetryPolicy, TaskStatus
from buquet.core import codec, index, keys, transitions
from buquet.core.codec import MAX_DEPTH, MAX_DIGITS, PAYLOAD_LIMIT
from buquet.core.model import Batch, Progress, Revision, Task, WorkerRecord
from buquet.testing.clock import START
from tests.core.making import (
    BATCH_ID,
    claimed,
    facts,
    make_any,
    make_batch,
    make_running,
    make_task,
)

KEY = keys.batch_key(BATCH_ID)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
PAYLOADS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
TIMES = st.datetimes().map(lambda at: at.replace(tzinfo=UTC))
POLICIES = st.builds(
    RetryPolicy,
    initial_seconds=st.floats(0.001, 10**6),
    factor=st.floats(1, 100),
    max_seconds=st.floats(0.001, 10**6),
    jitter=st.floats(0, 1),
)
EXTRA = st.dictionaries(
    TEXT.map(lambda text: f"x-{text}") | st.sampled_from(["extra", "memo"]), PAYLOADS, max_size=2
)
REVISIONS = st.builds(
    Revision,
    version=st.integers(1, 999),
    status=st.sampled_from(TaskStatus),
    at=TIMES,
    by=TEXT,
    event=TEXT,
    details=st.dictionaries(TEXT, PAYLOADS, max_size=2),
    extra=EXTRA,
)


def tasks(number: int) -> st.SearchStrategy[Task]:
    some_time = st.none() | TIMES
    return st.builds(
        Task,
        id=st.just(keys.task_id(BATCH_ID, number)),
        task_type=st.just("email"),
        input=PAYLOADS,
        output=PAYLOADS,
        status=st.sampled_from(TaskStatus),
        priority=st.integers(-100, 100),
        created_at=TIMES,
        available_at=TIMES,
        updated_at=TIMES,
        started_at=some_time,
        completed_at=some_time,
        expires_at=some_time,
        expired_at=some_time,
        cancelled_at=some_time,
        cancelled_by=st.none() | TEXT,
        cancel_requested=st.booleans(),
        timeout_seconds=st.none() | st.floats(0.001, 10**9),
        max_retries=st.integers(0, 10**6),
        retry_policy=POLICIES,
        attempt=st.integers(0, 99),
        retry_count=st.integers(0, 99),
        reschedule_count=st.integers(0, 99),
        max_reschedules=st.none() | st.integers(0, 99),
        last_error=st.none() | TEXT,
        worker_id=st.none() | TEXT,
        lease_id=st.none() | TEXT,
        lease_expires_at=some_time,
        version=st.integers(0, 99),
        history=st.lists(REVISIONS, max_size=2).map(tuple),
        extra=EXTRA,
    )


BATCHES = st.builds(
    Batch,
    id=st.just(BATCH_ID),
    task_type=st.just("email"),
    priority=st.integers(-100, 100),
    tasks=st.tuples(tasks(0), tasks(1)),
    writes=st.lists(TEXT, max_size=3).map(tuple),
    due=st.integers(0, 10**9),
    generation=st.integers(0, 99),
    tail=TEXT,
    count=st.integers(0, 2),
    expires=st.none() | st.integers(0, 10**11),
    extra=EXTRA,
)
WORKERS = st.builds(
    WorkerRecord,
    id=TEXT,
    host=TEXT,
    pid=st.integers(0, 10**7),
    threads=st.integers(1, 999),
    task_types=st.lists(TEXT, max_size=3).map(tuple),
    started_at=TIMES,
    heartbeat_at=TIMES,
    lease_expires_at=TIMES,
    running=st.lists(st.uuids().map(str), max_size=3).map(tuple),
    progress=st.dictionaries(
        TEXT,
        st.builds(Progress, fraction=st.floats(0, 1), text=TEXT, at=TIMES, extra=EXTRA),
        max_size=3,
    ),
    counters=st.dictionaries(TEXT, st.integers(0, codec.LARGEST_COUNT), max_size=3),
    extra=EXTRA,
)


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal and of the same types: 1, 1.0 and True are not."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def round_trip(batch: Batch) -> Batch:
    return codec.decode_batch(codec.encode_batch(batch), KEY)


# --- payloads


@given(PAYLOADS)
@example({"": 0, "a.b": [1], "\u0000": "\u2028", "naïve": "\U0001f600", "__class__": None})
@example([10**MAX_DIGITS - 1, -(10**MAX_DIGITS) + 1])
@example([-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22, 1.0, 1, True])
def test_any_json_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    codec.payload_size(value, "input")

    back = round_trip(make_batch(make_task(input=value)))

    assert same(back.tasks[0].input, value)
    assert same(codec.copy_payload(value), value)
    done = transitions.complete(make_running(), facts(1), output=value)
    assert same(round_trip(make_batch(done)).tasks[0].output, value)


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (namedtuple("Point", "x y")(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ([Level.HIGH], [3]),
        ({"status": TaskStatus.FAILED}, {"status": "failed"}),
    ],
)
def test_kin_of_lists_objects_and_numbers_arrive_as_such(value: Any, expected: Any) -> None:
    codec.payload_size(value, "input")

    assert same(round_trip(make_batch(make_task(input=value))).tasks[0].input, expected)


def test_a_copy_of_a_payload_has_the_values_that_come_out_of_the_store() -> None:
    copy = codec.copy_payload({TaskStatus.FAILED: [Level.HIGH, (TaskStatus.FAILED,)]})

    assert same(copy, {"failed": [3, ["failed"]]})
    assert type(next(iter(copy))) is str


def test_a_copy_of_a_payload_is_one_of_its_own() -> None:
    value = {"a": [1, {"b": []}]}

    copy = codec.copy_payload(value)
    value["a"][1]["b"].append(5)  # type: ignore[index]

    assert copy == {"a": [1, {"b": []}]}


def test_the_size_of_a_payload_is_its_size_as_json() -> None:
    assert codec.payload_size({"é": [1, 2.5, None]}, "input") == len('{"é":[1,2.5,null]}'.encode())


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append({"self": value})
    return value


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (float("nan"), "input", "is nan"),
        ({"a": [1, float("inf")]}, "input.a[1]", "is inf"),
        ({"a": {1, 2}}, "input.a", "is of type set"),
        ([b"x"], "input[0]", "is of type bytes"),
        ({"users": [{"born": START}]}, "input.users[0].born", "datetime"),
        ({"d": date(2026, 1, 1)}, "input.d", "is of type date"),
        ({"t": timedelta(1)}, "input.t", "is of type timedelta"),
        ([uuid.UUID(int=0)], "input[0]", "is of type UUID"),
        ([Decimal("1.5")], "input[0]", "is of type Decimal"),
        ((PurePath("/"),), "input[0]", "Path"),
        (object(), "input", "is of type object"),
        ([1j], "input[0]", "is of type complex"),
        (iter([1]), "input", "is of type list_iterator"),
        ({"a": {1: "x"}}, "input.a", "has the key 1; in JSON all keys are text"),
        ({None: 1}, "input", "has the key None"),
        ({True: 1}, "input", "has the key True"),
        ({b"k": 1}, "input", "has the key b'k'"),
        ({"a": "\ud800"}, "input.a", "lone surrogate"),
        ({"a": {"\udfff": 1}}, "input.a", "lone surrogate"),
        ({"n": 10**MAX_DIGITS}, "input.n", "more than 4,300 digits"),
        ([-(10**MAX_DIGITS)], "input[0]", "more than 4,300 digits"),
        ([10**20000], "input[0]", "more than 4,300 digits"),
        (nested(MAX_DEPTH + 1), "input" + "[0]" * (MAX_DEPTH + 1), "nested deeper than 100"),
        (nested(100_000), "input" + "[0]" * (MAX_DEPTH + 1), "nested deeper than 100"),
        (endless(), "input" + "[0].self" * 50 + "[0]", "nested deeper than 100"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        codec.payload_size(value, "input")

    assert refused.value.path == path
    assert reason in refused.value.reason
    assert str(refused.value).startswith(path)
    assert isinstance(refused.value, TypeError)


def test_the_deepest_payload_allowed_comes_back() -> None:
    value = nested(MAX_DEPTH)
    codec.payload_size(value, "input")

    assert round_trip(make_batch(make_task(input=value))).tasks[0].input == value


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger() -> None:
    quotes = 2
    assert codec.payload_size("a" * (PAYLOAD_LIMIT - quotes), "input") == PAYLOAD_LIMIT

    with pytest.raises(PayloadTooLarge) as refused:
        codec.payload_size("é" * (PAYLOAD_LIMIT // 2), "input")

    assert (refused.value.size, refused.value.limit) == (PAYLOAD_LIMIT + 2, PAYLOAD_LIMIT)
    assert refused.value.path == "input"
    assert "pass a reference" in str(refused.value)


# --- documents


@given(BATCHES)
@settings(max_examples=60)
def test_a_batch_comes_back_as_it_was_written(batch: Batch) -> None:
    assert round_trip(batch) == batch


@given(WORKERS)
@settings(max_examples=60)
def test_a_workers_record_comes_back_as_it_was_written(record: WorkerRecord) -> None:
    assert codec.decode_worker(codec.encode_worker(record), "workers/w.json") == record


@given(BATCHES)
@settings(max_examples=60)
def test_what_is_shown_of_a_task_agrees_with_what_is_written(batch: Batch) -> None:
    written = json.loads(codec.encode_batch(batch))["tasks"]

    for task, stored in zip(batch.tasks, written, strict=True):
        shown = json.loads(codec.to_json(task.to_dict()))
        known = {name: value for name, value in stored.items() if name in shown}
        known["retry_policy"] = known.get("retry_policy", {})
        assert known["retry_policy"].items() <= shown["retry_policy"].items()
        for revision, there in zip(known.pop("history", []), shown.pop("history"), strict=True):
            assert {name: revision.get(name, {}) for name in there} == there
        del known["retry_policy"]
        assert all(same(shown[name], value) for name, value in known.items())


def test_microseconds_of_a_deadline_survive_any_number_of_round_trips() -> None:
    task = make_task(ttl=1000.000001)
    deadline = task.expires_at

    for attempt in range(4):
        task = transitions.retry(claimed(task, attempt), facts(attempt), error="again")
        task = round_trip(make_batch(task)).tasks[0]

        assert task.expires_at == deadline
        assert isinstance(task.expires_at, datetime)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_slipped_past_all_checks_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_batch(make_batch(evolve(make_task(), output=[value])))


def test_what_was_never_set_is_not_written() -> None:
    [task] = json.loads(codec.encode_batch(make_batch(make_task())))["tasks"]

    assert set(task) == {
        "id", "task_type", "created_at", "available_at", "updated_at", "version", "history"
    }  # fmt: skip


@pytest.mark.parametrize("value", [0, False, "", [], {}, 0.0])
def test_an_input_or_output_that_is_empty_is_not_taken_for_none(value: Any) -> None:
    task = evolve(make_task(input=value), output=value)

    back = round_trip(make_batch(task)).tasks[0]

    assert same(back.input, value)
    assert same(back.output, value)


def documents() -> Any:
    """A batch as JSON with all kinds of things in it."""
    policy = RetryPolicy(initial_seconds=5)
    batch = make_batch(
        make_running(0, ttl=900, input={"a": 1}, retry_policy=policy, timeout_seconds=9.5),
        make_any(TaskStatus.CANCELLED, number=1),
        writes=("w1", "w2"),
    )
    return json.loads(codec.encode_batch(batch))


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_fields_of_a_newer_version_are_kept_at_all_levels() -> None:
    news = {"later": [{"deep": 1.0}], "extra": "e", "memo": {"m": 1}}
    document = documents()
    task = document["tasks"][0]
    for level in (document, task, task["history"][0], task["retry_policy"]):
        level.update(news)

    batch = codec.decode_batch(dumped(document), KEY)
    changed = transitions.change_task(
        batch, task["id"], facts(5), lambda task: transitions.complete(task, facts(5), output=1)
    )
    written = json.loads(codec.encode_batch(changed))

    task = written["tasks"][0]
    for level in (written, task, task["history"][0], task["retry_policy"]):
        assert level.items() >= news.items()
    assert task["status"] == "completed"


def test_fields_of_a_newer_version_are_kept_in_a_workers_record() -> None:
    record = WorkerRecord(
        id="w", host="h", pid=1, threads=2, task_types=("a",),
        started_at=START, heartbeat_at=START, lease_expires_at=START,
        progress={"t": Progress(0.5, "half", START)},
    )  # fmt: skip
    document = json.loads(codec.encode_worker(record)) | {"gpu": [1]}
    document["progress"]["t"]["eta"] = 60

    read = codec.decode_worker(dumped(document), "workers/w.json")

    assert json.loads(codec.encode_worker(read)) == document


def test_a_workers_record_of_an_older_version_tells_of_no_progress() -> None:
    record = WorkerRecord(
        id="w", host="h", pid=1, threads=2, task_types=("a",),
        started_at=START, heartbeat_at=START, lease_expires_at=START,
    )  # fmt: skip
    document = json.loads(codec.encode_worker(record))
    document.pop("progress", None)

    assert codec.decode_worker(dumped(document), "workers/w.json") == record


def test_what_is_known_of_a_task_is_not_overwritten_by_what_is_not() -> None:
    task = evolve(make_task(), extra={"status": "failed", "more": 1})

    [written] = json.loads(codec.encode_batch(make_batch(task)))["tasks"]

    assert written["more"] == 1
    assert round_trip(make_batch(evolve(make_running(), extra={"status": "x"}))).tasks[
        0
    ].status == (TaskStatus.RUNNING)


def test_a_text_that_is_no_text_is_written_all_the_same() -> None:
    """An error or a name from elsewhere may hold half a character: it must not break a commit."""
    task = evolve(make_any(TaskStatus.FAILED), last_error="file \udcff", cancelled_by="é\ud800")

    back = round_trip(make_batch(task)).tasks[0]

    assert back == task
    codec.encode_batch(make_batch(task)).decode("utf-8")


# --- the memo


def test_a_task_is_written_once_as_long_as_it_is_the_same() -> None:
    batch = make_batch(make_task(0), make_task(1))
    first = codec.encode_batch(batch)

    memo = batch.tasks[0].memo

    assert memo is not None
    assert codec.encode_batch(batch) == first
    assert batch.tasks[0].memo is memo


@pytest.mark.parametrize("name", [field.name for field in fields(Task) if field.init])
def test_a_task_that_differs_in_anything_has_no_memo_of_the_other(name: str) -> None:
    task = make_task()
    codec.encode_batch(make_batch(task))
    assert task.memo is not None

    other = evolve(task, **{name: getattr(task, name)})

    assert other.memo is None


@given(st.lists(st.sampled_from(["claim", "release", "retry", "cancel", "none"]), max_size=12))
def test_the_memo_never_goes_stale(moves: list[str]) -> None:
    task = make_task(max_retries=99)
    for step, name in enumerate(moves):
        codec.encode_batch(make_batch(task))
        if name == "claim" and task.status is TaskStatus.PENDING:
            task = claimed(task, step)
        elif name == "release" and task.status is TaskStatus.RUNNING:
            task = transitions.release(task, facts(step))
        elif name == "retry" and task.status is TaskStatus.RUNNING:
            task = transitions.retry(task, facts(step), error=str(step))
        elif name == "cancel" and not task.status.is_final:
            task = transitions.cancel(task, facts(step))

        assert round_trip(make_batch(task)).tasks[0] == task


# --- damage


def test_a_damaged_batch_names_its_key_and_what_is_wrong() -> None:
    document = documents()
    del document["tasks"][0]["created_at"]

    with pytest.raises(DamagedObject) as damaged:
        codec.decode_batch(dumped(document), KEY)

    assert damaged.value.key == KEY
    assert "created_at" in damaged.value.reason
    assert "left as it is" in str(damaged.value)


NOT_JSON = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"{}",
    b'{"id": NaN}',
    b'{"id": Infinity}',
    b'{"id": 1e999}',
    b'{"id": -1e999}',
    b'{"id": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"<html><body>503</body></html>",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("body", NOT_JSON)
def test_what_is_no_document_is_damaged(body: bytes) -> None:
    with pytest.raises(DamagedObject):
        codec.decode_batch(body, KEY)
    with pytest.raises(DamagedObject):
        codec.decode_worker(body, "workers/w.json")


DAMAGE: list[tuple[list[Any], Any]] = [
    (["tasks"], None),
    (["tasks"], {}),
    (["tasks"], ""),
    (["tasks"], "ab"),
    (["tasks"], [[]]),
    (["writes"], "abc"),
    (["writes"], {"a": 1}),
    (["writes"], [1]),
    (["due"], "1"),
    (["due"], 1.0),
    (["due"], True),
    (["id"], 5),
    (["task_type"], None),
    (["expires"], "soon"),
    (["tasks", 0, "status"], "lost"),
    (["tasks", 0, "status"], None),
    (["tasks", 0, "status"], []),
    (["tasks", 0, "status"], {}),
    (["tasks", 0, "id"], "x"),
    (["tasks", 0, "id"], keys.new_batch_id(5 << 64)),
    (["tasks", 0, "id"], keys.task_id(BATCH_ID, 1)),
    (["tasks", 0, "created_at"], "yesterday"),
    (["tasks", 0, "created_at"], "2026-01-01T12:00:00"),
    (["tasks", 0, "created_at"], 5),
    (["tasks", 0, "created_at"], None),
    (["tasks", 0, "expires_at"], "0000-01-01T00:00:00Z"),
    (["tasks", 0, "expires_at"], "10000-01-01T00:00:00Z"),
    (["tasks", 0, "expires_at"], "9999-12-31T23:59:59-23:59"),
    (["tasks", 0, "expires_at"], "0001-01-01T00:00:00+23:59"),
    (["tasks", 0, "expires_at"], False),
    (["tasks", 0, "timeout_seconds"], "9"),
    (["tasks", 0, "timeout_seconds"], True),
    (["tasks", 0, "timeout_seconds"], 10**400),
    (["tasks", 0, "attempt"], 1.5),
    (["tasks", 0, "attempt"], codec.LARGEST_COUNT + 1),
    (["tasks", 0, "version"], 10**MAX_DIGITS - 1),
    (["generation"], -codec.LARGEST_COUNT - 1),
    (["tasks", 0, "cancel_requested"], 1),
    (["tasks", 0, "retry_policy"], []),
    (["tasks", 0, "retry_policy", "initial_seconds"], -1),
    (["tasks", 0, "retry_policy", "jitter"], 10**400),
    (["tasks", 0, "history"], {}),
    (["tasks", 0, "history"], "h"),
    (["tasks", 0, "history", 0], "h"),
    (["tasks", 0, "history", 0, "details"], []),
    (["tasks", 0, "history", 0, "at"], "2026-13-01T00:00:00Z"),
]


@pytest.mark.parametrize(("path", "value"), DAMAGE)
def test_a_batch_with_anything_of_the_wrong_kind_is_damaged(path: list[Any], value: Any) -> None:
    document = documents()
    codec.decode_batch(dumped(document), KEY)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    with pytest.raises(DamagedObject):
        codec.decode_batch(dumped(document), KEY)


@pytest.mark.parametrize(
    "path", [["tasks", 0, "status"], ["tasks", 0, "created_at"], ["tasks", 0, "id"], ["due"]]
)
def test_what_is_said_of_damage_does_not_give_away_what_is_there(path: list[Any]) -> None:
    document = documents()
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "a long text, at the end of which there is a secret: xyzzy"

    with pytest.raises(DamagedObject) as damaged:
        codec.decode_batch(dumped(document), KEY)

    assert "xyzzy" not in str(damaged.value)


def test_a_batch_with_lists_in_lists_where_there_should_be_none_is_damaged() -> None:
    whole = dumped(documents())
    for levels in range(500, 1000):
        body = whole.replace(b'"tail": "00"', b'"tail": ' + b"[" * levels + b"]" * levels)
        assert body != whole
        with pytest.raises(DamagedObject):
            codec.decode_batch(body, KEY)


def test_times_of_other_zones_are_read_as_the_same_moments_in_utc() -> None:
    document = documents()
    document["tasks"][0]["expires_at"] = "2026-01-01T14:00:00+02:00"

    task = codec.decode_batch(dumped(document), KEY).tasks[0]

    assert task.expires_at == START
    assert task.to_dict()["expires_at"] == "2026-01-01T12:00:00.000000Z"


@st.composite
def damaged_documents(draw: st.DrawFn) -> Any:
    """A valid batch in which something, somewhere, has been replaced, taken out or put in."""
    document = documents()
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while True:
            inner = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not inner:
                break
            step = draw(st.sampled_from(inner))
            if not isinstance(place[step], dict | list) or draw(st.integers(0, 3)) == 0:
                if draw(st.booleans()):
                    place[step] = deepcopy(draw(ODDITIES))
                else:
                    del place[step]
                break
            place = place[step]
    return document


ODDITIES = st.sampled_from(
    [None, True, 0, -1, 10**400, 1.5, "", "x", "2026-01-01", "\ud800", [], [[]], {}, {"a": 1}, [1]]
) | PAYLOADS  # fmt: skip


@given(damaged_documents())
@settings(max_examples=300)
def test_whatever_is_wrong_with_a_batch_it_is_read_or_reported_as_damaged(document: Any) -> None:
    try:
        batch = codec.decode_batch(dumped(document), KEY)
    except DamagedObject:
        return

    assert codec.decode_batch(codec.encode_batch(batch), KEY) == batch
    index.entries(batch)
    index.next_event(batch, {})
    transitions.settle(batch, facts(100), {})


@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 40))
@settings(max_examples=200)
def test_bytes_that_were_cut_or_overwritten_are_read_or_reported_as_damaged(
    noise: bytes, start: int, length: int
) -> None:
    body = dumped(documents())
    for broken in (body[:start] + noise + body[start + length :], body[:start], noise):
        try:
            batch = codec.decode_batch(broken, KEY)
        except DamagedObject:
            continue
        assert codec.decode_batch(codec.encode_batch(batch), KEY) == batch


# --- text for people


def test_json_for_people_is_ascii() -> None:
    text = codec.to_json({"naïve": "\U0001f600\ud800"})

    assert text.isascii()
    assert json.loads(text) == {"naïve": "\U0001f600\ud800"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "not JSON"),
        ("1e999", "1e999"),
        ("[" * 10**5, "deep"),
    ],
)
def test_text_that_python_takes_for_json_and_others_do_not_is_refused(
    text: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        codec.loads(text)
