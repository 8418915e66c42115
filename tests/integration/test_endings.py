"""A worker process ends on time, whatever the code of its user has left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

import pytest

from buquet import connect
from tests.integration.processes import await_true

MODULE = """
import logging, multiprocessing, os, pathlib, threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from buquet import Worker, connect

worker = Worker(connect(), threads=1, grace=timedelta(seconds=1), sweep_interval=None, check=False)
executor = ThreadPoolExecutor(1)

def hang():
    threading.Event().wait()

def leave_thread():
    threading.Thread(target=hang, daemon=False).start()

def leave_executor():
    executor.submit(hang)

def leave_child():
    multiprocessing.get_context("fork").Process(target=hang).start()

def leave_hook():
    worker.on_shutdown(hang)

def leave_stderr():
    for _ in range(20):
        logging.getLogger("app").warning("x" * 10_000)

@worker.task("job")
def job(what):
    globals()["leave_" + what]()
    pathlib.Path(os.environ["RUNS"], str(os.getpid())).touch()
"""

LEFTOVERS = ["thread", "executor", "child", "hook", "stderr"]
MODES = ["alone", "--processes=1", "--reload", "--burst", "--max-tasks=1"]
LONGEST = 1 + 10 + 5
"""Seconds: the grace period, what follows it, and some more for a machine that is busy."""

QUICK = {("thread", "alone"), ("executor", "--processes=1"), ("stderr", "--burst")}
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.long)
    for case in product(LEFTOVERS, MODES)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    (tmp_path / "jobs.py").write_text(MODULE)
    return tmp_path


@contextmanager
def worker_in(folder: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker whose stderr nobody reads."""
    environment = dict(os.environ) | {
        "BUQUET_URL": f"sqlite:///{folder / 'queue.db'}",
        "RUNS": str(folder / "runs"),
        "PYTHONWARNINGS": "ignore",
    }
    more = [] if mode == "alone" else [mode]
    process = subprocess.Popen(
        [sys.executable, "-m", "buquet", "worker", "jobs:worker", *more],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        for pid in [process.pid, *ran_in(folder)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        assert process.stderr is not None
        process.stderr.close()


def ran_in(folder: Path) -> set[int]:
    """The processes that have run a task."""
    return {int(path.name) for path in (folder / "runs").iterdir()}


def is_gone(pid: int) -> bool:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text()
        return status.rsplit(")", 1)[1].split()[0] == "Z"
    return True


@pytest.mark.parametrize(("leftover", "mode"), CASES)
def test_a_worker_process_ends_within_its_grace(folder: Path, leftover: str, mode: str) -> None:
    with connect(f"sqlite:///{folder / 'queue.db'}") as queue:
        queue.submit("job", leftover)
        with worker_in(folder, mode) as process:
            await_true(lambda: ran_in(folder), 30)
            first = ran_in(folder)
            if mode == "--reload":
                (folder / "jobs.py").write_text(MODULE + "# changed\n")
                await_true(lambda: all(map(is_gone, first)), LONGEST)
            if mode not in ("--burst", "--max-tasks=1"):
                process.send_signal(signal.SIGTERM)
            process.wait(LONGEST)

            assert all(map(is_gone, first))
