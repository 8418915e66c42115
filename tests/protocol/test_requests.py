"""What each act costs on S3, in requests: DESIGN's table, counted on a real client."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from buquet import Queue, RetryPolicy, Sweeper, Worker, connect
from buquet.testing import FaultyStore
from tests.helpers import World
from tests.s3_servers import S3Server


class Meter:
    """Counts the requests of a queue on S3."""

    def __init__(self, server: S3Server) -> None:
        self.counted: Counter[str] = Counter()
        self.queue = Queue(server.store(on_request=self._count))
        self.queue.now()  # a process asks for the time once, before its first write

    def _count(self, operation: str) -> None:
        self.counted[operation] += 1

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count from here on; what is to be deleted is deleted before and after."""
        self.queue.store.flush()
        self.counted.clear()
        yield self.counted
        self.queue.store.flush()

    def worker(self, handler: Callable[..., Any] = lambda input: input, **settings: Any) -> Worker:
        worker = Worker(self.queue, check=False, **settings)
        worker.task("job")(handler)
        return worker


@pytest.fixture
def meter(moto: S3Server) -> Iterator[Meter]:
    meter = Meter(moto)
    yield meter
    meter.queue.close()


def test_submitting_one_task_takes_two_puts(meter: Meter) -> None:
    with meter.counting() as counted:
        meter.queue.submit("job", 1)

    assert counted == {"put": 2}


@pytest.mark.parametrize(("size", "puts"), [(1, 20), (10, 2)], ids=["single", "batched"])
def test_submitting_many_takes_two_puts_a_batch(meter: Meter, size: int, puts: int) -> None:
    with meter.counting() as counted:
        meter.queue.submit_many([("job", number) for number in range(10)], batch_size=size)

    assert counted == {"put": puts}


def test_a_process_asks_for_the_time_once_before_its_first_write(moto: S3Server) -> None:
    counted: Counter[str] = Counter()
    queue = Queue(moto.store(on_request=lambda operation: counted.update([operation])))

    queue.submit("job", 1)
    queue.submit("job", 2)

    assert counted.total() - counted["put"] == 1
    queue.close()


WORKER_LIFE = {"put": 1, "list": 2, "delete": 1}
"""A heartbeat, the polls that find all and nothing, and the record's end."""


def test_claiming_and_finishing_a_batch_of_one_takes_two_puts_and_a_get(meter: Meter) -> None:
    for number in range(40):
        meter.queue.submit("job", number)

    with meter.counting() as counted:
        meter.worker().drain()

    assert counted["put"] - WORKER_LIFE["put"] == 2 * 40
    assert counted["get"] == 40
    assert counted["list"] <= 2
    assert counted["delete"] <= 1 + 40 / 10


def test_claiming_and_finishing_short_tasks_in_batches_takes_a_tenth_of_a_put(
    meter: Meter,
) -> None:
    total = 1000
    meter.queue.submit_many([("job", number) for number in range(total)])

    with meter.counting() as counted:
        meter.worker(threads=8).run(burst=True)

    assert not list(meter.queue.list("pending"))
    assert counted["put"] <= 0.1 * total
    assert counted["get"] <= 0.01 * total
    assert counted["list"] < 0.01 * total


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("by", ["worker", "sweeper"])
def test_expiring_on_the_way_takes_two_puts_and_a_get_a_batch(
    meter: Meter, size: int, by: str
) -> None:
    batches = 3
    meter.queue.submit_many(
        [("job", number) for number in range(size * batches)], batch_size=size, ttl_seconds=0
    )

    with meter.counting() as counted:
        if by == "worker":
            meter.worker().drain()
        else:
            Sweeper(meter.queue).sweep_once()

    heartbeat = 1 if by == "worker" else 0
    assert counted["put"] == 2 * batches + heartbeat
    assert counted["get"] == batches
    assert counted["list"] <= 2
    assert len(list(meter.queue.list("expired"))) == size * batches


