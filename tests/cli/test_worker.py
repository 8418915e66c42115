"""The options of `buquet worker`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue, TaskStatus, TooManyLostThreads
from buquet.cli.program import code_of
from buquet.cli.worker import WorkerOptions
from tests.cli.test_running import read_until, start

Cli = Callable[..., Any]


def test_options_replace_settings_of_the_worker() -> None:
    options = WorkerOptions(
        target="a:b",
        threads=3,
        grace=timedelta(0),
        lease=timedelta(seconds=2),
        types="a, b",
        no_check=True,
    )

    assert options.settings() == {
        "threads": 3,
        "max_lost_threads": 3,
        "grace": timedelta(0),
        "lease": timedelta(seconds=2),
        "task_types": ("a", "b"),
        "check": False,
    }
    assert WorkerOptions(target="a:b").settings() == {}


def test_each_of_several_processes_gets_the_options_and_a_health_file_of_its_own() -> None:
    options = WorkerOptions(
        target="a:b",
        processes=3,
        poll_min=timedelta(seconds=0.05),
        burst=True,
        health_file=Path("/run/health"),
    )

    assert options.arguments(2) == [
        "worker",
        "a:b",
        "--poll-min=0.050000",
        "--burst",
        "--health-file=/run/health.2",
    ]


def test_a_worker_serves_only_the_types_that_are_asked_for(
    process: Cli, queue: Queue, worker_module: str
) -> None:
    good, bad = queue.submit("good"), queue.submit("bad")

    result = process("worker", worker_module, "--burst", "--types", "bad")

    assert result.returncode == 0
    assert "Serving bad from" in result.stderr
    assert queue.get(good.id).status is TaskStatus.PENDING
    assert queue.get(bad.id).status is TaskStatus.FAILED


def test_a_worker_leaves_after_so_many_tasks(
    process: Cli, queue: Queue, worker_module: str
) -> None:
    tasks = queue.submit_many([("good", number) for number in range(9)], batch_size=1)

    result = process("worker", worker_module, "--max-tasks", "4", "--threads", "1")

    statuses = [queue.get(task.id).status for task in tasks]
    assert result.returncode == 0
    assert statuses.count(TaskStatus.COMPLETED) == 4
    assert statuses.count(TaskStatus.PENDING) == 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--types", "good,fax"], "There is no handler for task type 'fax'"),
        (["--types", ","], "--types names no task type"),
        (["--lease", "10ms"], "lease must be from a second"),
        (["--poll-min", "10s", "--poll-max", "1s"], "poll_min must be above 0 and at most"),
        (["--health-file", "/nowhere/health"], "there is no folder '/nowhere'"),
        (["--max-tasks", "0"], "--max-tasks"),
        (["--processes", "0"], "--processes"),
        (["--log-format", "xml"], "--log-format"),
    ],
)
def test_a_wrong_option_is_told_of_in_a_line(
    process: Cli, worker_module: str, options: list[str], told: str
) -> None:
    result = process("worker", worker_module, "--burst", *options)

    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_worker_whose_threads_are_stuck_has_an_exit_code_of_its_own() -> None:
    assert code_of(TooManyLostThreads(3)) == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_stop_while_it_is_imported_leaves_in_order(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, threading\nprint('here', file=sys.stderr, flush=True)\n"
        "try:\n    threading.Event().wait()\nexcept Exception:\n    pass\n"
    )
    with start(environment, tmp_path, "worker", "slow:worker") as running:
        read_until(running, "here")
        running.send_signal(number)
        running.communicate(timeout=30)

    assert running.returncode == 0


# --- reload

RELOADED = """
from buquet import Worker, connect
from answer import ANSWER

worker = Worker(connect())

@worker.task("ask")
def ask(input):
    return ANSWER
"""


def write(path: Path, text: str) -> None:
    """Write a module, so that no stale bytecode is taken for it."""
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def ask(queue: Queue) -> Any:
    return queue.wait(queue.submit("ask").id, timeout=30).output


def test_a_worker_starts_anew_when_its_source_changes(
    environment: dict[str, str], queue: Queue, tmp_path: Path
) -> None:
    write(tmp_path / "reloaded.py", RELOADED)
    write(tmp_path / "answer.py", "ANSWER = 1")
    with start(environment, tmp_path, "worker", "reloaded:worker", "--reload") as running:
        read_until(running, "is at work")
        first = ask(queue)
        write(tmp_path / "answer.py", "ANSWER = ")
        read_until(running, "answer.py has changed")
        read_until(running, "Importing 'reloaded' failed with SyntaxError")
        write(tmp_path / "answer.py", "ANSWER = 22")
        read_until(running, "is at work")
        second = ask(queue)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)

    assert (first, second) == (1, 22)
    assert running.returncode == 0
