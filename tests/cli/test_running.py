import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue, TaskStatus, connect
from buquet.testing import FakeClock

Cli = Callable[..., Any]


def start(environment: dict[str, str], folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "buquet", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
        text=True,
    )


def read_until(running: subprocess.Popen[str], word: str) -> str:
    """Read stderr up to the line with a word."""
    assert running.stderr is not None
    told = ""
    for line in running.stderr:
        told += line
        if word in line:
            return told
    raise AssertionError(f"{word!r} was not told: {told}")


# --- worker


def test_a_worker_in_a_burst_runs_what_is_due_and_leaves(
    process: Cli, queue: Queue, worker_module: str
) -> None:
    good, bad = queue.submit("good", 1), queue.submit("bad")
    late = queue.submit("good", ttl_seconds=0)

    result = process("worker", worker_module, "--burst")

    assert result.returncode == 0
    assert queue.get(good.id).output == {"got": 1}
    assert queue.get(bad.id).status is TaskStatus.FAILED
    assert queue.get(late.id).status is TaskStatus.EXPIRED
    assert re.search(r"Serving bad, good, slow from sqlite:\S+ with 2 threads\.", result.stderr)
    assert "1 completed" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_worker_tells_in_json_what_became_of_its_tasks(
    process: Cli, queue: Queue, worker_module: str
) -> None:
    queue.submit_many([("good", n) for n in range(20)])

    result = process("worker", worker_module, "--burst", "--threads", "1", "--json")

    told = json.loads(result.stdout)
    assert (told["claimed"], told["completed"]) == (20, 20)
    assert "with 1 thread." in result.stderr


def test_the_url_of_the_command_is_that_of_connect_in_the_module(
    process: Cli, worker_module: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    with connect(url) as other:
        task = other.submit("good")
        process("worker", worker_module, "--burst", "--url", url)

        assert other.get(task.id).status is TaskStatus.COMPLETED


def test_a_worker_finishes_its_task_when_it_is_asked_to_stop(
    environment: dict[str, str], queue: Queue, worker_module: str, tmp_path: Path
) -> None:
    running_task = queue.submit("slow", 1)
    with start(environment, tmp_path, "worker", worker_module, "--threads", "1") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        left = queue.submit("good")
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=30)

    assert running.returncode == 0
    assert "has stopped" in told
    assert queue.get(running_task.id).status is TaskStatus.COMPLETED
    assert queue.get(left.id).status is TaskStatus.PENDING


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("jobs", "Write the module, a colon and the variable"),
        ("jobs:", "Write the module, a colon and the variable"),
        ("..:worker", "Write the module, a colon and the variable"),
        ("jobs:missing", "Module 'jobs' has no 'missing'. There is jobs:worker."),
        ("jobs:number", "'jobs:number' is of type int, not a Worker. There is jobs:worker."),
        ("nowhere:worker", "There is no module 'nowhere'"),
        ("jobs.nowhere:worker", "There is no module 'jobs.nowhere'"),
        ("broken:worker", "Importing 'broken' failed with ZeroDivisionError"),
        ("needy:worker", "Importing 'needy' failed with ModuleNotFoundError: No module"),
        ("wrong:worker", "is not the URL of a store"),
    ],
)
def test_a_worker_that_can_not_be_loaded_is_told_of_in_a_line(
    process: Cli, worker_module: str, tmp_path: Path, target: str, told: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "wrong.py").write_text("from buquet import connect\nconnect('nonsense')\n")

    result = process("worker", target, "--burst")

    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_worker_without_handlers_is_refused(process: Cli, tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("from buquet import *\nworker = Worker(connect())\n")

    result = process("worker", "idle:worker", "--burst")

    assert result.returncode == 2
    assert "This worker has no handlers" in result.stderr


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_the_log_of_a_worker_never_shows_inputs(
    process: Cli, queue: Queue, worker_module: str, debug: list[str]
) -> None:
    for task_type in ("good", "bad"):
        queue.submit(task_type, {"password": "s3cr3t"})
    queue.submit("good", {"password": "s3cr3t"}, ttl_seconds=0)

    result = process("worker", worker_module, "--burst", *debug)

    assert "failed for good" in result.stderr
    assert "s3cr3t" not in result.stderr + result.stdout


# --- sweep


def test_a_sweep_expires_what_is_late_and_tells_how_many(cli: Cli, queue: Queue) -> None:
    tasks = queue.submit_many([("a", n) for n in range(10)], ttl_seconds=0)

    first, second = cli("sweep"), cli("sweep", "--json")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "expired: 10\n" in first.stdout
    assert json.loads(second.stdout)["expired"] == 0
    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.EXPIRED}


