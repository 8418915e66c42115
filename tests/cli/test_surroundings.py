"""What lies around a worker: other modules, other stores, folders that change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue, TaskStatus, connect
from tests.cli.test_running import read_until

Cli = Callable[..., Any]


@pytest.mark.parametrize("name", ["queue", "select", "types"])
@pytest.mark.parametrize("mode", [[], ["--processes=1"], ["--reload"]], ids=str)
def test_a_module_that_is_named_like_one_of_python_harms_no_worker(
    environment: dict[str, str],
    queue: Queue,
    worker_module: str,
    tmp_path: Path,
    name: str,
    mode: list[str],
) -> None:
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('the module of a user')")
    task = queue.submit("good", 1)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "buquet", "worker", worker_module, *mode],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        read_until(worker, "is at work")
        assert queue.wait(task.id, timeout=20).status is TaskStatus.COMPLETED
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=20)

    assert worker.returncode == 0


def test_a_store_that_the_module_names_by_itself_is_said_to_win_over_url(
    process: Cli, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from buquet import Worker, connect\n"
        "worker = Worker(connect('sqlite:///own.db'))\n"
        "worker.task('good')(print)\n"
    )

    result = process("worker", "own:worker", "--burst", "--url", "sqlite:///other.db")

    assert result.returncode == 0
    assert "own.db with 8 threads" in result.stderr
    assert "--url sqlite:///other.db is not used: own connects to sqlite:" in result.stderr


def test_a_burst_that_leaves_tasks_for_later_says_how_many(
    process: Cli, queue: Queue, tmp_path: Path
) -> None:
    (tmp_path / "later.py").write_text(
        "from buquet import RescheduleError, Worker, connect\n"
        "worker = Worker(connect())\n"
        "@worker.task('good')\n"
        "def good(input):\n"
        "    raise RescheduleError(3600)\n"
    )
    queue.submit("good")
    queue.submit("good")

    plain = process("worker", "later:worker", "--burst")
    assert plain.returncode == 7
    assert "2 left for later" in plain.stderr
    with connect(environment_url(tmp_path)) as again:
        again.submit("good")
    shown = process("worker", "later:worker", "--burst", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["left"]) == (7, 1)
    both = process("worker", "later:worker", "--burst", "--processes=1")
    assert both.returncode == 0  # nothing was due any more


def environment_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'queue.db'}"


def test_a_relative_health_file_does_not_follow_a_handler_that_changes_the_folder(
    process: Cli, queue: Queue, tmp_path: Path
) -> None:
    (tmp_path / "moves.py").write_text(
        "import os, tempfile\n"
        "from buquet import Worker, connect\n"
        "worker = Worker(connect())\n"
        "@worker.task('good')\n"
        "def good(input):\n"
        "    os.chdir(tempfile.mkdtemp(dir=input))\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for _ in range(3):
        queue.submit("good", str(elsewhere))

    assert process("worker", "moves:worker", "--burst", "--health-file=health").returncode == 0

    assert (tmp_path / "health").exists()
    assert not list(elsewhere.rglob("health"))


def test_a_parent_that_ignores_its_children_does_not_hide_how_they_end(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')\n")
    ignoring = "trap '' CHLD; exec \"$@\""
    command = [sys.executable, "-P", "-m", "buquet", "worker", "broken:worker", "--processes=1"]

    ended = subprocess.run(
        ["bash", "-c", ignoring, "bash", *command],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 2  # it is not started again and again
    assert ended.stderr.count("has pid") == 1


def test_a_worker_whose_terminal_is_closed_gives_its_tasks_back(
    environment: dict[str, str], queue: Queue, worker_module: str, tmp_path: Path
) -> None:
    task = queue.submit("slow", 60)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "buquet", "worker", worker_module, "--grace=0s"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGHUP)
        worker.communicate(timeout=30)

    assert queue.get(task.id).status is TaskStatus.PENDING
