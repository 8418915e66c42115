"""The application that celery's producer and its worker share."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter
from typing import Any

from celery import Celery
from celery.signals import worker_ready

app = Celery("celery_tasks", broker=f"redis+socket://{os.environ['BENCH_SOCKET']}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,  # as its guide to optimizing advises for short tasks
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(number: int) -> None:
    """Do nothing."""


@worker_ready.connect
def note_ready(**_: Any) -> None:
    """Note when the worker begins to consume."""
    Path(os.environ["BENCH_READY"]).write_text(str(perf_counter()), "utf-8")
