"""A thread of the worker that dies ends the run, and its error comes out of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from attrs import evolve

from buquet import Queue, TaskStatus, Worker
from buquet.core.keys import WORKERS
from buquet.store import MemoryStore
from buquet.testing import FaultyStore

T = TypeVar("T")


class Broken(BaseException):
    """What a thread dies of."""


@pytest.fixture
def queue() -> Queue:
    return Queue(MemoryStore())


def worker_on(queue: Queue, **settings: Any) -> Worker:
    worker = Worker(queue, check=False, threads=2, poll_max=timedelta(seconds=60), **settings)
    worker.task("job")(lambda input: input)
    return worker


class BreakingStore(FaultyStore):
    """Raises in the threads of one name what nothing expects."""

    def __init__(self, thread: str) -> None:
        super().__init__(MemoryStore())
        self._thread = thread

    def _call(self, op: str, key: str, act: Callable[[], T]) -> T:
        if threading.current_thread().name.startswith(self._thread):
            raise Broken
        return super()._call(op, key, act)


def what_a_run_raises(worker: Worker) -> BaseException | None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 -- it is what the test is about
            raised.append(error)

    thread = threading.Thread(target=run, name="caller")
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return raised[0] if raised else None


def submit_late(queue: Queue) -> None:
    """Submit a task whose deadline passes before anybody starts it."""
    task = queue.submit("job", ttl_seconds=0.001)
    assert task.expires_at is not None
    while queue.now() <= task.expires_at:
        pass


def is_at_work() -> bool:
    return any(each.name.startswith("buquet-") for each in threading.enumerate())


@pytest.mark.parametrize("thread", ["buquet-heartbeat", "buquet-sweeper", "buquet-pool", "caller"])
def test_a_thread_that_dies_ends_the_run_with_its_error(thread: str) -> None:
    queue = Queue(BreakingStore(thread))
    queue.submit("job")
    worker = worker_on(queue, lease=timedelta(seconds=1), sweep_interval=timedelta(seconds=1))

    assert isinstance(what_a_run_raises(worker), Broken)
    assert not is_at_work()


def test_a_watchdog_that_dies_ends_the_run_with_its_error(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise Broken

    monkeypatch.setattr("buquet.shield.Shield.interrupt", break_down)
    over = threading.Event()
    worker = worker_on(queue)
    worker.task("slow", timeout_seconds=0.01)(lambda input: over.wait(20))
    worker.on_shutdown(over.set)
    queue.submit("slow")
    worker.settings = evolve(worker.settings, on_ending=over.set)

    assert isinstance(what_a_run_raises(worker), Broken)
    assert not is_at_work()


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, ValueError])
@pytest.mark.parametrize("hook", ["on_success", "on_error", "on_expired"])
def test_a_hook_that_raises_costs_the_worker_no_thread(
    queue: Queue, raised: type[BaseException], hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = threading.Semaphore(0)
    worker = worker_on(queue)

    @worker.task("fails")
    def fail(input: object) -> None:
        raise ValueError

    def break_hook(*_: object) -> None:
        calls.release()
        raise raised

    getattr(worker, hook)(break_hook)
    for _ in range(4):  # more than it has threads
        queue.submit("job")
        queue.submit("fails", max_retries=0)
        submit_late(queue)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert all(calls.acquire(timeout=20) for _ in range(4))

    last = queue.submit("job")

    assert queue.wait(last.id, timeout=20).status is TaskStatus.COMPLETED
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert "will run again" not in caplog.text


class TellsOfHeartbeats(FaultyStore):
    """Says when a worker has written its record."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.beaten = threading.Condition()

    def _call(self, op: str, key: str, act: Callable[[], T]) -> T:
        result = super()._call(op, key, act)
        if (op, key.startswith(WORKERS)) == ("put", True):
            with self.beaten:
                self.beaten.notify_all()
        return result


def test_a_hook_that_hangs_costs_no_lease() -> None:
    store = TellsOfHeartbeats()
    queue = Queue(store)
    hangs, over = threading.Event(), threading.Event()
    worker = worker_on(queue, lease=timedelta(seconds=1))

    @worker.on_expired
    def hang(task: object) -> None:
        hangs.set()
        over.wait(30)

    lost: list[bool] = []

    @worker.task("long")
    def long(input: object, context: Any) -> None:
        assert hangs.wait(20)
        for _ in range(4):
            with store.beaten:
                assert store.beaten.wait(20)
        lost.append(context.lease_lost)

    submit_late(queue)
    task = queue.submit("long")
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert queue.wait(task.id, timeout=30).status is TaskStatus.COMPLETED
    over.set()
    worker.stop()
    thread.join(20)

    assert lost == [False]


def test_a_startup_hook_that_exits_has_the_shutdown_hooks_called(queue: Queue) -> None:
    worker = worker_on(queue)
    called: list[str] = []

    @worker.on_startup
    def leave() -> None:
        raise SystemExit(4)

    worker.on_shutdown(lambda: called.append("shutdown"))

    with pytest.raises(SystemExit):
        worker.run()

    assert called == ["shutdown"]
