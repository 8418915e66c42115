"""How attempts end, and that nothing a handler does harms its worker."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from buquet import (
    CancelledError,
    ConfigurationError,
    PermanentError,
    Queue,
    RescheduleError,
    RetryableError,
    RetryPolicy,
    StoreUnavailable,
    TaskFailed,
    TaskStatus,
    Worker,
)
from buquet.core.codec import encode_batch
from buquet.core.index import entry_of
from buquet.core.keys import batch_key
from buquet.store import MemoryStore
from buquet.testing import FaultyStore
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def worker_with(world: World, handler: Any, **settings: Any) -> Worker:
    worker = Worker(world.queue(seed=2), check=False, **settings)
    worker.task("job")(handler)
    return worker


def raising(error: BaseException) -> Callable[[Any], None]:
    def handler(input: Any) -> None:
        raise error

    return handler


def test_what_a_handler_returns_is_the_output(world: World) -> None:
    task = world.queue().submit("job", {"n": 20})

    worker_with(world, lambda input: {"twice": 2 * input["n"]}).drain()

    found = world.queue().get(task.id)
    assert found.result() == {"twice": 40}
    assert (found.attempt, found.last_error) == (1, None)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RetryableError("busy"),
        TimeoutError("mine"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException("odd"),
    ],
    ids=repr,
)
def test_whatever_a_handler_raises_is_a_failed_attempt_and_the_worker_goes_on(
    world: World, error: BaseException
) -> None:
    queue = world.queue()
    bad = queue.submit("job", 1, priority=1)
    good = queue.submit("ok", 2)
    worker = worker_with(world, raising(error))
    worker.task("ok")(world.run)

    worker.drain()

    found = queue.get(bad.id)
    assert (found.status, found.attempt, found.retry_count) == (TaskStatus.PENDING, 1, 1)
    assert found.last_error is not None
    assert found.last_error.startswith(type(error).__name__)
    assert world.runs == [good.id]


def test_max_retries_of_three_means_four_attempts(world: World) -> None:
    calls: list[int] = []

    def handler(input: int, context: Any) -> None:
        calls.append(context.attempt)
        raise ValueError("never works")

    task = world.queue().submit("job", 1)
    worker = worker_with(world, handler)
    for _ in range(6):
        worker.drain()
        world.clock.advance(hours=2)

    found = world.queue().get(task.id)
    assert calls == [1, 2, 3, 4]
    assert found.status is TaskStatus.FAILED
    with pytest.raises(TaskFailed, match="never works"):
        found.result()


def test_a_permanent_error_fails_the_task_whatever_retries_are_left(world: World) -> None:
    task = world.queue().submit("job", 1)

    worker_with(world, raising(PermanentError("no such user"))).drain()

    found = world.queue().get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.FAILED, 1)
    assert "no such user" in (found.last_error or "")


@pytest.mark.parametrize(
    "signal_",
    [
        RescheduleError(-1),
        RescheduleError(float("nan")),
        RescheduleError(1e300),
        RescheduleError(5, -5),
        RescheduleError("soon"),  # type: ignore[arg-type]
        RescheduleError(10**11),
    ],
    ids=repr,
)
def test_a_reschedule_that_makes_no_sense_fails_the_task_and_says_why(
    world: World, signal_: RescheduleError
) -> None:
    task = world.queue().submit("job", 1, ttl_seconds=60)

    worker_with(world, raising(signal_)).drain()

    found = world.queue().get(task.id)
    assert found.status in (TaskStatus.FAILED, TaskStatus.EXPIRED)
    assert found.last_error or found.history[-1].details["reason"]


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ({"when": timedelta(1)}, "output.when"),
        ([1, {"a": {2, 3}}], r"output\[1\].a"),
        (float("nan"), "output"),
        ({1: 2}, "output"),
        (object(), "output"),
        ("x" * 300_000, "output"),
    ],
    ids=["timedelta", "set", "nan", "key", "object", "too large"],
)
def test_an_output_that_is_not_json_fails_the_task_and_names_the_path(
    world: World, output: Any, path: str
) -> None:
    task = world.queue().submit("job", 1)

    worker_with(world, lambda input: output).drain()

    with pytest.raises(TaskFailed, match=path):
        world.queue().get(task.id).result()


def test_a_handler_gets_a_copy_of_the_input(world: World) -> None:
    given = {"list": [1, 2]}
    task = world.queue().submit("job", given)

    def handler(input: dict[str, list[int]]) -> None:
        input["list"].append(3)
        given["list"].append(4)
        raise ValueError("after having changed it")

    worker_with(world, handler).drain()

    assert world.queue().get(task.id).input == {"list": [1, 2]}


def test_an_error_with_text_that_cannot_be_written_down_is_written_down_all_the_same(
    world: World,
) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    queue = world.queue()
    surrogate = queue.submit("job", "a \ud800 b".encode("utf-8", "replace").decode())
    worker_with(world, raising(ValueError("a \ud800 b"))).drain()
    broken = queue.submit("job", 2)
    worker_with(world, raising(Broken())).drain()

    assert "a ? b" in (queue.get(surrogate.id).last_error or "")
    assert (queue.get(broken.id).last_error or "").startswith("Broken")


def test_a_type_without_a_handler_is_left_to_others_and_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    queue = world.queue()
    tasks = [queue.submit("other", number) for number in range(3)]
    worker = world.worker()
    store = FaultyStore(world.store)
    worker.queue = world.queue(store)

    with caplog.at_level(logging.WARNING):
        worker.drain()

    assert {(queue.get(task.id).status, queue.get(task.id).attempt) for task in tasks} == {
        (TaskStatus.PENDING, 0)
    }
    assert [call.op for call in store.calls] == ["put", "list", "delete"]
    assert sum("'other'" in each.getMessage() for each in caplog.records) == 1


def test_secrets_in_inputs_and_outputs_are_in_no_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    queue = world.queue()
    queue.submit("job", {"password": "s3cr3t"})
    queue.submit("job", {"password": "s3cr3t", "fail": True})
    queue.submit("job", {"password": "s3cr3t"}, ttl_seconds=0)

    def handler(input: dict[str, Any]) -> dict[str, Any]:
        if "fail" in input:
            raise ValueError("no")
        return input

    with caplog.at_level(logging.DEBUG):
        worker_with(world, handler).drain()
        world.sweeper().sweep_once(full=True)

    assert caplog.records
    assert "s3cr3t" not in caplog.text
    assert "s3cr3t" not in repr(list(queue.list()))


def test_a_running_task_that_takes_no_notice_of_a_cancel_request_ends_as_it_ends(
    world: World,
) -> None:
    task = world.queue().submit("job", 1)

    def handler(input: int, context: Any) -> str:
        world.queue(seed=9).cancel(task.id, by="alice")
        return "done all the same"

    worker_with(world, handler).drain()

    found = world.queue().get(task.id)
    assert (found.status, found.cancel_requested) == (TaskStatus.COMPLETED, True)
    assert found.cancelled_by == "alice"


def test_a_cancel_request_reaches_the_handler_with_the_next_heartbeat(world: World) -> None:
    task = world.queue().submit("job", 1)
    seen: list[bool] = []
    worker = Worker(world.queue(seed=2), check=False)

    @worker.task("job")
    def handler(input: int, context: Any) -> None:
        world.queue(seed=9).cancel(task.id)
        seen.append(context.is_cancellation_requested())
        assert worker._run is not None
        worker._run.heartbeat.beat()
        worker._run.claims.refresh()
        seen.append(context.is_cancellation_requested())
        context.raise_if_cancelled()

    worker.drain()

    assert seen == [False, True]
    assert world.queue().get(task.id).status is TaskStatus.CANCELLED


def test_a_handler_may_give_in_without_being_asked(world: World) -> None:
    task = world.queue().submit("job", 1)

    worker_with(world, raising(CancelledError("no longer of use"))).drain()

    assert world.queue().get(task.id).status is TaskStatus.CANCELLED


def test_a_failed_attempt_of_a_task_that_is_to_be_cancelled_is_not_made_again(
    world: World,
) -> None:
    task = world.queue().submit("job", 1)

    def handler(input: int) -> None:
        world.queue(seed=9).cancel(task.id)
        raise ValueError("no")

    worker_with(world, handler).drain()

    assert world.queue().get(task.id).status is TaskStatus.CANCELLED


def test_a_worker_without_handlers_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"@worker\.task"):
        Worker(Queue(MemoryStore())).run(burst=True)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, lambda *, input: None],
    ids=["none", "three", "keyword"],
)
def test_a_function_that_takes_something_else_is_no_handler(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"\(input, context\)"):
        Worker(Queue(MemoryStore())).task("job")(function)


def test_a_second_handler_for_a_type_is_refused() -> None:
    worker = Worker(Queue(MemoryStore()))
    worker.task("job")(lambda input: None)

    with pytest.raises(ConfigurationError, match="'job' has a handler already"):
        worker.task("job")(lambda input: None)


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": 0},
        {"threads": "8"},
        {"lease": timedelta(seconds=0.5)},
        {"poll_min": timedelta(seconds=6)},
        {"poll_min": timedelta(0)},
        {"sweep_interval": timedelta(0)},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Worker(Queue(MemoryStore()), **settings)


def test_threads_run_tasks_at_the_same_time_and_a_stop_lets_them_finish() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=4, check=False)
    together = threading.Barrier(4)
    stopped = threading.Event()

    @worker.task("job")
    def handler(input: int) -> int:
        together.wait(20)
        assert stopped.wait(20)
        return input

    tasks = [queue.submit("job", number) for number in range(4)]
    late = queue.submit("job", 5, delay=timedelta(hours=1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    for _ in range(400):
        if together.n_waiting == 0 and len(list(queue.list("running"))) == 4:
            break
        threading.Event().wait(0.02)

    worker.stop()
    stopped.set()
    thread.join(20)

    assert not thread.is_alive()
    assert [queue.get(task.id).output for task in tasks] == [0, 1, 2, 3]
    assert queue.get(late.id).status is TaskStatus.PENDING
    assert not [each.name for each in threading.enumerate() if each.name.startswith("buquet-")]


def test_a_stop_gives_claimed_tasks_that_have_not_begun_back_at_once(world: World) -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=1, check=False)
    worker._registry.note_duration("job", 0.001)  # short tasks are claimed ahead
    begun, go_on = threading.Event(), threading.Event()

    @worker.task("job")
    def handler(input: int) -> int:
        begun.set()
        assert go_on.wait(20)
        return input

    tasks = queue.submit_many([("job", number) for number in range(5)])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(20)
    assert len(list(queue.list("running"))) == 5

    worker.stop()
    for _ in range(400):
        if len(list(queue.list("running"))) <= 1:
            break
        threading.Event().wait(0.02)
    released = [queue.get(task.id) for task in tasks[1:]]
    go_on.set()
    thread.join(20)

    assert {(each.status, each.attempt) for each in released} == {(TaskStatus.PENDING, 0)}
    assert queue.get(tasks[0].id).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_tasks_finish_and_gives_the_old_handlers_back(
    number: signal.Signals,
) -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=2, check=False)
    before = signal.getsignal(number)

    @worker.task("job")
    def handler(input: int) -> int:
        os.kill(os.getpid(), number)
        return input

    task = queue.submit("job", 1)

    worker.run()

    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert signal.getsignal(number) is before


def test_a_submit_in_the_same_process_wakes_the_worker_at_once() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(
        queue, check=False, poll_min=timedelta(seconds=60), poll_max=timedelta(seconds=60)
    )
    polled = threading.Event()
    worker.task("job")(lambda input: input)
    worker.task("first")(lambda input: polled.set())
    queue.submit("first")
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert polled.wait(20)

    task = queue.submit("job", 1)
    found = queue.wait(task.id, timeout=20)
    worker.stop()
    thread.join(20)

    assert found.status is TaskStatus.COMPLETED


def test_one_missed_heartbeat_is_harmless(world: World) -> None:
    store = FaultyStore(world.store)
    task = world.queue().submit("job", 1)
    worker = Worker(world.queue(store, seed=2), check=False)

    @worker.task("job")
    def handler(input: int, context: Any) -> str:
        run = worker._run
        assert run is not None
        world.clock.advance(seconds=20)
        store.fail_before(len(store.calls) + 1, StoreUnavailable("No route."))
        with pytest.raises(StoreUnavailable):
            run.heartbeat.beat()
        world.clock.advance(seconds=20)
        run.heartbeat.beat()
        world.clock.advance(seconds=30)
        assert world.sweeper().sweep_once().recovered == 0
        assert not context.lease_lost
        return "mine"

    worker.drain()

    assert world.queue().get(task.id).result() == "mine"


def test_when_all_heartbeats_fail_the_handler_is_told_and_others_take_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    store = FaultyStore(world.store)
    task = world.queue().submit("job", 1)
    worker = Worker(world.queue(store, seed=2), check=False, lease=timedelta(seconds=30))
    told: list[bool] = []

    @worker.task("job")
    def handler(input: int, context: Any) -> str:
        run = worker._run
        assert run is not None
        stop = world.clock.event()
        for number in range(1, 60):
            store.fail_before(len(store.calls) + number, StoreUnavailable("No route."))
        beating = threading.Thread(target=run.heartbeat.run, args=(stop,))
        beating.start()
        for _ in range(35):
            world.clock.await_waiters(1)
            world.clock.advance(seconds=1)
        world.clock.await_waiters(1)
        told.append(context.lease_lost)
        stop.set()
        beating.join(10)
        store._faults.clear()
        world.sweeper().sweep_once()
        return "too late"

    with caplog.at_level(logging.WARNING):
        worker.drain()

    found = world.queue().get(task.id)
    assert told == [True]
    assert found.status is TaskStatus.PENDING
    assert "worker lost" in (found.last_error or "")
    assert sum("could not renew its lease" in each.message for each in caplog.records) == 1


def test_a_handler_is_only_completed_after_it_has_returned(world: World) -> None:
    task = world.queue().submit("job", 1)
    during: list[TaskStatus] = []

    worker_with(world, lambda input: during.append(world.queue().get(task.id).status)).drain()

    assert during == [TaskStatus.RUNNING]
    assert world.queue().get(task.id).status is TaskStatus.COMPLETED


def test_a_burst_ends_when_nothing_is_due() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, check=False)
    worker.task("job")(lambda input: input and queue.submit("job", input - 1).id)
    queue.submit("job", 5)
    later = queue.submit("job", 1, delay=timedelta(hours=1))

    worker.run(burst=True)

    assert len(list(queue.list("completed"))) == 6
    assert queue.get(later.id).status is TaskStatus.PENDING


LEFT_RUNNING = """
import threading, buquet
queue = buquet.connect("sqlite:///queue.db")
worker = buquet.Worker(queue, threads=4)
begun = threading.Event()