def test_sweeps_that_overlap_expire_each_task_once(
    environment: dict[str, str], url: str, tmp_path: Path
) -> None:
    with connect(url, clock=FakeClock()) as earlier:
        earlier.submit_many([("a", n) for n in range(500)], batch_size=5, ttl_seconds=1)

    sweeps = [start(environment, tmp_path, "sweep", "--json") for _ in range(2)]
    told = [json.loads(each.communicate(timeout=60)[0]) for each in sweeps]

    assert [each.returncode for each in sweeps] == [0, 0]
    assert sum(each["expired"] for each in told) == 500


def test_a_sweep_that_meets_a_damaged_batch_does_the_rest_and_says_so(
    cli: Cli, queue: Queue
) -> None:
    damaged = queue.submit("a", ttl_seconds=0)
    late = queue.submit("a", ttl_seconds=0)
    queue.store.put(f"tasks/{damaged.id}.json", b"{")

    result = cli("sweep")

    assert result.exit_code == 1
    assert "errors: 1\n" in result.stdout
    assert queue.get(late.id).status is TaskStatus.EXPIRED


def test_a_full_sweep_finds_tasks_that_are_not_in_the_index(cli: Cli, queue: Queue) -> None:
    queue.submit("a")
    queue.store.delete([each.key for each in queue.store.list("ready/")])

    assert "tidied: 1\n" in cli("sweep", "--full").stdout
    assert len(queue.store.list("ready/")) == 1


# --- sweeper


def test_a_sweeper_sweeps_at_once_and_stops_when_asked_to(
    environment: dict[str, str], queue: Queue, tmp_path: Path
) -> None:
    task = queue.submit("a", ttl_seconds=0)
    with start(environment, tmp_path, "sweeper", "--interval", "5m") as running:
        read_until(running, "ready")
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=30)

    assert running.returncode == 0
    assert "The sweeper has stopped." in told
    assert queue.get(task.id).status is TaskStatus.EXPIRED


def test_a_sweeper_goes_on_sweeping(
    environment: dict[str, str], queue: Queue, tmp_path: Path
) -> None:
    with start(environment, tmp_path, "sweeper", "--interval", "1") as running:
        read_until(running, "ready")
        task = queue.wait(queue.submit("a", ttl_seconds=0).id, timeout=30)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)

    assert task.status is TaskStatus.EXPIRED
    assert running.returncode == 0


@pytest.mark.parametrize("interval", ["0", "0.5", "soon"])
def test_a_sweeper_does_not_sweep_without_pause(cli: Cli, interval: str) -> None:
    assert cli("sweeper", "--interval", interval).exit_code == 2


# --- stats


def test_stats_count_by_type(cli: Cli, queue: Queue) -> None:
    queue.submit_many([("email", n) for n in range(3)])
    queue.submit("email", schedule_at=queue.now().replace(year=2099))
    queue.mark_expired(queue.submit("fax").id)

    plain = cli("stats").stdout.splitlines()
    told = json.loads(cli("stats", "--json").stdout)

    assert "ready\temail\t3" in plain
    assert "scheduled\temail\t1" in plain
    assert "expired\tfax\t1" in plain
    assert told["unfinished"]["email"]["ready"] == 3
    assert told["ended"]["expired"] == {"fax": 1}
