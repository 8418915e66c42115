"""The command line, in this process and in one of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from buquet import Queue, connect
from buquet.cli.app import app

WORKER_MODULE = """
from buquet import PermanentError, Worker, connect

queue = connect()
worker = Worker(queue, threads=2)
number = 3

@worker.task("good")
def good(input):
    return {"got": input}

@worker.task("bad")
def bad(input):
    raise PermanentError("no such customer")

@worker.task("slow")
def slow(input):
    print("begun", flush=True)
    queue.store.clock.sleep(input)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a queue in a file."""
    return f"sqlite:///{tmp_path / 'queue.db'}"


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """The same queue, for looking at what a command has done."""
    with connect(url) as queue:
        yield queue


@pytest.fixture
def cli(url: str) -> Iterator[Callable[..., Any]]:
    """Run a command in this process, on the queue; the result has exit_code, stdout, stderr."""
    level = logging.getLogger("buquet").level

    def run(*args: str, input: str | bytes | None = None) -> Any:
        return CliRunner().invoke(app, list(args), input=input, env={"BUQUET_URL": url})

    yield run
    logging.getLogger("buquet").setLevel(level)


@pytest.fixture
def environment(url: str) -> dict[str, str]:
    """The environment for a process of its own."""
    # UTC, so that what a test says of local time holds everywhere.
    return {**os.environ, "BUQUET_URL": url, "TZ": "UTC", "COLUMNS": "80"}


@pytest.fixture
def process(environment: dict[str, str], tmp_path: Path) -> Callable[..., Any]:
    """Run a command in a process of its own, in the folder of the queue."""

    def run(*args: str, env: dict[str, str] | None = None, **options: Any) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "buquet", *args],
            env=environment | (env or {}),
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
            **{"text": True} | options,
        )

    return run


@pytest.fixture
def worker_module(tmp_path: Path) -> str:
    """A module `jobs` with a worker, in the folder of the queue."""
    (tmp_path / "jobs.py").write_text(WORKER_MODULE)
    return "jobs:worker"
