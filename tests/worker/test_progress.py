"""What a handler reports of its progress, and who gets to know it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from buquet import InvalidOptions, Progress, TaskNotFound, Worker
from buquet.testing import FaultyStore
from buquet.worker.context import PROGRESS_TEXT_LIMIT
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


def run(world: World, handler: Callable[[Any, Worker], Any], **options: Any) -> str:
    """Run one task whose handler gets its context and its worker; return its id."""
    task = world.queue().submit("job", 1, **options)
    worker = Worker(world.queue(seed=2), check=False)
    worker.task("job")(lambda input, context: handler(context, worker))
    worker.drain()
    return task.id


def beat(worker: Worker) -> None:
    assert worker._run is not None
    worker._run.heartbeat.beat()


def test_the_next_heartbeat_tells_others_of_the_progress(world: World) -> None:
    seen: list[Progress | None] = []

    def handler(context: Any, worker: Worker) -> None:
        look = lambda: seen.append(world.queue(seed=3).progress(context.task.id))  # noqa: E731 -- short
        look()
        context.report_progress(0.25, "rows 250 of 1000")
        context.report_progress(0.4, "rows 400 of 1000")
        look()
        beat(worker)
        look()

    begun = world.clock.now()
    task_id = run(world, handler)

    assert seen == [None, None, Progress(0.4, "rows 400 of 1000", begun)]
    assert world.queue().progress(task_id) is None


def test_reporting_costs_no_request(world: World) -> None:
    store = FaultyStore(world.store)
    world.queue().submit("job", 1)
    worker = Worker(world.queue(store, seed=2), check=False)
    spent: list[int] = []

    @worker.task("job")
    def handler(input: Any, context: Any) -> None:
        before = len(store.calls)
        for number in range(1000):
            context.report_progress(number / 1000)
        spent.append(len(store.calls) - before)

    worker.drain()

    assert spent == [0]


@pytest.mark.parametrize(
    "fraction", [-0.01, 1.01, float("nan"), float("inf"), "0.5", None, True], ids=repr
)
def test_a_fraction_out_of_range_is_refused(world: World, fraction: Any) -> None:
    refused: list[str] = []

    def handler(context: Any, worker: Worker) -> None:
        with pytest.raises(InvalidOptions, match="from 0 to 1") as error:
            context.report_progress(fraction)
        refused.append(str(error.value))

    run(world, handler)

    assert len(refused) == 1


def test_a_text_that_is_none_is_refused(world: World) -> None:
    def handler(context: Any, worker: Worker) -> None:
        context.report_progress(0.5, b"half")

    task_id = run(world, handler)

    assert "text must be text" in (world.queue().get(task_id).last_error or "")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("a \ud800 b", "a ? b"),
        ("x" * 10_000, "x" * PROGRESS_TEXT_LIMIT),
        ("Zoë 🚀", "Zoë 🚀"),
    ],
    ids=["none", "surrogate", "long", "unicode"],
)
def test_the_text_is_kept_as_far_as_it_can_be_written_down(
    world: World, text: str, kept: str
) -> None:
    seen: list[Progress | None] = []

    def handler(context: Any, worker: Worker) -> None:
        context.report_progress(1, text)
        beat(worker)
        seen.append(world.queue(seed=3).progress(context.task.id))

    run(world, handler)

    assert [each.text for each in seen if each] == [kept]
    assert [type(each.fraction) for each in seen if each] == [float]


def test_a_new_attempt_does_not_show_the_progress_of_the_one_before(world: World) -> None:
    seen: list[Progress | None] = []

    def handler(context: Any, worker: Worker) -> None:
        if context.attempt == 1:
            context.report_progress(0.9)
            beat(worker)
            world.clock.advance(seconds=1)
            raise ValueError("again")
        seen.append(world.queue(seed=3).progress(context.task.id))

    task = world.queue().submit("job", 1)
    worker = Worker(world.queue(seed=2), check=False)
    worker.task("job")(lambda input, context: handler(context, worker))
    run = worker._new_run()
    run._begin(run.heartbeat.beat)
    for _ in range(4):
        run.poller.poll_once()
        while (job := run.dispatcher.next(block=False)) is not None:
            run.do(job)
        world.clock.advance(seconds=10)

    assert world.queue().get(task.id).attempt == 2
    assert seen == [None]


def test_progress_is_only_of_running_tasks_that_exist(world: World) -> None:
    queue = world.queue()
    task = queue.submit("job", 1, delay=timedelta(hours=1))

    assert queue.progress(task.id) is None
    with pytest.raises(TaskNotFound):
        queue.progress("nonsense")


def test_a_worker_that_has_left_no_record_tells_of_no_progress(world: World) -> None:
    seen: list[Progress | None] = []

    def handler(context: Any, worker: Worker) -> None:
        context.report_progress(0.5)
        beat(worker)
        world.queue().ledger.workers.forget(worker.id)
        seen.append(world.queue(seed=3).progress(context.task.id))

    run(world, handler)

    assert seen == [None]
