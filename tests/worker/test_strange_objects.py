"""What somebody else has put into the bucket ends no worker, no sweep and no list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from buquet import Queue, Task, TaskStatus
from buquet.core.keys import READY, batch_key, new_batch_id, worker_key
from buquet.store import PAGE
from buquet.worker.jobs import Candidate
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def queue(world: World) -> Queue:
    return world.queue()


def rewrite(world: World, task: Task, **fields: Any) -> None:
    """Change fields of a task behind everybody's back."""
    key = batch_key(task.batch_id)
    stored = world.store.get(key)
    assert stored is not None
    document = json.loads(stored.body)
    document["tasks"][0] |= fields
    world.store.put(key, json.dumps(document).encode())


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def record(worker_id: str) -> bytes:
    """The record of a worker that died long ago, as JSON."""
    long_ago = "2020-01-01T00:00:00Z"
    times = dict.fromkeys(("started_at", "heartbeat_at", "lease_expires_at"), long_ago)
    fields = {"id": worker_id, "host": "h", "pid": 1, "threads": 1, "task_types": []}
    return json.dumps(fields | times).encode()


def test_an_entry_due_after_the_end_of_the_calendar_is_passed_over(
    world: World, queue: Queue
) -> None:
    world.store.put(f"{READY}9999999999/{new_batch_id(7)}/1-ab/0/1/-/ok", b"")
    task = queue.submit("ok")

    world.worker().run(burst=True)
    world.sweeper().sweep_once(full=True)

    assert queue.get(task.id).status is TaskStatus.COMPLETED
    assert queue.stats().unfinished == {}


@pytest.mark.parametrize("claimed_id", ["../x", "alive"])
def test_a_worker_record_that_says_another_name_does_no_harm(
    world: World, queue: Queue, claimed_id: str
) -> None:
    world.store.put(worker_key("alive"), record("alive").replace(b"2020-", b"2099-"))
    world.store.put(worker_key("other"), record(claimed_id))
    world.clock.advance(minutes=1)

    world.sweeper().sweep_once()

    assert world.store.get(worker_key("alive")) is not None
    assert queue.stats().workers == 1


def test_a_batch_whose_tasks_are_of_another_type_is_left_as_it_is(
    world: World, queue: Queue
) -> None:
    strange, other = queue.submit("ok"), queue.submit("ok")
    rewrite(world, strange, task_type="email")
    before = world.store.get(batch_key(strange.batch_id))

    world.worker().drain()
    report = world.sweeper().sweep_once()

    assert world.store.get(batch_key(strange.batch_id)) == before
    assert report.errors == 1
    assert queue.get(other.id).status is TaskStatus.COMPLETED


def test_a_payload_too_deep_to_be_written_again_stops_nobody_else(
    world: World, queue: Queue
) -> None:
    deep = queue.submit("ok", ttl_seconds=60)
    rewrite(world, deep, input=nested(450))
    other = queue.submit("ok")
    world.clock.advance(minutes=5)

    report = world.sweeper().sweep_once()
    world.worker().run(burst=True)

    assert report.errors == 1
    assert queue.get(other.id).status is TaskStatus.COMPLETED


def test_a_page_of_strange_keys_hides_nothing_from_later_polls(world: World, queue: Queue) -> None:
    for number in range(PAGE):
        world.store.put(f"{READY}0000000001/strange-{number:04}", b"")
    task = queue.submit("ok")
    world.clock.advance(minutes=30)
    run = world.worker()._new_run()
    found = []

    for _ in range(2):
        run.poller.poll_once()
        candidate = run.dispatcher.next(block=False)
        assert isinstance(candidate, Candidate)
        run.dispatcher.done_reading(candidate)
        found.append(candidate.entry.batch_id)

    assert found == [task.batch_id] * 2
