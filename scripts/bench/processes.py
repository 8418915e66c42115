"""Programs run for a measurement, and waiting for what they do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from scripts.bench.settings import REPO

NOTES = "BUQUET_BENCH_NOTES"
"""Names the file in which a worker of the benchmarks notes its requests and attempts, if any."""

PATIENCE_SECONDS = 300
TICK = 0.02


@contextmanager
def worker(environment: Mapping[str, str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of the benchmarks; it is killed at the end."""
    app = "scripts.bench.worker_app:worker"
    process = subprocess.Popen(
        [sys.executable, "-m", "buquet", "worker", app, *options],
        cwd=REPO,
        env=dict(environment),
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_true(is_so: Callable[[], object], what: str) -> None:
    """Look again and again, until something is so.

    Raises:
        TimeoutError: if it takes too long.
    """
    watch = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / TICK)):
        if is_so():
            return
        watch.wait(TICK)
    raise TimeoutError(f"{what}: not within {PATIENCE_SECONDS} seconds.")
