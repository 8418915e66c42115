"""How workers stop: by which requests, in which order, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue, TaskStatus
from buquet.cli.stopping import StopRequests
from buquet.testing import FakeClock
from tests.cli.test_running import read_until, start

Cli = Callable[..., Any]

MODULE = """
import os, sys, threading
from datetime import timedelta
from buquet import RescheduleError, RetryableError, Worker, connect

worker = Worker(connect(), threads=1, lease=timedelta(seconds=1), check=False)
def hang():
    print("hanging", file=sys.stderr, flush=True)
    threading.Event().wait()

for name in os.environ.get("HANG", "").split():
    getattr(worker, name)(hang)

@worker.task("wait")
def wait(input):
    print("begun", os.getpid(), flush=True)
    threading.Event().wait(input)

@worker.task("die_once")
def die_once(code, context):
    if context.task.attempt == 1:
        os._exit(code)

@worker.task("later")
def later(input):
    raise RescheduleError(3600)

@worker.task("fail")
def fail(input):
    raise RetryableError("not yet")

@worker.task("move")
def move(folder):
    os.chdir(folder)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module `jobs`."""
    (tmp_path / "jobs.py").write_text(MODULE)
    return tmp_path


@contextmanager
def running(
    environment: dict[str, str], folder: Path, *args: str, **more: str
) -> Iterator[subprocess.Popen[str]]:
    with start(environment | more, folder, "worker", "jobs:worker", *args) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_of_task(process: subprocess.Popen[str]) -> int:
    """Wait for the task to begin; return the process that runs it."""
    assert process.stdout is not None
    return int(process.stdout.readline().split()[1])


# --- requests


class Requests:
    """What is done at each request, and the time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.counts: list[int] = []
        self.requests = StopRequests(self.counts.append, self.clock)

    def send(self, number: int, *, after: float) -> None:
        self.clock.advance(seconds=after)
        self.requests.on_signal(number)


@pytest.mark.parametrize(
    ("signals", "count"),
    [
        ([(signal.SIGTERM, 0)], 1),
        ([(signal.SIGTERM, 0), (signal.SIGTERM, 0.1)], 1),
        ([(signal.SIGTERM, 0), (signal.SIGTERM, 1)], 2),
        ([(signal.SIGTERM, 0), (signal.SIGINT, 0.1)], 2),
        ([(signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGINT, 1)], 3),
    ],
    ids=str,
)
def test_a_signal_that_is_repeated_at_once_is_one_request(
    signals: list[tuple[int, float]], count: int
) -> None:
    made = Requests()

    for number, after in signals:
        made.send(number, after=after)

    assert made.requests.count == count


def test_a_group_that_is_signalled_while_the_supervisor_passes_it_on_keeps_its_grace(
    environment: dict[str, str], folder: Path, queue: Queue
) -> None:
    task = queue.submit("wait", 1)
    with running(environment, folder, "--processes", "1") as process:
        child = pid_of_task(process)
        process.send_signal(signal.SIGTERM)
        os.kill(child, signal.SIGTERM)
        _, told = process.communicate(timeout=30)

    assert process.returncode == 0, told
    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert "Stopping at once" not in told


@pytest.mark.parametrize("mode", [[], ["--processes=1"]], ids=str)
def test_a_worker_that_stops_says_at_once_what_it_waits_for(
    environment: dict[str, str], folder: Path, queue: Queue, mode: list[str]
) -> None:
    task = queue.submit("wait", 300)
    with running(environment, folder, *mode) as process:
        pid_of_task(process)
        process.send_signal(signal.SIGINT)
        told = read_until(process, "Stopping: 1 task is running and has 30s to end.")
        process.send_signal(signal.SIGTERM)
        told += process.communicate(timeout=30)[1]

    assert "again" in told
    assert "time is up" not in told
    assert process.returncode == 0, told
    assert queue.get(task.id).status is TaskStatus.PENDING
    assert queue.get(task.id).attempt == 0


