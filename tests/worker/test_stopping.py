"""A worker that stops leaves nothing behind that is still claimed."""

from __future__ import annotations

from buquet import Queue, TaskStatus, Worker
from buquet.store import Conflict, MemoryStore
from buquet.testing import FaultyStore


class StopsWhileItClaims(FaultyStore):
    """Its worker has been told to stop by the time at which its first claim is written."""

    worker: Worker

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if if_match and self.worker._shift is not None:
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