@worker.task("job")
def job(input):
    begun.set()
    threading.Event().wait(60)

queue.submit("job", 1)
threading.Thread(target=worker.run, daemon=True).start()
assert begun.wait(30)
"""


def test_an_interpreter_that_ends_in_the_midst_of_a_task_does_so_without_a_traceback(
    tmp_path: Path,
) -> None:
    assert run_python(LEFT_RUNNING, tmp_path) == (0, "", "")


WITHOUT_FORK_AND_ALARM = """
import os, signal
del os.fork, os.register_at_fork, signal.SIGALRM
import buquet
queue = buquet.connect("sqlite:///queue.db")
worker = buquet.Worker(queue, threads=2)
worker.task("job")(lambda input: input)
task = queue.submit("job", 1)
worker.run(burst=True)
print(queue.get(task.id).status)
"""


def test_a_worker_runs_where_there_is_no_fork_and_no_alarm(tmp_path: Path) -> None:
    assert run_python(WITHOUT_FORK_AND_ALARM, tmp_path) == (0, "completed\n", "")


def run_python(code: str, folder: Path) -> tuple[int, str, str]:
    """Run a program in a process of its own; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_retry_does_not_wait_for_the_others_of_its_batch() -> None:
    queue = Queue(MemoryStore())
    worker = Worker(queue, threads=2, check=False)
    retried = threading.Event()

    @worker.task("job")
    def handler(input: str, context: Any) -> str:
        if input == "long":
            assert retried.wait(20), "the retry did not come while this was running"
        elif context.attempt == 1:
            raise ValueError("again")
        else:
            retried.set()
        return input

    soon = RetryPolicy(initial_seconds=0.05, jitter=0)
    tasks = queue.submit_many([("job", "long"), ("job", "short")], retry_policy=soon)
    thread = threading.Thread(target=worker.run)
    thread.start()
    found = queue.wait([task.id for task in tasks], timeout=30)
    worker.stop()
    thread.join(20)

    assert [task.status for task in found] == [TaskStatus.COMPLETED] * 2
    assert [task.attempt for task in found] == [1, 2]


