"""G1, G8: nothing is stored that can't be read again, whatever a caller or a handler hands over."""

from __future__ import annotations

from typing import Any

import pytest

from buquet import ConfigurationError, InvalidOptions, Queue, RetryPolicy, TaskStatus
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("by", [123, b"me", ("a", "b")])
def test_a_name_that_is_no_text_is_refused_before_anything_is_stored(world: World, by: Any) -> None:
    queue = Queue(world.store, by=by)

    with pytest.raises(InvalidOptions, match="by must be text"):
        queue.submit("ok")

    assert world.batches() == []


@pytest.mark.parametrize("act", ["cancel", "mark_expired", "archive", "replay"])
def test_an_act_under_a_name_that_is_no_text_changes_nothing(world: World, act: str) -> None:
    queue = world.queue()
    task = queue.submit("ok")
    by: Any = 123

    with pytest.raises(InvalidOptions, match="by must be text, not 123"):
        getattr(queue, act)(task.id, by=by)

    assert queue.get(task.id) == task


def test_a_factor_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="factor"):
        RetryPolicy(factor=10**400)


def test_what_a_handler_does_to_the_input_in_its_context_does_not_reach_the_store(
    world: World,
) -> None:
    queue = world.queue()
    worker = world.worker(queue)

    @worker.task("grabs")
    def _(input: Any, context: Any) -> None:
        context.task.input["seen"] = {1, 2}  # and that is not even JSON

    task = queue.submit("grabs", {"a": [1]})
    worker.drain()

    ended = queue.get(task.id)
    assert (ended.status, ended.input) == (TaskStatus.COMPLETED, {"a": [1]})
