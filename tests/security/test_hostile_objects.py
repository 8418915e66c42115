"""Whatever is in the bucket, it is read or passed over, and the tasks beside it run."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from buquet import DamagedObject, Queue, Sweeper, Task, TaskStatus
from buquet.core.codec import DOCUMENT_DEPTH
from buquet.core.keys import READY, batch_key, lock_key, new_batch_id, task_id, worker_key
from buquet.ledger.lock import Lock
from buquet.store import Change
from tests.helpers import World

Spoil = Callable[[Any], None]

FAR = "9999-12-31T23:59:59.999999Z"
LONG_AGO = "0001-01-01T00:00:00Z"
DIGITS = 10**4300 - 1
OUT_OF_PLACE = "../../../locks/sweep"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def queue(world: World) -> Queue:
    return world.queue()


def document_of(world: World, task: Task) -> Any:
    stored = world.store.get(batch_key(task.batch_id))
    assert stored is not None
    return json.loads(stored.body)


def replace(world: World, task: Task, document: Any) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    world.store.put(batch_key(task.batch_id), body)


def in_batch(**fields: Any) -> Spoil:
    return lambda document: document.update(fields)


def in_task(**fields: Any) -> Spoil:
    return lambda document: document["tasks"][0].update(fields)


def running(**fields: Any) -> Spoil:
    held = {"status": "running", "attempt": 1, "worker_id": "w1", "lease_id": "w1/ab"}
    return in_task(**{**held, "lease_expires_at": LONG_AGO, **fields})


def of_type(task_type: str) -> Spoil:
    def spoil(document: Any) -> None:
        document["task_type"] = document["tasks"][0]["task_type"] = task_type

    return spoil


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


SPOILT: dict[str, Spoil] = {
    "the id of another batch": in_batch(id=new_batch_id(5)),
    "an id that leads out of its folder": in_batch(id=OUT_OF_PLACE),
    "a task id of control characters": lambda document: in_task(id=f"{document['id'][:-4]}\x1b[2J")(
        document
    ),
    "the same task twice": lambda document: document["tasks"].append(document["tasks"][0]),
    "a type that leads out of its folder": of_type(OUT_OF_PLACE),
    "a type of two lines": of_type("ok\nok"),
    "digits of its entry that lead out of its folder": in_batch(tail=OUT_OF_PLACE),
    "an entry after the end of time": in_batch(due=10**10 - 1),
    "an entry before the beginning of time": in_batch(due=-1),
    "a generation of thousands of digits": in_batch(generation=DIGITS),
    "a count of thousands of digits": in_batch(count=DIGITS),
    "an attempt of thousands of digits": in_task(attempt=DIGITS),
    "a version of thousands of digits": in_task(version=DIGITS),
    "a lost count of thousands of digits": running(lost_count=DIGITS),
    "a retry count of thousands of digits": running(retry_count=DIGITS),
    "attempts beyond all counting": running(attempt=2**63 - 1, retry_count=2**63 - 1),
    "a negative attempt": in_task(attempt=-(2**63) + 1),
    "a timeout without end": in_task(timeout_seconds=1e308),
    "a timeout below zero": in_task(timeout_seconds=-1e308),
    "a wait that can't be reckoned": running(retry_policy={"factor": 1.7e308}),
    "a lease without end": running(lease_expires_at=FAR),
    "a start at the end of time": in_task(available_at=FAR),
    "a deadline at the end of time": in_task(expires_at=FAR),
    "a deadline at the beginning of time": in_task(expires_at=LONG_AGO),
    "an end before the beginning of time": in_task(status="expired", expired_at=LONG_AGO),
    "a status of the wrong kind": in_task(status=["pending"]),
    "a worker that leads out of its folder": running(worker_id=OUT_OF_PLACE),
    "a worker of control characters": running(worker_id="\n\x1b[2J\x00"),
    "half a character for a worker": running(worker_id="\ud800"),
    "a history of the wrong kind": in_task(history=[None]),
    "an input nested too deep": in_task(input=nested(450)),
    "an unknown field nested too deep": in_batch(later=nested(450)),
    "a detail nested too deep": lambda document: document["tasks"][0]["history"][0].update(
        details={"deep": nested(450)}
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_batch_that_is_not_as_we_write_it_keeps_no_other_from_its_end(
    world: World, queue: Queue, what: str
) -> None:
    hostile = queue.submit("ok", ttl_seconds=600, timeout_seconds=50)
    document = document_of(world, hostile)
    SPOILT[what](document)
    replace(world, hostile, document)
    other = queue.submit("ok")
    before = {key for key in world.index() if READY in key}

    world.worker().run(burst=True)
    world.sweeper().sweep_once()
    world.clock.advance(hours=2)
    world.sweeper().sweep_once(full=True)
    world.worker().drain()
    tasks = list(queue.list())
    queue.stats()

    assert queue.get(other.id).status is TaskStatus.COMPLETED
    assert other.id in {task.id for task in tasks}
    assert not [key for key in world.index() - before if ".." in key or "\n" in key]


RAW = {
    "nothing": lambda body: b"",
    "not JSON": lambda body: b"\x00\xff",
    "NaN": lambda body: body.replace(b'"due":', b'"extra":NaN,"due":'),
    "a number beyond all floats": lambda body: body.replace(b'"due":', b'"extra":1e999,"due":'),
    "an integer that Python does not read": lambda body: body.replace(
        b'"due":', b'"extra":' + b"9" * 5000 + b',"due":'
    ),
    "brackets without end": lambda body: b"[" * 1_000_000,
    "the same field twice": lambda body: body.replace(b'"due":', b'"due":"soon","due":'),
    "megabytes of spaces": lambda body: body + b" " * 8_000_000,
    "half of itself": lambda body: body[: len(body) // 2],
}


@pytest.mark.parametrize("what", RAW)
def test_a_batch_of_any_bytes_keeps_no_other_from_its_end(
    world: World, queue: Queue, what: str
) -> None:
    hostile, other = queue.submit("ok", ttl_seconds=600), queue.submit("ok")
    stored = world.store.get(batch_key(hostile.batch_id))
    assert stored is not None
    replace(world, hostile, RAW[what](stored.body))

    world.worker().run(burst=True)
    world.clock.advance(hours=1)
    world.sweeper().sweep_once(full=True)

    assert queue.get(other.id).status is TaskStatus.COMPLETED


def test_what_is_nested_too_deep_is_refused_where_it_is_read(world: World, queue: Queue) -> None:
    task = queue.submit("ok")
    document = document_of(world, task)
    document["tasks"][0]["input"] = nested(DOCUMENT_DEPTH)
    replace(world, task, document)

    with pytest.raises(DamagedObject, match="nested deeper than 120 levels"):
        queue.get(task.id)


def test_a_history_without_end_is_cut_at_the_next_change(world: World, queue: Queue) -> None:
    task = queue.submit("ok")
    document = document_of(world, task)
    history = document["tasks"][0]["history"]
    document["tasks"][0] |= {"history": history * 20_000, "version": 20_000}
    replace(world, task, document)

    world.worker().drain()

    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert len(queue.history(task.id)) == 51


def test_a_batch_that_is_spoilt_while_it_is_claimed_is_not_looked_at_again_at_once(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = queue.submit("ok")
    key = batch_key(task.batch_id)
    reads: list[str] = []
    get, commit = world.store.get, world.store.commit

    def counted(key: str, **condition: Any) -> Any:
        reads.append(key)
        return get(key, **condition)

    def overtaken(change: Change) -> Any:
        world.store.put(key, b"spoilt")
        return commit(change)

    monkeypatch.setattr(world.store, "get", counted)
    monkeypatch.setattr(world.store, "commit", overtaken)

    world.worker().drain()

    assert reads.count(key) < 10


# --- the index


STRANGE_ENTRIES = [
    "0000000001/../../locks/sweep",
    "0000000001/%2e%2e%2f%2e%2e/x",
    "0000000001/\x00\n\x1b[2J\u202e",
    "0000000001/\u0660\u0661",
    "9" * 900,
    f"0000000001/{new_batch_id(9)}/1-ab/0/1/-/ok\n",
    f"0000000001/{new_batch_id(9)}/999999999999-ab/999/99999/999999999999/ok",
    f"0000000001/{new_batch_id(9)}/1-ab/0/1/-/{'a' * 129}",
]


@pytest.mark.parametrize("name", STRANGE_ENTRIES)
def test_an_entry_of_any_name_keeps_no_task_from_its_end(
    world: World, queue: Queue, name: str
) -> None:
    world.store.put(READY + name, b"x")
    task = queue.submit("ok")

    world.worker().run(burst=True)
    world.sweeper().sweep_once(full=True)

    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert queue.stats().unfinished.keys() <= {"ok"}


def test_thousands_of_entries_that_lead_nowhere_keep_no_task_from_its_end(
    world: World, queue: Queue
) -> None:
    for number in range(3000):
        world.store.put(f"{READY}0000000001/{new_batch_id(number << 64)}/1-ab/0/1/-/ok", b"")
    task = queue.submit("ok")

    world.worker().run(burst=True)

    assert queue.get(task.id).status is TaskStatus.COMPLETED


# --- records of workers


def record(**fields: Any) -> bytes:
    times = dict.fromkeys(("started_at", "heartbeat_at", "lease_expires_at"), LONG_AGO)
    plain = {"id": "w1", "host": "h", "pid": 1, "threads": 1, "task_types": []}
    return json.dumps({**plain, **times, **fields}).encode()


RECORDS = {
    "ids that lead out of their folder": record(running=[OUT_OF_PLACE]),
    "half a character for an id": record(running=["\ud800"]),
    "ids of control characters": record(running=["\x00\n"]),
    "a task that is not there": record(running=[task_id(new_batch_id(3), 0)]),
    "numbers without end": record(pid=DIGITS, threads=-DIGITS, counters={"done": DIGITS}),
    "fields nested too deep": record(later=nested(450)),
    "times of no zone": record(heartbeat_at="2026-01-01T00:00:00"),
    "progress of the wrong kind": record(progress={"x": [1]}),
    "progress beyond all bounds": record(
        progress={"x": {"fraction": 1e308, "text": "x" * 100_000, "at": FAR}}
    ),
    "brackets without end": b"[" * 1_000_000,
}


@pytest.mark.parametrize("what", RECORDS)
def test_a_worker_record_of_any_content_ends_no_sweep(
    world: World, queue: Queue, what: str
) -> None:
    world.store.put(worker_key("w1"), RECORDS[what])
    late = queue.submit("ok", ttl_seconds=60)
    world.clock.advance(hours=1)

    world.sweeper().sweep_once()
    queue.stats()
    list(queue.workers())

    assert queue.get(late.id).status is TaskStatus.EXPIRED


def test_a_record_that_says_alive_for_ever_keeps_only_the_claims_of_its_own_worker(
    world: World, queue: Queue
) -> None:
    world.store.put(worker_key("w1"), record(lease_expires_at=FAR))
    task, held = queue.submit("ok"), queue.submit("ok")
    document = document_of(world, held)
    running()(document)
    replace(world, held, document)

    world.worker().run(burst=True)
    world.clock.advance(hours=1)
    world.sweeper().sweep_once()

    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert queue.get(held.id).status is TaskStatus.RUNNING


# --- locks


LOCKS = [
    json.dumps({"by": "x", "until": FAR}).encode(),
    json.dumps({"by": "x", "until": "9999-12-31T23:59:59-23:59"}).encode(),
    json.dumps({"by": "x", "until": "9999-12-31T23:59:59"}).encode(),
    json.dumps({"by": "x", "until": LONG_AGO}).encode(),
    json.dumps({"by": "x", "until": [1]}).encode(),
    b"[" * 1_000_000,
    b"9" * 5000,
    b"\xff",
    b"",
]


@pytest.mark.parametrize("body", LOCKS, ids=range(len(LOCKS)))
def test_a_lock_of_any_content_is_held_for_no_longer_than_a_turn(
    world: World, queue: Queue, body: bytes
) -> None:
    world.store.put(lock_key("sweep"), body)
    turn = Lock(queue.ledger, "sweep")
    span = timedelta(seconds=60)

    turn.try_acquire(span)
    world.clock.advance(seconds=61)

    assert turn.try_acquire(span)


def test_a_full_sweep_tells_of_each_batch_that_it_passed_over(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = queue.submit("ok")
    replace(world, hostile, b"[" * 1_000_000)

    report = Sweeper(queue, threads=1).sweep_once(full=True)

    assert report.errors > 0
    assert hostile.batch_id in caplog.text
