"""G2: workers are killed in the midst of their tasks, and every task ends."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from buquet import Queue, TaskStatus, connect
from tests.integration.processes import await_running, await_runs, runs_of, worker_process
from tests.s3_servers import S3Server

TOTAL = 200


@pytest.fixture(params=["sqlite", "seaweed"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """What a worker process finds in its environment: a store, and where to note its runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    environment = dict(os.environ) | {"RUNS": str(runs), "GATE": str(tmp_path / "gate")}
    if request.param == "sqlite":
        return environment | {"BUQUET_URL": f"sqlite:///{tmp_path / 'queue.db'}"}
    server: S3Server = request.getfixturevalue("seaweed")
    return environment | server.env | {"BUQUET_URL": server.url()}


def test_killing_a_worker_in_the_midst_of_its_tasks_loses_none(
    environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with connect() as queue:
            check_killing(queue, environment)


def check_killing(queue: Queue, environment: dict[str, str]) -> None:
    # Some single, some in batches; those that wait are being run when the process is killed.
    inputs = [("note", {"number": number, "wait": number % 20 == 19}) for number in range(TOTAL)]
    tasks = queue.submit_many(inputs[:100]) + queue.submit_many(inputs[100:], batch_size=1)
    with worker_process(environment) as victim:
        await_runs(environment, 10)
        await_running(queue)
        victim.send_signal(signal.SIGKILL)
        victim.wait(30)
    begun = runs_of(environment).keys()
    Path(environment["GATE"]).touch()

    with worker_process(environment) as heir:
        ended = queue.wait([task.id for task in tasks], timeout=90)
        heir.send_signal(signal.SIGTERM)
        assert heir.wait(30) == 0

    assert Counter(task.status for task in ended) == {TaskStatus.COMPLETED: TOTAL}
    assert [task.output for task in ended] == list(range(TOTAL))
    held = {task.id for task in ended if "recovered" in {each.event for each in task.history}}
    rerun = {task_id for task_id, pids in runs_of(environment).items() if len(pids) > 1}
    assert rerun, "nothing was running when the worker was killed"
    assert rerun <= held & begun
    assert {task.id for task in ended if task.attempt > 1} == held
