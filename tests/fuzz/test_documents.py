"""Any bytes under a key of ours are a document, or damaged; nothing else comes of them."""

from __future__ import annotations

import json
from datetime import timedelta

from hypothesis import assume, example, given
from hypothesis import strategies as st

from buquet import DamagedObject
from buquet.core import codec, index, transitions
from buquet.core.model import Batch, WorkerRecord
from buquet.ledger.ledger import Ledger
from buquet.ledger.lock import Lock
from buquet.store import MemoryStore
from buquet.testing import FakeClock
from tests.core.making import facts
from tests.fuzz.documents import BATCH_KEY, BATCHES, LOCK, WORKER, WORKER_KEY, at, damaged, places
from tests.fuzz.effort import examples

SPAN = timedelta(seconds=60)


def read_batch(body: bytes) -> Batch | None:
    try:
        return codec.decode_batch(body, BATCH_KEY)
    except DamagedObject as error:
        assert len(str(error)) < 1000
        return None


def write_batch(batch: Batch) -> bytes | None:
    try:
        return codec.encode_batch(batch)
    except DamagedObject:
        return None


@given(damaged(*BATCHES))
@examples(500)
def test_bytes_are_a_batch_that_can_be_written_again_or_damaged(body: bytes) -> None:
    batch = read_batch(body)

    written = write_batch(batch) if batch else None
    if written is not None:
        assert codec.decode_batch(written, BATCH_KEY) == batch
        assert json.loads(written)["tasks"] is not None


@given(damaged(*BATCHES), st.sampled_from([0, 59, 61, 3600, 10**6]))
@examples(200)
def test_a_batch_that_can_be_read_can_be_settled_and_then_written(body: bytes, late: int) -> None:
    batch = read_batch(body)
    assume(batch is not None)
    assert batch is not None

    settled = transitions.settle(batch, facts(late), {})
    changed = index.moved(settled, settled.due + 1, "ab")

    written = write_batch(changed)
    assert written is None or codec.decode_batch(written, BATCH_KEY) == changed
    index.entries(changed)


@given(damaged(WORKER))
@examples(300)
def test_bytes_are_a_workers_record_that_can_be_written_again_or_damaged(body: bytes) -> None:
    try:
        record: WorkerRecord = codec.decode_worker(body, WORKER_KEY)
    except DamagedObject as error:
        assert len(str(error)) < 1000
        return

    assert codec.decode_worker(codec.encode_worker(record), WORKER_KEY) == record


@given(damaged(LOCK))
@examples(300)
@example(b'{"until": "0001-01-01T00:00:00+14:00"}')
def test_whatever_is_in_a_lock_its_turn_comes_in_a_while(body: bytes) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    store.put("locks/sweep.json", body)
    lock = Lock(Ledger(store), "sweep")

    lock.try_acquire(SPAN)
    clock.advance(SPAN.total_seconds())

    assert lock.try_acquire(SPAN)


@st.composite
def newer(draw: st.DrawFn, documents: list[bytes]) -> tuple[bytes, tuple[str | int, ...]]:
    """Draw a document of a later version: with one more field somewhere, and the path of that."""
    document = json.loads(draw(st.sampled_from(documents)))
    free = [path for path in places(document) if isinstance(at(document, path), dict)]
    path = draw(st.sampled_from([each for each in free if each[-1:] not in [("counters",)]]))
    name = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("new-".__add__))
    at(document, path)[name] = draw(st.sampled_from([None, 0, "x", [1, {"a": None}], {}, 2.5]))
    return json.dumps(document).encode(), (*path, name)


@given(newer(BATCHES))
@examples(150)
def test_a_field_of_a_later_version_is_kept_wherever_it_stands(
    found: tuple[bytes, tuple[str | int, ...]],
) -> None:
    body, path = found

    written = codec.encode_batch(codec.decode_batch(body, BATCH_KEY))

    assert at(json.loads(written), path) == at(json.loads(body), path)