def test_sighup_stops_a_worker_in_order(
    environment: dict[str, str], folder: Path, queue: Queue
) -> None:
    task = queue.submit("wait", 300)
    with running(environment, folder, "--grace", "0") as process:
        pid_of_task(process)
        process.send_signal(signal.SIGHUP)
        told = process.communicate(timeout=30)[1]

    assert process.returncode == 0, told
    assert queue.get(task.id).status is TaskStatus.PENDING


def test_a_worker_under_nohup_goes_on_after_sighup(
    environment: dict[str, str], folder: Path, queue: Queue
) -> None:
    task = queue.submit("wait", 0)
    line = f"trap '' HUP; exec {sys.executable} -m buquet worker jobs:worker"
    with subprocess.Popen(
        ["/bin/sh", "-c", line],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        pid_of_task(process)
        process.send_signal(signal.SIGHUP)
        second = queue.submit("wait", 0)
        assert queue.wait(second.id, timeout=30).status is TaskStatus.COMPLETED
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert process.returncode == 0
    assert queue.wait(task.id, timeout=0).status is TaskStatus.COMPLETED


# --- what hangs


@pytest.mark.parametrize(
    ("hook", "mode"),
    [
        ("on_startup", []),
        pytest.param("on_shutdown", [], marks=pytest.mark.long),
        pytest.param("on_startup", ["--processes=1"], marks=pytest.mark.long),
        pytest.param("on_shutdown", ["--processes=1"], marks=pytest.mark.long),
        pytest.param("on_startup", ["--reload"], marks=pytest.mark.long),
        pytest.param("on_shutdown", ["--burst"], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_second_signal_ends_a_worker_whose_hook_hangs(
    environment: dict[str, str], folder: Path, hook: str, mode: list[str]
) -> None:
    with running(environment, folder, *mode, HANG=hook) as process:
        if hook == "on_startup" or "--burst" in mode:
            read_until(process, "hanging")
            process.send_signal(signal.SIGTERM)
            read_until(process, "Stopping")
        else:
            read_until(process, "is at work")
            process.send_signal(signal.SIGTERM)
            read_until(process, "hanging")
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=15)[1]

    assert process.returncode == 1
    assert re.search(r"did not end by itself: .*jobs\.py:\d+ \(hang\)", told)


def test_a_third_signal_ends_a_worker_at_once(environment: dict[str, str], folder: Path) -> None:
    with running(environment, folder, HANG="on_startup") as process:
        read_until(process, "hanging")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        process.communicate(timeout=4)

    assert process.returncode == 1


# --- exit codes


@pytest.mark.parametrize("code", [2, pytest.param(5, marks=pytest.mark.long)])
def test_a_handler_that_ends_its_process_is_taken_for_a_crash(
    environment: dict[str, str], folder: Path, queue: Queue, code: int
) -> None:
    task = queue.submit("die_once", code)
    with running(environment, folder, "--processes", "1", "--poll-max", "100ms") as process:
        told = read_until(process, f"left with exit code {code}; another takes its place")
        assert queue.wait(task.id, timeout=30).status is TaskStatus.COMPLETED
        process.send_signal(signal.SIGTERM)
        told += process.communicate(timeout=30)[1]

    assert process.returncode == 0, told


def test_a_broken_module_ends_the_supervisor_though_sigchld_is_ignored(
    environment: dict[str, str], folder: Path
) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    line = f"trap '' CHLD; exec {sys.executable} -m buquet worker broken:worker --processes 1"

    result = subprocess.run(
        ["/bin/sh", "-c", line],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert result.returncode == 2
    assert result.stderr.count("ZeroDivisionError") == 1


@pytest.mark.parametrize("mode", [[], ["--processes=2"]], ids=str)
@pytest.mark.parametrize("task_type", ["later", "fail"])
def test_a_burst_tells_how_many_tasks_are_left_for_later(
    process: Cli, folder: Path, queue: Queue, task_type: str, mode: list[str]
) -> None:
    queue.submit(task_type)

    result = process("worker", "jobs:worker", "--burst", *mode)

    assert result.returncode == 7, result.stderr
    assert "1 left for later" in result.stderr


def test_a_burst_tells_in_json_how_many_tasks_are_left(
    process: Cli, folder: Path, queue: Queue
) -> None:
    queue.submit_many([("later", n) for n in range(3)])

    result = process("worker", "jobs:worker", "--burst", "--json")

    assert (result.returncode, json.loads(result.stdout)["left"]) == (7, 3)
    assert process("worker", "jobs:worker", "--burst").returncode == 0


# --- its surroundings


@pytest.mark.parametrize("mode", [["--burst"], ["--burst", "--processes=1"]], ids=str)
def test_modules_that_are_named_like_those_of_python_do_no_harm(
    environment: dict[str, str], folder: Path, queue: Queue, mode: list[str]
) -> None:
    for name in ("queue", "select", "types", "logging", "socket", "signal", "random", "enum"):
        (folder / f"{name}.py").write_text("raise SystemError('mine')\n")
    task = queue.submit("wait", 0)

    # -P: as the installed script has it, which does not look for modules where it is started.
    result = subprocess.run(
        [sys.executable, "-P", "-m", "buquet", "worker", "jobs:worker", *mode],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert result.returncode == 0, result.stderr
    assert queue.get(task.id).status is TaskStatus.COMPLETED


def test_a_relative_health_file_stays_where_it_is_when_a_handler_moves(
    environment: dict[str, str], folder: Path, queue: Queue
) -> None:
    (folder / "elsewhere").mkdir()
    task = queue.submit("move", "elsewhere")
    args = ["--health-file", "health", "--poll-max", "500ms"]
    with running(environment, folder, *args) as process:
        assert queue.wait(task.id, timeout=30).status is TaskStatus.COMPLETED
        (folder / "health").unlink(missing_ok=True)
        for _ in range(2):
            queue.wait(queue.submit("wait", 0).id, timeout=30)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert (folder / "health").exists()
    assert list((folder / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [[], ["--processes=1"], ["--health-file=health"]], ids=str)
def test_a_worker_in_a_folder_that_was_removed_says_so(
    environment: dict[str, str], tmp_path: Path, mode: list[str]
) -> None:
    (tmp_path / "gone").mkdir()
    command = f"{sys.executable} -P -m buquet worker jobs:worker {' '.join(mode)}"

    result = subprocess.run(
        ["/bin/sh", "-c", f"cd gone && rmdir ../gone && exec {command}"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert result.returncode == 2
    assert result.stderr.startswith("buquet: The current folder can't be used: ")
    assert len(result.stderr.splitlines()) == 1


# --- logs

DISABLE = "import logging.config; logging.config.dictConfig({'version': 1})"


@pytest.mark.parametrize("log_format", [[], ["--log-format=json"]], ids=str)
@pytest.mark.parametrize("where", ["import", "startup", "handler"])
def test_failures_are_logged_though_the_module_has_disabled_all_loggers(
    process: Cli, queue: Queue, tmp_path: Path, where: str, log_format: list[str]
) -> None:
    lines = {"import": "pass", "startup": "pass", "handler": "pass", where: DISABLE}
    (tmp_path / "jobs.py").write_text(
        "from buquet import Worker, connect\n"
        "worker = Worker(connect(), check=False)\n"
        f"{lines['import']}\n"
        "@worker.on_startup\n"
        "def begin():\n"
        f"    {lines['startup']}\n"
        "@worker.task('bad')\n"
        "def bad(input):\n"
        f"    {lines['handler']}\n"
        "    raise KeyError('nobody')\n"
    )
    task = queue.submit("bad", max_retries=0)

    result = process("worker", "jobs:worker", "--burst", *log_format)

    assert result.returncode == 0
    assert task.id in result.stderr
    assert "nobody" in result.stderr


def test_a_url_that_the_module_does_not_use_is_reported(process: Cli, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from buquet import Worker, connect\n"
        "worker = Worker(connect('sqlite:///mine.db'), check=False)\n"
        "worker.task('a')(print)\n"
    )

    result = process("worker", "jobs:worker", "--burst", "--url", "sqlite:///other.db")

    assert re.search(r"Serving a from sqlite:///\S*mine\.db with", result.stderr)
    assert "--url sqlite:///other.db is not used: jobs connects to sqlite:///" in result.stderr
    assert not (tmp_path / "other.db").exists()
