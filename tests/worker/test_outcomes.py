"""Whatever is raised around an attempt, its task does not stay running."""

from __future__ import annotations

import contextvars
import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from buquet import RetryPolicy, TaskStatus, Worker
from tests.helpers import World

SOON = RetryPolicy(initial_seconds=1, jitter=0)


@pytest.fixture
def world() -> World:
    return World()


def run_one(world: World, handler: Callable[..., Any], **options: Any) -> Any:
    """Run a task once, and return it."""
    task = world.queue().submit("job", 1, **options)
    worker = Worker(world.queue(seed=2), check=False)
    worker.task("job")(handler)
    worker.drain()
    return world.queue().get(task.id)


class Unprintable(Exception):
    """An error whose text ends the program."""

    def __str__(self) -> str:
        raise SystemExit


def test_an_error_whose_text_cannot_be_had_is_a_failed_attempt(world: World) -> None:
    def handler(input: int) -> None:
        raise Unprintable

    task = run_one(world, handler, max_retries=0)

    assert task.status is TaskStatus.FAILED
    assert task.last_error.startswith("Unprintable: (its text can't be had)")


@pytest.fixture
def logging_that_raises() -> Iterator[None]:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("The log is full.")

    broken = Broken()
    logger = logging.getLogger("buquet.worker.runner")
    logger.addFilter(broken)
    yield
    logger.removeFilter(broken)


@pytest.mark.usefixtures("logging_that_raises")
def test_an_attempt_that_cannot_be_logged_has_failed_all_the_same(world: World) -> None:
    def handler(input: int) -> None:
        raise ValueError

    task = run_one(world, handler, max_retries=1, retry_policy=SOON)

    assert (task.status, task.attempt) == (TaskStatus.PENDING, 1)
    assert "The log is full" in task.last_error


def test_context_variables_of_one_task_are_not_seen_by_the_next(world: World) -> None:
    seen: contextvars.ContextVar[int] = contextvars.ContextVar("seen", default=0)
    found: list[int] = []
    for number in (1, 2):
        world.queue(seed=number).submit("job", number)
    worker = Worker(world.queue(seed=9), check=False)

    @worker.task("job")
    def handler(input: int) -> None:
        found.append(seen.get())
        seen.set(input)

    worker.drain()

    assert found == [0, 0]
    assert seen.get() == 0


def test_no_handler_begins_under_a_lease_that_has_lapsed(world: World) -> None:
    tasks = world.queue().submit_many([("ok", number) for number in range(2)])
    worker = world.worker(world.queue(seed=2), lease=timedelta(seconds=30), threads=1)
    worker._registry.note_duration("ok", 0.001)  # so that both are claimed at once
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    for _ in range(2):
        job = run.dispatcher.next(block=False)
        assert job is not None
        run.do(job)
    world.clock.advance(seconds=31)

    job = run.dispatcher.next(block=False)
    assert job is not None
    run.do(job)

    assert len(world.runs) == 1
    assert TaskStatus.RUNNING not in world.statuses().values()
    assert {task.id for task in tasks} >= set(world.runs)


def test_the_end_of_a_task_in_failed_is_an_error_in_the_log_and_a_retry_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(input: int) -> None:
        raise ValueError("no")

    world.queue().submit("job", 1, max_retries=1, retry_policy=SOON)
    worker = Worker(world.queue(seed=2), check=False)
    worker.task("job")(handler)

    worker.drain()
    world.clock.advance(seconds=2)
    worker.drain()

    said = [each for each in caplog.records if each.name == "buquet.worker.runner"]
    assert [each.levelname for each in said] == ["WARNING", "ERROR"]
    assert "failed on attempt 1 of 2, and is tried again in about 1 s: " in said[0].message
    assert "failed for good, on attempt 2 of 2: ValueError: no" in said[1].message


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda: None, 0),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), 3),
        (lambda: (_ for _ in ()).throw(ValueError()), 1),
    ],
    ids=["returns", "exits", "raises"],
)
def test_a_process_that_a_handler_forked_ends_with_its_handler(
    world: World, end: Callable[[], object], code: int
) -> None:
    children: list[int] = []

    def handler(input: int) -> str:
        pid = os.fork()
        if pid == 0:
            end()
            return "the child's"
        children.append(pid)
        return "the parent's"

    task = run_one(world, handler)

    assert task.output == "the parent's"
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == code


def test_a_process_that_a_startup_hook_forked_is_no_second_worker(world: World) -> None:
    world.queue().submit("ok", 1)
    worker = world.worker(world.queue(seed=2))
    children: list[int] = []

    @worker.on_startup
    def fork() -> None:
        if pid := os.fork():
            children.append(pid)

    worker.drain()

    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert len(world.runs) == 1
