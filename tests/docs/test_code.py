"""The code in the documents runs as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from buquet import Queue, Task, TaskStatus, WaitTimeout, Worker, connect
from tests.docs.reading import DOCUMENTS, README, blocks, name_of, shown
from tests.s3_servers import S3Server

BUCKET = "my-queue"

PROMISED = """
from datetime import datetime, timedelta
from buquet import connect, PermanentError, RescheduleError, TaskStatus, Worker

queue = connect(bucket="my-queue")                       # or "s3://my-queue/prefix", "sqlite:///queue.db"
task = queue.submit("send_reminder", {"user_id": "123"}, expires_at=datetime(2026, 12, 24, 17, 0))
task = queue.submit("process_event", {"event_id": "456"}, ttl=timedelta(hours=1))
task = queue.submit("quick_task", {"data": "..."}, ttl_seconds=300)
tasks = queue.submit_many([("send_email", {"to": to}) for to in addresses], ttl_seconds=3600)
task = queue.submit("meeting_reminder", data, schedule_at=five, expires_at=six)

task = queue.get(task.id)
if task.status == TaskStatus.Expired: print(task.expired_at)
if task.expires_at: print("expires in", task.expires_at - queue.now())
task.is_expired_at(queue.now()); queue.mark_expired(task.id); queue.history(task.id); queue.wait(task.id, timeout=30)

worker = Worker(queue, threads=8)

@worker.task("process")
def process(input, context):
    if context.task.expires_at and context.remaining() < timedelta(minutes=1):
        raise PermanentError("about to expire, giving up")
    if busy():
        raise RescheduleError(delay_seconds=60, extend_expiration_seconds=120)
    return {"done": True}

worker.run()
"""  # noqa: E501 -- as it was promised, to the letter

CONNECT = 'connect(bucket="my-queue")'
"""The expression that opens the queue in the promised code: all in it that depends on the store."""


@define
class Stage:
    """Where code runs: a store, the expression that opens it, and the test's own queue on it."""

    connect: str
    """The expression that opens a queue here."""
    queue: Queue
    names: dict[str, Any] = field(factory=lambda: {"__name__": "__main__"})

    def play(self, code: str) -> None:
        """Run code, on this stage's store."""
        assert CONNECT in code
        exec(compile(code.replace(CONNECT, self.connect), "<code>", "exec"), self.names)


@pytest.fixture
def sqlite_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A folder in which `sqlite:///queue.db` is an empty queue."""
    monkeypatch.chdir(tmp_path)
    with connect("sqlite:///queue.db") as queue:
        yield Stage('connect("sqlite:///queue.db")', queue)


@pytest.fixture
def s3_stage(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A server on which `my-queue` is an empty bucket."""
    monkeypatch.setenv("BUQUET_ENDPOINT_URL", moto.endpoint)
    client = moto.client()
    client.create_bucket(Bucket=BUCKET)
    try:
        with connect(bucket=BUCKET) as queue:
            yield Stage(CONNECT, queue)
    finally:
        left = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        for each in left:
            client.delete_object(Bucket=BUCKET, Key=each["Key"])
        client.delete_bucket(Bucket=BUCKET)
        client.close()


