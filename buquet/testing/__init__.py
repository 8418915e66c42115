"""What tests need: a clock that a test moves, and stores that die or fail where a test wants it.

`MemoryStore` is the twin of the real stores; with a `FakeClock` it makes a queue whose time a test
decides, and `worker.drain()` runs what is due in the calling thread:

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
