"""For tests: a fake clock, and a store that fails where a test wants it to.

`MemoryStore` behaves like the real stores. With a `FakeClock`, a test controls the time of its
queue, and `worker.drain()` runs what is due in the calling thread:

    >>> from buquet import Queue, Worker
    >>> from buquet.store import MemoryStore
    >>> clock = FakeClock()
    >>> queue = Queue(MemoryStore(clock))
    >>> task = queue.submit("greet", "Ada", ttl_seconds=60)
    >>> clock.advance(seconds=60)
    >>> worker = Worker(queue)
    >>> _ = worker.task("greet")(print)
    >>> worker.drain()
    RunReport(left=0)
    >>> queue.get(task.id).status
    <TaskStatus.EXPIRED: 'expired'>
"""

from buquet.testing.clock import FakeClock
from buquet.testing.faults import Crash, FaultyStore

__all__ = ["Crash", "FakeClock", "FaultyStore"]