def test_a_claim_that_fails_keeps_no_result_of_its_batch_back(world: World) -> None:
    store = FaultyStore(world.store)
    tasks = world.queue().submit_many([("job", "first"), ("job", "second")])
    worker = Worker(world.queue(store, seed=2), check=False)

    @worker.task("job")
    def handler(input: str) -> str:
        run = worker._run
        assert run is not None
        if input == "first":
            (candidate,) = run.claims.due(world.clock.now())
            store.fail_before(len(store.calls) + 1, StoreUnavailable("No route."))
            run.claims.read(candidate)
        return input

    worker.drain()

    assert [world.queue().get(task.id).output for task in tasks] == ["first", "second"]


def test_an_entry_written_far_in_the_past_is_found_within_an_hour(world: World) -> None:
    worker = world.worker()
    worker.drain()
    run = worker._run
    assert run is not None
    world.clock.advance(hours=0.5)
    task = world.queue().submit("ok", 1)
    (batch,) = world.batches()
    old = evolve(batch, due=batch.due - 120)
    world.store.delete(world.ready())
    world.store.put(batch_key(batch.id), encode_batch(old))
    world.store.put(entry_of(old).key, b"")
    run.heartbeat.beat()

    assert run.poller.poll_once().live == []
    world.clock.advance(hours=0.5)
    assert [each.entry.batch_id for each in run.poller.poll_once().live] == [task.batch_id]


