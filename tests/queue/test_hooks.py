"""Hooks run after the write and outside of locks; whatever they raise harms nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from buquet import Task
from buquet.client.hooks import Hooks, guarded
from buquet.errors import TaskTimeout
from tests.helpers import World

RAISED = [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit]


def _raiser(error: type[BaseException]) -> Callable[..., None]:
    def failing(*_: Any) -> None:
        raise error("no")

    return failing


@pytest.mark.parametrize("error", RAISED)
def test_a_hook_that_raises_keeps_no_other_from_its_turn_and_is_logged(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    queue = world.queue()
    called: list[str] = []
    queue.on_expired(_raiser(error))
    queue.on_expired(lambda task: called.append(task.id))
    task = queue.submit("ok", 1)

    assert queue.mark_expired(task.id).status == "expired"

    assert called == [task.id]
    assert "failing" in caplog.text
    assert task.id in caplog.text


def test_a_hook_runs_outside_of_the_write_and_its_locks() -> None:
    world = World()
    queue = world.queue()
    seen: list[str] = []
    queue.on_expired(lambda task: seen.append(queue.get(task.id).status))
    queue.on_expired(lambda task: seen.append(_in_thread(lambda: queue.get(task.id).status)))
    task = queue.submit("ok", 1)

    queue.mark_expired(task.id)

    assert seen == ["expired", "expired"]


def test_hooks_of_what_expired_run_though_the_act_itself_was_refused() -> None:
    world = World()
    queue = world.queue()
    called: list[str] = []
    queue.on_expired(lambda task: called.append(task.id))
    task = queue.submit("ok", 1, ttl=timedelta(minutes=1))
    world.clock.advance(minutes=2)

    with pytest.raises(Exception, match="expired"):
        queue.cancel(task.id)

    assert called == [task.id]


def test_each_hook_is_called_once_for_each_task_that_a_sweep_expires() -> None:
    world = World()
    queue = world.queue()
    called: list[str] = []
    queue.on_expired(lambda task: called.append(task.id))
    tasks = queue.submit_many([("ok", n) for n in range(5)], ttl_seconds=60)
    world.clock.advance(minutes=2)

    world.sweeper(queue).sweep_once()
    world.sweeper(queue).sweep_once()

    assert sorted(called) == sorted(task.id for task in tasks)


def test_observing_a_commit_calls_no_hook_before_it_is_time() -> None:
    world = World()
    queue = world.queue()
    called: list[str] = []
    queue.on_expired(lambda task: called.append(task.id))
    task = queue.submit("ok", 1, ttl_seconds=60)
    world.clock.advance(minutes=2)

    queue.ledger.change(task.batch_id, lambda batch, _: batch)

    assert called == []
    queue.hooks.run_pending()
    assert called == [task.id]


def test_what_interrupts_the_thread_and_not_the_hook_goes_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        guarded(_raiser(KeyboardInterrupt))
    with pytest.raises(TaskTimeout):
        guarded(_raiser(TaskTimeout))
    assert _in_thread(lambda: guarded(_raiser(KeyboardInterrupt)) or "went on") == "went on"
    assert caplog.text.count("failing failed") == 3


def test_a_hook_that_is_interrupted_leaves_the_calls_after_it_pending() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    hooks = Hooks()
    called: list[Task] = []
    hooks.collect([_raiser(KeyboardInterrupt), called.append], task)

    with pytest.raises(KeyboardInterrupt):
        hooks.run_pending()
    hooks.run_pending()

    assert called == [task]


def _in_thread(act: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join(10)
    return found[0] if found else "the thread hangs or died"
