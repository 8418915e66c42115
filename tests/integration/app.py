"""What the worker processes of these tests run: `buquet worker tests.integration.app:worker`."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

from buquet import TaskContext, Worker, connect

queue = connect()
worker = Worker(
    queue,
    threads=4,
    lease=timedelta(seconds=3),
    poll_min=timedelta(seconds=0.05),
    poll_max=timedelta(seconds=0.5),
    sweep_interval=timedelta(seconds=2),
)


@worker.task("note")
def note(input: Any, context: TaskContext) -> Any:
    """Note on disk that an attempt has begun, and keep on until a file says that it may end."""
    runs, gate = Path(os.environ["RUNS"]), Path(os.environ["GATE"])
    (runs / f"{context.task.id}.{context.attempt}.{os.getpid()}").touch()
    while input["wait"] and not gate.exists():
        queue.store.clock.sleep(0.02)
    return input["number"]


@worker.task("sleep")
def sleep(input: Any, context: TaskContext) -> int:
    """Note that an attempt has begun, and take so many seconds."""
    note({"wait": False, "number": 0}, context)
    queue.store.clock.sleep(input)
    return os.getpid()


@worker.task("mixed")
def mixed(input: Any) -> Any:
    """Take the process down if the input is None."""
    if input is None:
        os._exit(9)
    return input


@worker.task("leave_behind")
def leave_behind(input: str) -> None:
    """Start a process whose parent ends before it does."""
    subprocess.run(["sh", "-c", f"({input}) </dev/null >/dev/null 2>&1 &"], check=True)
