"""A connection that breaks before the answer: on a real client, through a real proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from buquet import Queue, TaskStatus, Worker
from tests.proxy import Proxy
from tests.s3_servers import S3Server


@pytest.fixture(params=["moto", "seaweed"])
def proxy(
    request: pytest.FixtureRequest, proxy_for: Callable[[S3Server], Proxy]
) -> Iterator[Proxy]:
    return proxy_for(request.getfixturevalue(request.param))


@pytest.fixture
def queue(proxy: Proxy) -> Iterator[Queue]:
    with Queue(proxy.server.store()) as queue:
        queue.now()
        yield queue


def worker_that_notes(queue: Queue, runs: list[Any]) -> Worker:
    worker = Worker(queue, check=False)

    @worker.task("job")
    def handler(input: Any) -> Any:
        runs.append(input)
        return input

    return worker


@pytest.mark.parametrize("cut", ["drop_answer", "drop_request"])
@pytest.mark.parametrize("part", ["/ready/", "/tasks/"], ids=["entry", "batch"])
def test_a_submit_that_meets_a_broken_connection_stores_one_task(
    proxy: Proxy, queue: Queue, part: str, cut: str
) -> None:
    getattr(proxy, cut)("PUT", part)

    task = queue.submit("job", 1)

    assert [found.id for found in queue.list()] == [task.id]
    assert [found.id for found in queue.list("pending")] == [task.id]


@pytest.mark.parametrize("cut", ["drop_answer", "drop_request"])
def test_a_claim_that_meets_a_broken_connection_is_run_once(
    proxy: Proxy, queue: Queue, cut: str
) -> None:
    task = queue.submit("job", 1)
    runs: list[Any] = []
    getattr(proxy, cut)("PUT", "/tasks/")

    worker_that_notes(queue, runs).drain()

    found = queue.get(task.id)
    assert (found.status, found.attempt) == (TaskStatus.COMPLETED, 1)
    assert runs == [1]


@pytest.mark.parametrize("cut", ["drop_answer", "drop_request"])
def test_a_result_that_meets_a_broken_connection_is_written_once(
    proxy: Proxy, queue: Queue, cut: str
) -> None:
    task = queue.submit("job", 1)
    worker = Worker(queue, check=False)

    @worker.task("job")
    def handler(input: Any) -> str:
        getattr(proxy, cut)("PUT", "/tasks/")
        return "the result"

    worker.drain()

    found = queue.get(task.id)
    assert found.result() == "the result"
    assert [each.event for each in found.history] == ["created", "claimed", "completed"]


@pytest.mark.parametrize("cut", ["drop_answer", "drop_request"])
def test_many_tasks_that_meet_broken_connections_are_stored_once_each(
    proxy: Proxy, queue: Queue, cut: str
) -> None:
    for _ in range(3):
        getattr(proxy, cut)("PUT", "/tasks/")

    tasks = queue.submit_many([("job", number) for number in range(50)], batch_size=10)

    assert sorted(found.id for found in queue.list()) == sorted(task.id for task in tasks)