def test_a_retry_takes_two_puts_and_a_claim_more(meter: Meter) -> None:
    attempts: list[int] = []

    def fail_once(input: Any) -> None:
        attempts.append(input)
        if len(attempts) == 1:
            raise ValueError("again")

    soon = RetryPolicy(initial_seconds=0.01)
    task = meter.queue.submit("job", 1, retry_policy=soon)
    worker = meter.worker(fail_once, poll_min=timedelta(milliseconds=1))

    with meter.counting() as counted:
        thread = threading.Thread(target=worker.run)
        thread.start()
        meter.queue.wait(task.id, timeout=30)
        worker.stop()
        thread.join(30)

    assert len(attempts) == 2
    plain = 2
    assert counted["put"] - WORKER_LIFE["put"] == plain + 2 + 1


def test_looking_at_a_task_takes_one_get(meter: Meter) -> None:
    task = meter.queue.submit("job", 1)
    meter.worker().drain()

    for look in (
        lambda: meter.queue.get(task.id).status,
        lambda: meter.queue.history(task.id),
        lambda: meter.queue.wait(task.id).result(),
    ):
        with meter.counting() as counted:
            look()
        assert counted == {"get": 1}


def test_many_threads_throw_no_connection_away(
    moto: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(moto.url(), endpoint_url=moto.endpoint) as queue:
        worker = Worker(queue, threads=32, check=False)
        together = threading.Barrier(32)

        @worker.task("job")
        def job(input: int) -> int:
            together.wait(30)
            return input

        tasks = queue.submit_many([("job", number) for number in range(32)], batch_size=1)
        worker.run(burst=True)
        found = queue.wait([task.id for task in tasks], timeout=10)

    assert [task.output for task in found] == list(range(32))
    assert "pool is full" not in caplog.text


def test_an_idle_worker_takes_three_puts_and_twelve_lists_a_minute() -> None:
    assert idle(minutes=10, sweep_interval=None) == {"put": 3 * 10, "list": 12 * 10}


def test_ten_idle_minutes_of_a_worker_that_sweeps_take_at_most_180_requests() -> None:
    assert idle(minutes=10, sweep_interval=timedelta(minutes=1)).total() <= 180


def test_what_waits_for_a_busy_thread_is_not_polled_for_again_and_again() -> None:
    world = World()
    store = FaultyStore(world.store)
    queue = world.queue(store)
    queue.submit_many([("job", number) for number in range(6)], batch_size=1)
    worker = Worker(queue, check=False, threads=4, sweep_interval=None)
    end = threading.Event()

    @worker.task("job", timeout_seconds=3600)
    def job(input: int) -> None:
        end.wait(60)

    minutes, loops = 4, 3  # poller, heartbeat, watchdog
    thread = threading.Thread(target=worker.run)
    thread.start()
    pass_time(world, 60, loops)
    before = len(store.calls)
    pass_time(world, 60 * minutes, loops)
    calls = Counter(call.op for call in store.calls[before:])
    end.set()
    worker.stop()
    thread.join(30)

    assert calls["list"] <= 12 * minutes


def idle(minutes: int, *, sweep_interval: timedelta | None) -> Counter[str]:
    """Let a worker be idle for minutes of a fake clock, and count its calls."""
    world = World()
    world.queue().submit("job", 1, delay=timedelta(days=1))
    store = FaultyStore(world.store)
    worker = Worker(world.queue(store), check=False, sweep_interval=sweep_interval)
    worker.task("job")(lambda input: None)
    thread = threading.Thread(target=worker.run)
    thread.start()
    loops = 3 if sweep_interval is None else 4  # poller, heartbeat, watchdog, sweeper
    pass_time(world, 60, loops)  # until the pauses between polls have grown to the ceiling
    before = len(store.calls)
    pass_time(world, 60 * minutes, loops)
    calls = [call.op for call in store.calls[before:]]
    worker.stop()
    thread.join(30)
    return Counter(calls)


def pass_time(world: World, seconds: int, loops: int) -> None:
    """Let so many seconds pass, one after another, and let all loops come to rest after each."""
    for _ in range(seconds):
        world.clock.await_waiters(loops)
        world.clock.advance(seconds=1)
    world.clock.await_waiters(loops)
