"""A worker that stops leaves nothing behind that is still claimed."""

from __future__ import annotations

import threading

from buquet import Queue, TaskStatus, Worker
from buquet.keys import BATCHES
from buquet.store import Conflict, MemoryStore
from buquet.testing import FaultyStore


class StopsWhileItClaims(FaultyStore):
    """Its worker has been told to stop by the time at which its first claim is written."""

    worker: Worker

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if if_match and key.startswith(BATCHES) and self.worker._shift is not None:
            self.worker.stop()
            agenda = self.worker._shift.agenda
            with agenda._changed:
                assert agenda._changed.wait_for(lambda: agenda._closed, 30)
        return super().put(key, body, if_match=if_match, if_absent=if_absent)


def test_what_was_being_claimed_when_it_was_told_to_stop_is_given_back() -> None:
    store = StopsWhileItClaims(MemoryStore())
    queue = Queue(store)
    task = queue.submit("ok", 1)
    store.worker = worker = Worker(queue, threads=1, check=False)
    worker.task("ok")(lambda input: input)

    worker.run()

    found = queue.get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.PENDING, 0)
    assert [each.event for each in found.history] == ["created", "claimed", "released"]


class HasGoneBeforeItsClaim(FaultyStore):
    """Its worker has been told to stop at once, and has, before its first claim is written."""

    worker: Worker

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.has_gone = threading.Event()
        self.is_given_back = threading.Event()

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        is_claim = if_match and key.startswith(BATCHES) and not self.has_gone.is_set()
        if is_claim:
            self.worker.stop(at_once=True)
            assert self.has_gone.wait(30)
        answer = super().put(key, body, if_match=if_match, if_absent=if_absent)
        if if_match and not is_claim:
            self.is_given_back.set()
        return answer


def test_what_was_being_claimed_when_it_was_told_to_stop_at_once_is_given_back() -> None:
    store = HasGoneBeforeItsClaim()
    queue = Queue(store)
    task = queue.submit("ok", 1)
    store.worker = worker = Worker(queue, threads=1, check=False)
    worker.task("ok")(lambda input: input)

    worker.run()
    store.has_gone.set()

    assert store.is_given_back.wait(30)
    found = queue.get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.PENDING, 0)
    assert [each.event for each in found.history] == ["created", "claimed", "released"]
