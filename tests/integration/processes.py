"""Worker processes, and what they have noted on disk."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from buquet import Queue

REPO = Path(__file__).parents[2]
WORKER = "tests.integration.app:worker"


@contextmanager
def worker_process(
    environment: dict[str, str], *arguments: str, prefix: tuple[str, ...] = (), folder: Path = REPO
) -> Iterator[subprocess.Popen[str]]:
    """Run `buquet worker`; of this very tree unless told otherwise."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "buquet", "worker", *(arguments or [WORKER])],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        sys.stderr.write("".join(process.communicate(timeout=30)))  # shown if the test fails


def end(process: subprocess.Popen[str], within: float = 30) -> str:
    """Wait for a process and all that have its stderr to end; return what they told."""
    _, told = process.communicate(timeout=within)
    return told


def await_true(is_so: Callable[[], object], within: float = 30) -> None:
    """Look again and again, until something is so."""
    watch = threading.Event()
    for _ in range(int(within / 0.02)):
        if is_so():
            return
        watch.wait(0.02)
    raise AssertionError(f"{is_so} is still not so.")


def runs_of(environment: dict[str, str]) -> dict[str, list[str]]:
    """The process ids that ran each task, one for each attempt."""
    found: dict[str, list[str]] = {}
    for path in Path(environment["RUNS"]).iterdir():
        match = re.fullmatch(r"([0-9a-f-]{36})\.(\d+)\.(\d+)", path.name)
        assert match is not None
        found.setdefault(match[1], []).append(match[3])
    return found


def await_runs(environment: dict[str, str], count: int, within: float = 60) -> None:
    """Wait until so many tasks have begun."""
    await_true(lambda: len(runs_of(environment)) >= count, within)


def await_running(queue: Queue) -> None:
    """Wait until a task is seen running."""
    await_true(lambda: any(queue.list("running")), 60)
