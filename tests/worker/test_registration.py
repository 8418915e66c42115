"""Handlers and hooks that would never run are refused where they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from buquet import ConfigurationError, Queue, Worker
from buquet.store import MemoryStore


async def coroutine(input: Any) -> None:
    """Run nothing when it is called."""


def generator(input: Any) -> Iterator[int]:
    yield 1


async def stream(input: Any) -> AsyncIterator[int]:
    yield 1


class Caller:
    """An object that is called."""

    async def __call__(self, input: Any) -> None:
        """Run nothing when it is called."""


NOT_PLAIN = [
    coroutine,
    generator,
    stream,
    partial(coroutine),
    partial(partial(generator)),
    Caller(),
]
HOOKS = ["on_startup", "on_shutdown", "on_success", "on_error", "on_expired"]


@pytest.fixture
def worker() -> Worker:
    return Worker(Queue(MemoryStore()), check=False)


@pytest.mark.parametrize("function", NOT_PLAIN)
def test_a_handler_that_would_run_nothing_is_refused(
    worker: Worker, function: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigurationError, match="Make it a plain function"):
        worker.task("job")(function)

    assert worker.task_types == ()


@pytest.mark.parametrize("function", NOT_PLAIN)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_would_run_nothing_is_refused(
    worker: Worker, hook: str, function: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigurationError, match="Make it a plain function"):
        getattr(worker, hook)(function)


def test_a_decorator_without_a_task_type_is_refused(worker: Worker) -> None:
    with pytest.raises(ConfigurationError, match=r'Write @worker.task\("send_email"\)'):

        @worker.task  # type: ignore[arg-type]
        def send_email(input: Any) -> None:
            """Never run."""
