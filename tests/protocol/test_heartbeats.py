"""G3: what a worker said of itself last is what counts, in whatever order its words arrive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from buquet import Queue, StoreUnavailable, StoreUnclear, Worker
from buquet.core.keys import WORKERS
from buquet.core.model import WorkerRecord
from buquet.store import Conflict, MemoryStore
from buquet.testing import FaultyStore
from tests.helpers import World

Heartbeats = Callable[[], None]


class HoldingBack(FaultyStore):
    """Holds back one write of a worker's record: its sender gets no answer, and it comes late."""

    held_back: Callable[[], str | Conflict] | None = None
    holds_back = False

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if self.holds_back and key.startswith(WORKERS):
            self.holds_back = False
            put = super().put
            self.held_back = lambda: put(key, body, if_match=if_match, if_absent=if_absent)
            raise StoreUnclear("no answer in time")
        return super().put(key, body, if_match=if_match, if_absent=if_absent)


def beats(worker: Worker) -> Heartbeats:
    """Return what makes a heartbeat of a worker that has begun to work."""
    return worker._new_run().heartbeat.beat


def record_of(worker: Worker) -> WorkerRecord:
    found = worker.queue.ledger.workers.read(worker.id)
    assert found is not None
    return found


@pytest.mark.parametrize("beats_before", [0, 1, 2])
def test_a_heartbeat_that_the_network_held_back_does_not_take_the_place_of_a_newer_one(
    beats_before: int,
) -> None:
    world = World()
    store = HoldingBack(world.store)
    worker = world.worker(world.queue(store))
    beat = beats(worker)
    for _ in range(beats_before):
        beat()
        world.clock.advance(seconds=20)

    store.holds_back = True
    beat()  # of which the first write is on its way for long, and the second gets through
    world.clock.advance(seconds=20)
    beat()
    newest = record_of(worker)
    assert store.held_back is not None
    answer = store.held_back()

    assert isinstance(answer, Conflict)
    assert record_of(worker) == newest


def test_a_heartbeat_that_took_effect_without_an_answer_is_not_made_again() -> None:
    world = World()
    store = FaultyStore(world.store)
    worker = world.worker(world.queue(store))
    beat = beats(worker)
    beat()
    store.fail_after(len(store.calls) + 1, StoreUnclear("no answer"))
    calls = len(store.calls)

    beat()
    beat()

    assert [call.op for call in store.calls[calls:]] == ["put", "get", "put"]


def test_a_heartbeat_goes_on_from_one_that_arrived_late() -> None:
    world = World()
    store = HoldingBack(world.store)
    worker = world.worker(world.queue(store))
    beat = beats(worker)
    beat()
    store.holds_back = True
    store.fail_before(len(store.calls) + 1, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable, match="away"):
        beat()
    assert store.held_back is not None
    store.held_back()
    world.clock.advance(seconds=20)
    begun = world.clock.now()

    beat()

    assert record_of(worker).heartbeat_at >= begun


def test_a_worker_whose_record_was_deleted_writes_it_again() -> None:
    world = World()
    worker = world.worker()
    beat = beats(worker)
    beat()
    world.queue().ledger.workers.forget(worker.id)
    begun = world.clock.now()

    beat()

    assert record_of(worker).heartbeat_at >= begun


def test_a_worker_takes_over_the_record_that_it_could_not_delete_the_last_time() -> None:
    world = World()
    worker = world.worker()
    beats(worker)()
    world.clock.advance(seconds=20)

    begun = world.clock.now()

    beats(worker)()

    assert record_of(worker).heartbeat_at >= begun


def test_a_record_that_changes_each_time_it_is_written_is_an_error_and_not_a_loop() -> None:
    class Restless(MemoryStore):
        def put(self, key: str, body: bytes, **condition: object) -> str | Conflict:
            super().put(key, b"somebody else")
            return Conflict()

    worker = Worker(Queue(Restless()), check=False)

    with pytest.raises(StoreUnavailable, match=rf"changing the record of worker '{worker.id}'"):
        beats(worker)()


def test_a_record_that_the_store_refuses_without_a_change_is_an_error_of_the_store() -> None:
    class Refusing(MemoryStore):
        def put(self, key: str, body: bytes, **condition: object) -> str | Conflict:
            return Conflict()

    worker = Worker(Queue(Refusing()), check=False)

    with pytest.raises(StoreUnavailable, match=rf"refused to write 'workers/{worker.id}.json'"):
        beats(worker)()