@pytest.fixture(params=["sqlite", "s3"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage on each kind of store."""
    made: Stage = request.getfixturevalue(f"{request.param}_stage")
    return made


class Visitors:
    """Submits tasks for the handler of the promised code, and stops its worker in the end.

    The tasks come one after another, since the handler can't tell them apart.

    Args:
        stage: where the code runs.
        task_type: the type that its handler is for.
    """

    def __init__(self, stage: Stage, task_type: str) -> None:
        self._stage = stage
        self._task_type = task_type
        self._asked: list[bool] = []
        self._refused = threading.Event()
        self._is_over = False

    def busy(self) -> bool:
        """Return True on the first call only."""
        self._asked.append(not self._asked)
        if self._asked[-1]:
            self._refused.set()
        return self._asked[-1]

    def come(self) -> dict[str, Task]:
        """Submit the tasks, and stop the worker when the last has ended."""
        queue = self._stage.queue
        try:
            put_off = queue.submit(self._task_type, {"number": 1}, ttl=timedelta(hours=1))
            assert self._refused.wait(60)
            assert not self._is_over
            late = queue.submit(self._task_type, {"number": 2}, ttl_seconds=45)
            done = queue.submit(self._task_type, {"number": 3}, ttl=timedelta(hours=1))
            self._wait_for([late.id, done.id])
        finally:
            worker = self._stage.names.get("worker")
            if isinstance(worker, Worker):
                worker.stop()
        return {"put off": put_off, "late": late, "done": done}

    @contextmanager
    def coming(self) -> Iterator[Future[dict[str, Task]]]:
        """Submit the tasks while the code in the block runs; stop waiting if that fails."""
        with ThreadPoolExecutor(1) as pool:
            came = pool.submit(self.come)
            try:
                yield came
            except BaseException:
                self._is_over = True
                self._refused.set()
                raise

    def _wait_for(self, task_ids: list[str]) -> None:
        for _ in range(60):
            with suppress(WaitTimeout):
                self._stage.queue.wait(task_ids, timeout=1)
                return
            assert not self._is_over
        raise TimeoutError("The worker has not done with the tasks.")


def assert_dealt_with(visitors: dict[str, Task], queue: Queue) -> None:
    """Assert that the handler did with each task what its code says."""
    done = queue.get(visitors["done"].id)
    assert done.result() == {"done": True}

    late = queue.get(visitors["late"].id)
    assert late.status == TaskStatus.Failed
    assert "about to expire, giving up" in (late.last_error or "")

    before, after = visitors["put off"], queue.get(visitors["put off"].id)
    assert after.status == TaskStatus.Pending
    assert [each.event for each in after.history] == ["created", "claimed", "rescheduled"]
    assert before.expires_at is not None
    assert after.expires_at == before.expires_at + timedelta(seconds=120)


def test_the_code_that_was_promised_runs_to_the_letter(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    visitors = Visitors(stage, "process")
    five = datetime.now(UTC) + timedelta(hours=5)
    stage.names.update(
        addresses=["ann@example.org", "bob@example.org"],
        data={"room": 12},
        five=five,
        six=five + timedelta(hours=1),
        busy=visitors.busy,
    )

    with visitors.coming() as came:
        stage.play(PROMISED)

    assert_dealt_with(came.result(), stage.queue)
    # What is known of the store's time is off by up to half a second at first.
    assert capsys.readouterr().out.startswith(("expires in 5:59:", "expires in 6:00:00"))
    reminder = stage.queue.get(stage.names["task"].id)
    assert (reminder.task_type, reminder.status) == ("meeting_reminder", TaskStatus.Expired)
    assert len(stage.names["tasks"]) == 2
    left = {task.task_type for task in stage.queue.list("pending")}
    assert {"process_event", "quick_task", "send_email"} <= left


def test_the_program_and_the_commands_of_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    (commands,) = [each for each in blocks(README, "sh") if "python tasks.py" in each]
    (tmp_path / "tasks.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    run = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    printed = shown(program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[: len(printed)] == printed
    assert 'connect("sqlite:///queue.db")' in program
    with connect(path=tmp_path / "queue.db") as queue:
        ended = Counter((task.task_type, task.status.value) for task in queue.list())
    assert ended == {
        ("send_email", "completed"): 2,
        ("remind", "completed"): 1,
        ("remind", "expired"): 1,
    }


def test_the_program_in_the_readme_handles_each_type_that_it_submits() -> None:
    (program,) = blocks(README, "python")

    handled = re.findall(r'@worker\.task\("(\w+)"', program)
    submitted = re.findall(r'queue\.submit\("(\w+)"', program)

    assert set(submitted) == set(handled) != set()


OTHERS = [path for path in DOCUMENTS if path != README and blocks(path, "python")]


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_the_code_of_a_document_runs_and_prints_what_it_says(
    path: Path,
    moto: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUQUET_URL", "memory:")
    monkeypatch.setenv("BUQUET_ENDPOINT_URL", moto.endpoint)
    code = "\n".join(blocks(path, "python"))

    exec(compile(code, name_of(path), "exec"), {"__name__": "__main__"})

    assert capsys.readouterr().out.splitlines() == shown(code)