def test_a_store_that_is_away_for_a_while_costs_no_result(world: World) -> None:
    store = FaultyStore(world.store)
    task = world.queue().submit("job", 1)

    def handler(input: int) -> str:
        for number in range(1, 4):
            store.fail_before(len(store.calls) + number, StoreUnavailable("No route."))
        return "kept"

    worker = Worker(world.queue(store, seed=2), check=False)
    worker.task("job")(handler)

    worker.drain()

    assert world.queue().get(task.id).result() == "kept"
    assert world.queue().get(task.id).attempt == 1


def test_a_handler_that_puts_its_task_off_again_and_again_leaves_others_their_turn(
    world: World,
) -> None:
    world.queue().submit("again")
    turns: list[float] = []
    worker = world.worker(world.queue(seed=2), threads=1)

    @worker.task("again")
    def again(input: object) -> None:
        turns.append(world.clock.monotonic())
        raise RescheduleError(delay_seconds=0)

    for number in range(30):
        world.queue(seed=100 + number).submit("ok")
        worker.drain()
        world.clock.advance(seconds=0.5)

    assert len(world.runs) == 30
    assert 10 <= len(turns) <= 16


def test_a_replayed_task_no_longer_shows_the_worker_that_had_it(world: World) -> None:
    task = world.queue().submit("job", max_retries=0)
    worker = Worker(world.queue(seed=2), check=False)

    @worker.task("job")
    def fail(input: object) -> None:
        raise ValueError

    worker.drain()
    assert world.queue().get(task.id).worker_id == worker.id

    assert world.queue().replay(task.id).worker_id is None
