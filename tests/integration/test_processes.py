"""Worker processes: stopped, killed, held, and kept going by a supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from buquet import Queue, RetryPolicy, TaskStatus, connect
from tests.integration.processes import REPO, WORKER, await_runs, await_true, end, worker_process

WAITING = {"wait": True, "number": 7}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a worker process finds in its environment: a store, and where to note its runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    gate = str(tmp_path / "gate")
    return dict(os.environ) | {"RUNS": str(runs), "GATE": gate, "BUQUET_URL": url}


@pytest.fixture
def queue(environment: dict[str, str]) -> Iterator[Queue]:
    """The same queue, for looking at what the workers do."""
    with connect(environment["BUQUET_URL"]) as queue:
        yield queue


# --- stopping


def test_a_worker_that_is_told_to_stop_ends_its_task_and_claims_no_more(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("sleep", 3)
    with worker_process(environment, WORKER, "--threads=1", "--grace=10s") as worker:
        await_runs(environment, 1)
        later = queue.submit("sleep", 0)
        worker.send_signal(signal.SIGTERM)
        end(worker)

    assert worker.returncode == 0
    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert queue.get(later.id).status is TaskStatus.PENDING


def test_a_task_that_outlasts_the_grace_period_is_given_back_at_once(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("note", WAITING)
    with worker_process(environment, WORKER, "--grace=1s", "--lease=10m") as worker:
        await_runs(environment, 1)
        worker.send_signal(signal.SIGTERM)
        end(worker, within=5)
    given_back = queue.get(task.id)
    Path(environment["GATE"]).touch()
    with worker_process(environment, WORKER, "--burst") as heir:
        end(heir)

    assert (worker.returncode, heir.returncode) == (0, 0)
    assert given_back.status is TaskStatus.PENDING
    assert queue.get(task.id).output == 7


@pytest.mark.parametrize("more", [[], ["--processes=2"]], ids=["alone", "supervisor"])
def test_a_second_signal_has_a_worker_give_its_task_back_at_once(
    environment: dict[str, str], queue: Queue, more: list[str]
) -> None:
    task = queue.submit("note", WAITING)
    with worker_process(environment, WORKER, "--grace=20s", *more) as worker:
        await_runs(environment, 1)
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)  # another one: two that are alike may arrive as one
        end(worker, within=5)

    assert worker.returncode == 0
    assert queue.get(task.id).status is TaskStatus.PENDING


def test_a_worker_that_was_held_beyond_its_lease_changes_nothing_of_what_another_did(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("note", WAITING)
    with worker_process(environment, WORKER, "--lease=1s") as held:
        await_runs(environment, 1)
        held.send_signal(signal.SIGSTOP)
        Path(environment["GATE"]).touch()
        with worker_process(environment, WORKER, "--lease=1s") as other:
            queue.wait(task.id, timeout=30)
            ended = queue.get(task.id)
            held.send_signal(signal.SIGCONT)
            held.send_signal(signal.SIGTERM)
            told = end(held)
            other.send_signal(signal.SIGTERM)
            end(other)

    assert (held.returncode, other.returncode) == (0, 0)
    assert queue.get(task.id) == ended
    assert f"-{other.pid}-" in ended.history[-1].by
    assert told.count("is no longer this worker's") == 1


# --- a supervisor


def test_a_task_that_takes_its_process_down_fails_alone(
    environment: dict[str, str], queue: Queue
) -> None:
    inputs = [("mixed", None if number == 50 else number) for number in range(100)]
    soon = RetryPolicy(initial_seconds=0.1, factor=1)
    tasks = queue.submit_many(inputs, retry_policy=soon)
    with worker_process(environment, WORKER, "--processes=2", "--lease=2s") as workers:
        ended = queue.wait([task.id for task in tasks], timeout=60)
        workers.send_signal(signal.SIGTERM)
        told = end(workers)

    assert workers.returncode == 0
    assert Counter(task.status for task in ended) == {"completed": 99, "failed": 1}
    assert "worker lost" in str(ended[50].last_error)
    assert "left with exit code 9; another takes its place in 0.5 s." in told


def test_processes_stop_when_their_supervisor_is_killed(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("sleep", 1)
    with worker_process(environment, WORKER, "--processes=2") as workers:
        await_runs(environment, 1)
        await_true(lambda: len(queue.workers()) == 2)
        workers.kill()
        told = end(workers)  # all have closed stderr

    assert told.count("The supervisor is gone") == 2
    assert told.count("has stopped.") == 2
    assert queue.get(task.id).status is TaskStatus.COMPLETED


def test_processes_leave_with_2_if_a_setting_is_wrong(environment: dict[str, str]) -> None:
    with worker_process(environment, WORKER, "--processes=2", "--types=nonsense") as workers:
        told = end(workers)

    assert workers.returncode == 2
    assert "There is no handler for task type 'nonsense'. There are: leave_behind, " in told


def test_processes_in_a_burst_leave_when_nothing_is_due(
    environment: dict[str, str], queue: Queue
) -> None:
    tasks = queue.submit_many([("mixed", number) for number in range(20)], batch_size=5)
    with worker_process(environment, WORKER, "--processes=2", "--burst", "--json") as workers:
        told, _ = workers.communicate(timeout=30)

    assert workers.returncode == 0
    assert told.split() == ["{", '"processes":', "2,", '"started":', "2", "}"]
    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.COMPLETED}


def test_processes_that_leave_after_some_tasks_are_replaced(
    environment: dict[str, str], queue: Queue
) -> None:
    tasks = queue.submit_many([("sleep", 0) for _ in range(3)], batch_size=1)
    arguments = ("--processes=1", "--threads=1", "--max-tasks=2")
    with worker_process(environment, WORKER, *arguments) as workers:
        ended = queue.wait([task.id for task in tasks], timeout=30)
        workers.send_signal(signal.SIGINT)
        end(workers)

    assert workers.returncode == 0
    assert sorted(Counter(task.output for task in ended).values()) == [1, 2]


def test_the_health_file_is_as_old_as_that_of_the_process_that_is_worst(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "health"
    with worker_process(environment, WORKER, "--processes=2", f"--health-file={path}") as workers:
        await_true(path.exists)
        first = path.stat().st_mtime_ns
        await_true(lambda: path.stat().st_mtime_ns > first)
        workers.send_signal(signal.SIGTERM)
        end(workers)

    assert {"health", "health.1", "health.2"} <= {each.name for each in tmp_path.iterdir()}
    assert workers.returncode == 0


# --- forked by others

FORKING = """
import multiprocessing, os
from buquet import Worker, connect

