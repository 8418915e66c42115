"""What the workers of the benchmarks run: `buquet worker scripts.bench.worker_app:worker`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import perf_counter

from buquet import Queue, TaskContext, Worker, connect
from scripts.bench.counting import CountingStore
from scripts.bench.processes import NOTES


def note(kind: str, what: str) -> None:
    """Note what happens, and when."""
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
        notes.write(f"{perf_counter()} {kind} {what}\n")


queue = connect()
if NOTES in os.environ:
    queue = Queue(CountingStore(queue.store, note))
worker = Worker(queue)


@worker.task("noop")
def noop(input: int) -> None:
    """Do nothing."""


@worker.task("hold")
def hold(input: None, context: TaskContext) -> None:
    """Go on for ever at the first attempt."""
    note("begun", str(context.attempt))
    if context.attempt == 1:
        threading.Event().wait()
