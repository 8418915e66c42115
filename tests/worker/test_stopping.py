"""A worker that stops leaves nothing behind that is still claimed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from buquet import Queue, TaskStatus, Worker
from buquet.clock import SystemClock
from buquet.core.keys import BATCHES
from buquet.store import Conflict, MemoryStore, Stored
from buquet.testing import FakeClock, FaultyStore
from tests.helpers import World


class StopsWhileItClaims(FaultyStore):
    """Its worker has been told to stop by the time at which its first claim is written."""

    worker: Worker

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if if_match and key.startswith(BATCHES) and self.worker._run is not None:
            self.worker.stop()
            dispatcher = self.worker._run.dispatcher
            with dispatcher._changed:
                assert dispatcher._changed.wait_for(lambda: dispatcher._closed, 30)
        return super().put(key, body, if_match=if_match, if_absent=if_absent)


def check_that_its_task_is_given_back(store: StopsWhileItClaims | StopsDuringAWrite) -> None:
    queue = Queue(store)
    task = queue.submit("ok", 1)
    store.worker = worker = Worker(queue, threads=1, check=False)
    worker.task("ok")(lambda input: input)

    worker.run()

    found = queue.get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.PENDING, 0)
    assert [each.event for each in found.history] == ["created", "claimed", "released"]


def test_what_was_being_claimed_when_it_was_told_to_stop_is_given_back() -> None:
    check_that_its_task_is_given_back(StopsWhileItClaims(MemoryStore()))


class TellingClock(SystemClock):
    """A clock that tells when somebody sleeps: a worker that stops does, while a write is on."""

    def __init__(self) -> None:
        self.slept = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.slept.set()
        super().sleep(seconds)


class StopsDuringAWrite(FaultyStore):
    """Its worker has been told to stop at once, and waits, before a write of a batch arrives."""

    worker: Worker

    def __init__(self, which: str) -> None:
        self.waiting = TellingClock()
        super().__init__(MemoryStore(self.waiting))
        self._which = f'"{which}"'.encode()

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if if_match and key.startswith(BATCHES) and self._which in body:
            self._which = b"none other"
            self.worker.stop(at_once=True)
            assert self.waiting.slept.wait(30)
        return super().put(key, body, if_match=if_match, if_absent=if_absent)


def test_what_was_being_claimed_when_it_was_told_to_stop_at_once_is_given_back() -> None:
    check_that_its_task_is_given_back(StopsDuringAWrite("claimed"))


def test_what_runs_while_a_result_of_its_batch_is_written_is_given_back_by_a_stop_at_once() -> None:
    store = StopsDuringAWrite("completed")
    queue = Queue(store)
    store.worker = worker = Worker(queue, threads=2, check=False)
    both, over = threading.Barrier(2), threading.Event()

    @worker.task("ok")
    def work(input: str) -> None:
        both.wait(30)
        if input == "long":
            over.wait(30)

    short, long = queue.submit_many([("ok", "short"), ("ok", "long")])
    worker.run()
    statuses = [queue.get(task.id).status for task in (short, long)]
    over.set()

    assert statuses == [TaskStatus.COMPLETED, TaskStatus.PENDING]


def started(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def ends_soon(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def test_a_stop_in_the_midst_of_what_a_poll_does_first_is_not_lost_until_the_next() -> None:
    world = World(FakeClock(sleeping_advances=False))
    worker = world.worker(threads=1, sweep_interval=None, poll_max=timedelta(hours=1))
    run = worker._new_run()
    run.claims.write_what_waits = worker.stop  # type: ignore[method-assign]

    assert ends_soon(started(lambda: run.work(worker._stop)))


class HoldsSweepsUp(FaultyStore):
    """Its answers to whoever reads a batch do not come."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        if key.startswith(BATCHES):
            self.is_asked.set()
            assert self.may_answer.wait(30)
        return super().get(key, unless=unless)


def test_a_stop_does_not_wait_for_a_sweep_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buquet.worker.run.SERVICES_END_WITHIN", 0.1)
    world = World(FakeClock(sleeping_advances=False))
    world.queue().submit("unknown", 1)
    store = HoldsSweepsUp(world)
    worker = world.worker(world.queue(store, seed=2), threads=1)
    thread = started(worker.run)
    world.clock.await_waiters(4)  # poller, heartbeat, watchdog and sweeper
    world.clock.advance(minutes=1)
    assert store.is_asked.wait(30)

    worker.stop()

    has_ended = ends_soon(thread)
    store.may_answer.set()
    assert has_ended


HANGING_HOOK = """
import sys, threading
from buquet import Worker, connect
queue = connect("memory:")
worker = Worker(queue, check=False)
worker.task("job")(print)

@worker.on_{occasion}
def hang():
    print("hangs", flush=True)
    threading.Event().wait()

if "{occasion}" == "shutdown":
    worker.on_startup(worker.stop)
worker.run()
"""


@pytest.mark.parametrize("occasion", ["startup", "shutdown"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_worker_whose_hook_hangs(
    occasion: str, number: signal.Signals
) -> None:
    code = HANGING_HOOK.format(occasion=occasion)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        for _ in range(100):  # the system may make one signal of two that come together
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
                break

        _, errors = process.communicate(timeout=20)

    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