forking = multiprocessing.get_context("fork")
both_are_at_it = forking.Barrier(2)
with connect(os.environ["BUQUET_URL"]) as queue:
    worker = Worker(queue, threads=1)

    @worker.task("job")
    def job(input):
        both_are_at_it.wait(20)

    children = [forking.Process(target=worker.run, kwargs={"burst": True}) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_with_the_worker_of_their_parent_are_two_workers(
    environment: dict[str, str], queue: Queue
) -> None:
    tasks = queue.submit_many([("job", number) for number in range(2)])  # of one batch

    done = subprocess.run(
        [sys.executable, "-c", FORKING],
        cwd=REPO,
        env=environment | {"PYTHONWARNINGS": "ignore"},  # of threads and fork, which is the point
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert (done.returncode, done.stderr) == (0, "")
    found = [queue.get(task.id) for task in tasks]
    events = [[revision.event for revision in task.history] for task in found]
    assert events == [["created", "claimed", "completed"]] * 2
    assert len({task.history[1].by for task in found}) == 2


# --- as process 1


def has_namespaces() -> bool:
    try:
        return subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode == 0
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


@pytest.mark.skipif(sys.platform != "linux", reason="needs PID namespaces")
@pytest.mark.parametrize("more", [[], ["--processes=2"]], ids=["alone", "supervisor"])
def test_process_1_takes_signals_and_lets_go_of_what_handlers_left_behind(
    environment: dict[str, str], queue: Queue, more: list[str]
) -> None:
    if not has_namespaces():
        pytest.skip("may not make PID namespaces here")
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    task = queue.submit("leave_behind", "sleep 0.1")
    with worker_process(environment, WORKER, *more, prefix=unshare) as running:
        assert queue.wait(task.id, timeout=30).status is TaskStatus.COMPLETED
        (process_1,) = children(running.pid)
        if more:
            await_true(lambda: len(children(process_1)) == 2)
            assert {state(pid) for pid in children(process_1)} <= {"S", "R", "D"}
        os.kill(process_1, signal.SIGTERM)
        told = end(running)

    assert running.returncode == 0
    assert "has stopped." in told
