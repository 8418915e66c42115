"""Attempts that run for too long, threads that do not react, and a worker that is told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from buquet import (
    Queue,
    RetryPolicy,
    StoreNotFound,
    TaskStatus,
    TaskTimeout,
    TooManyLostThreads,
    Worker,
)
from buquet.store import MemoryStore
from buquet.testing import FaultyStore
from tests.integration.processes import await_true

SOON = RetryPolicy(initial_seconds=0.01, jitter=0)


@pytest.fixture
def queue() -> Queue:
    return Queue(MemoryStore())


@pytest.fixture(autouse=True)
def quick_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buquet.worker.watchdog.REACTION_SECONDS", 0.2)


@contextmanager
def at_work(worker: Worker) -> Iterator[threading.Thread]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 -- raised again in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop(at_once=True)
        thread.join(20)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def spin_until(gate: threading.Event) -> None:
    """Wait in Python code, where a thread can be told of its timeout at any step."""
    while not gate.is_set():
        pass


def test_a_handler_that_runs_for_too_long_is_told_and_its_attempt_made_again(
    queue: Queue,
) -> None:
    seen: list[str] = []
    worker = Worker(queue, threads=1, check=False)

    @worker.task("job", timeout_seconds=0.1)
    def handler(input: Any, context: Any) -> str:
        if context.attempt == 1:
            try:
                spin_until(threading.Event())
            except TaskTimeout:
                seen.append("told")
                raise
        return "second try"

    task = queue.submit("job", 1, retry_policy=SOON)
    with at_work(worker):
        found = queue.wait(task.id, timeout=20)

    assert seen == ["told"]
    assert (found.output, found.attempt) == ("second try", 2)
    assert "timeout" in found.history[2].details["error"]


def test_except_exception_in_a_handler_does_not_swallow_its_timeout(queue: Queue) -> None:
    worker = Worker(queue, threads=1, check=False)

    @worker.task("job", timeout_seconds=0.1)
    def handler(input: Any) -> None:
        with suppress(Exception):
            spin_until(threading.Event())

    task = queue.submit("job", 1, max_retries=0)
    with at_work(worker):
        found = queue.wait(task.id, timeout=20)

    assert found.status is TaskStatus.FAILED
    assert "longer than 0.1 seconds" in (found.last_error or "")


def test_an_attempt_that_was_told_is_over_though_its_handler_returns(queue: Queue) -> None:
    worker = Worker(queue, threads=1, check=False)

    @worker.task("job", timeout_seconds=0.1)
    def handler(input: Any) -> str:
        with suppress(TaskTimeout):
            spin_until(threading.Event())
        return "in spite of it"

    task = queue.submit("job", 1, max_retries=0)
    with at_work(worker):
        found = queue.wait(task.id, timeout=20)

    assert (found.status, found.output) == (TaskStatus.FAILED, None)


def test_what_a_task_was_submitted_with_wins_over_its_handlers_timeout(queue: Queue) -> None:
    worker = Worker(queue, threads=1, check=False)

    @worker.task("job", timeout_seconds=60)
    def handler(input: Any) -> None:
        spin_until(threading.Event())

    task = queue.submit("job", 1, max_retries=0, timeout_seconds=0.1)
    with at_work(worker):
        assert queue.wait(task.id, timeout=20).status is TaskStatus.FAILED


def test_a_thread_that_does_not_react_is_replaced_and_its_late_result_dropped(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    gate, left = threading.Event(), threading.Event()
    worker = Worker(queue, threads=1, check=False)

    @worker.task("stuck", timeout_seconds=0.1)
    def stuck(input: Any) -> str:
        try:
            gate.wait(20)  # in a system call, as it were
        except TaskTimeout:
            left.set()
        return "too late"

    worker.task("job")(lambda input: input)
    first = queue.submit("stuck", 1, max_retries=0, priority=1)
    second = queue.submit("job", 2)
    with caplog.at_level(logging.WARNING), at_work(worker):
        found = queue.wait([first.id, second.id], timeout=20)
        assert worker._run is not None
        lost = worker._run.heartbeat.counters["lost_threads"]
        gate.set()
        assert left.wait(20)
        for _ in range(500):
            if "after it had been given up" in caplog.text:
                break
            threading.Event().wait(0.01)

    assert [task.status for task in found] == [TaskStatus.FAILED, TaskStatus.COMPLETED]
    assert "timeout" in (found[0].last_error or "")
    assert lost == 1
    assert caplog.text.count("after it had been given up") == 1
    assert queue.get(first.id).output is None


def test_stuck_threads_are_replaced_once_the_system_has_threads_again(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buquet.worker.watchdog.AGAIN_SECONDS", 0.05)
    has_threads, over = threading.Event(), threading.Event()
    has_threads.set()
    start = threading.Thread.start

    def start_if_there_are_any(thread: threading.Thread) -> None:
        if thread.name.startswith("buquet-pool") and not has_threads.is_set():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_are_any)
    both = threading.Barrier(3)
    worker = Worker(queue, threads=2, check=False)

    @worker.task("stuck", timeout_seconds=0.1)
    def stuck(input: Any) -> None:
        both.wait(20)
        over.wait(20)

    tasks = [queue.submit("stuck", number, max_retries=0) for number in range(2)]
    with caplog.at_level(logging.WARNING), at_work(worker) as thread:
        both.wait(20)
        has_threads.clear()
        refused = [f"is stuck with task {task.id} yet" for task in tasks]
        await_true(lambda: all(each in caplog.text for each in refused))
        has_threads.set()
        found = queue.wait([task.id for task in tasks], timeout=20)
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()  # it does not wait for threads that never came to be
        over.set()

    assert {task.status for task in found} == {TaskStatus.FAILED}
    assert worker._run is not None
    assert worker._run.pool.lost_threads == worker._run.heartbeat.counters["lost_threads"] == 2


def test_handlers_that_never_return_do_not_hold_the_others_up(queue: Queue) -> None:
    gate = threading.Event()
    worker = Worker(queue, threads=2, check=False)

    @worker.task("stuck", timeout_seconds=0.05)
    def stuck(input: Any) -> None:
        try:
            gate.wait(20)
        except TaskTimeout:
            gate.wait(20)

    worker.task("job")(lambda input: input)
    for number in range(2):
        queue.submit("stuck", number, max_retries=0, priority=1)
    tasks = queue.submit_many([("job", number) for number in range(50)])
    with at_work(worker):
        found = queue.wait([task.id for task in tasks], timeout=20)
        gate.set()

    assert {task.status for task in found} == {TaskStatus.COMPLETED}


def test_a_worker_with_too_many_stuck_threads_gives_up(queue: Queue) -> None:
    gate = threading.Event()
    worker = Worker(queue, threads=1, check=False, grace=timedelta(seconds=0.1))

    @worker.task("stuck", timeout_seconds=0.05)
    def stuck(input: Any) -> None:
        gate.wait(20)

    for number in range(3):
        queue.submit("stuck", number, max_retries=0)

    with pytest.raises(TooManyLostThreads, match="2 threads"):
        worker.run()
    gate.set()


def test_short_tasks_never_meet_the_timeout_of_another(queue: Queue) -> None:
    worker = Worker(queue, threads=4, check=False)
    worker.task("job", timeout_seconds=0.5)(lambda input: input)
    tasks = queue.submit_many([("job", number) for number in range(2000)], max_retries=0)

    with at_work(worker):
        found = queue.wait([task.id for task in tasks], timeout=60)

    assert [task.output for task in found] == list(range(2000))


def waiting_worker(queue: Queue, gate: threading.Event, **settings: Any) -> Worker:
    worker = Worker(queue, threads=2, check=False, **settings)

    @worker.task("job")
    def handler(input: Any, context: Any) -> Any:
        begun.set()
        gate.wait(20)
        told.append(context.lease_lost)
        return input

    told: list[bool] = []
    worker.told = told  # type: ignore[attr-defined]

    begun = threading.Event()
    worker.begun = begun  # type: ignore[attr-defined]
    return worker


def test_what_still_runs_when_the_grace_period_ends_is_given_back_at_once(queue: Queue) -> None:
    gate = threading.Event()
    worker = waiting_worker(queue, gate, grace=timedelta(seconds=0.1))
    task = queue.submit("job", "mine")
    with at_work(worker) as thread:
        assert worker.begun.wait(20)  # type: ignore[attr-defined]
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()
        released = queue.get(task.id)
        other = Worker(queue, check=False)
        other.task("job")(lambda input: "the other's")
        other.drain()
        gate.set()

    assert (released.status, released.attempt) == (TaskStatus.PENDING, 0)
    found = queue.get(task.id)
    assert (found.output, found.attempt) == ("the other's", 1)
    for _ in range(500):
        if worker.told:  # type: ignore[attr-defined]
            break
        threading.Event().wait(0.01)
    assert worker.told == [True]  # type: ignore[attr-defined]


def test_a_second_stop_does_not_wait_for_the_grace_period(queue: Queue) -> None:
    gate = threading.Event()
    worker = waiting_worker(queue, gate, grace=timedelta(hours=1))
    task = queue.submit("job", 1)
    with at_work(worker) as thread:
        assert worker.begun.wait(20)  # type: ignore[attr-defined]
        worker.stop()
        worker.stop(at_once=True)
        thread.join(20)
        assert not thread.is_alive()
        gate.set()

    assert queue.get(task.id).status is TaskStatus.PENDING


def test_a_stop_before_the_start_is_kept(queue: Queue) -> None:
    worker = Worker(queue, check=False)
    worker.task("job")(lambda input: input)
    task = queue.submit("job", 1)

    worker.stop()
    worker.run()
    assert queue.get(task.id).status is TaskStatus.PENDING

    worker.run(burst=True)
    assert queue.get(task.id).status is TaskStatus.COMPLETED


def test_hooks_are_called_at_the_turning_points(queue: Queue) -> None:
    told: list[str] = []
    worker = Worker(queue, check=False)
    worker.on_startup(lambda: told.append("startup"))
    worker.on_shutdown(lambda: told.append("shutdown"))
    worker.on_success(lambda task: told.append(f"success {task.output}"))
    worker.on_error(lambda task, error: told.append(f"error {error}"))
    worker.on_expired(lambda task: told.append(f"expired {task.input}"))

    @worker.task("job")
    def handler(input: str) -> str:
        if input == "bad":
            raise ValueError("no")
        return input

    queue.submit("job", "good", priority=2)
    queue.submit("job", "bad", priority=1)
    queue.submit("job", "late", ttl_seconds=0)
    worker.drain()

    assert told == ["startup", "success good", "error no", "expired late", "shutdown"]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize("occasion", ["success", "error", "expired", "shutdown"])
def test_a_hook_that_fails_is_logged_and_harms_nothing(
    queue: Queue, occasion: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise error("the hook is broken")

    worker = Worker(queue, check=False)
    register: Callable[[Any], Any] = getattr(worker, f"on_{occasion}")
    register(broken)
    worker.task("job")(lambda input: 1 / input)
    tasks = [
        queue.submit("job", 1),
        queue.submit("job", 0, max_retries=0),
        queue.submit("job", 1, ttl_seconds=0),
    ]

    worker.drain()

    assert [queue.get(task.id).status for task in tasks] == ["completed", "failed", "expired"]
    assert "the hook is broken" in caplog.text


@pytest.mark.parametrize("output", [{1, 2}, float("nan")], ids=["set", "nan"])
def test_an_output_that_is_not_json_is_told_to_the_error_hook(queue: Queue, output: Any) -> None:
    told: list[str] = []
    worker = Worker(queue, check=False)
    worker.on_error(lambda task, error: told.append(str(error)))
    worker.task("job")(lambda input: output)
    queue.submit("job", 1)

    worker.drain()

    assert len(told) == 1
    assert told[0].startswith("output is ")


def test_what_was_opened_at_the_start_is_closed_though_the_start_fails() -> None:
    store = FaultyStore(MemoryStore())
    worker = Worker(Queue(store), check=False)
    worker.task("job")(lambda input: input)
    told: list[str] = []
    worker.on_startup(lambda: told.append("opened"))
    worker.on_shutdown(lambda: told.append("closed"))
    store.fail_before(1, StoreNotFound("There is no such bucket."))

    with pytest.raises(StoreNotFound):
        worker.run()

    assert told == ["opened", "closed"]


def test_a_startup_hook_that_fails_keeps_the_worker_from_beginning(queue: Queue) -> None:
    worker = Worker(queue, check=False)
    worker.task("job")(lambda input: input)
    task = queue.submit("job", 1)

    @worker.on_startup
    def connect() -> None:
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        worker.run(burst=True)

    assert queue.get(task.id).status is TaskStatus.PENDING


def test_a_timeout_of_many_thousand_years_keeps_no_other_from_being_watched(queue: Queue) -> None:
    worker = Worker(queue, threads=2)
    begun, may_end = threading.Event(), threading.Event()

    @worker.task("patient")
    def be_patient(input: Any) -> None:
        begun.set()
        may_end.wait(20)

    @worker.task("job", timeout_seconds=0.1)
    def never_end(input: Any) -> None:
        while True:
            pass

    patient = queue.submit("patient", timeout_seconds=1e13)
    with at_work(worker):
        assert begun.wait(20)
        task = queue.submit("job", max_retries=0)
        assert queue.wait(task.id, timeout=20).status is TaskStatus.FAILED
        may_end.set()
        assert queue.wait(patient.id, timeout=20).status is TaskStatus.COMPLETED
