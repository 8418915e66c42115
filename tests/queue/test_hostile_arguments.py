"""What is no number is refused in words, and makes nobody wait for ever."""

from __future__ import annotations

from typing import Any

import pytest

from buquet import InvalidOptions, Queue, WaitTimeout
from tests.helpers import World


@pytest.fixture
def queue() -> Queue:
    return World().queue()


@pytest.mark.parametrize("limit", [-1, 1.5, "5", 10**30])
def test_a_limit_that_is_no_number_of_tasks_is_refused(queue: Queue, limit: Any) -> None:
    with pytest.raises(InvalidOptions, match="limit must be a whole number"):
        queue.list(limit=limit)


@pytest.mark.parametrize("timeout", [float("nan"), "5", 10**400])
def test_a_timeout_that_is_no_span_of_time_is_refused(queue: Queue, timeout: Any) -> None:
    task = queue.submit("ok")

    with pytest.raises(InvalidOptions, match="timeout must be a number of seconds"):
        queue.wait(task.id, timeout=timeout)


@pytest.mark.parametrize("timeout", [-1, -1e300, float("-inf")])
def test_a_timeout_below_zero_is_up_at_once(queue: Queue, timeout: float) -> None:
    task = queue.submit("ok")

    with pytest.raises(WaitTimeout):
        queue.wait(task.id, timeout=timeout)
