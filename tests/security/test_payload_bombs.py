"""What is small in memory and without end as JSON is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from buquet import PayloadTooLarge, TaskStatus
from buquet.core.codec import PAYLOAD_LIMIT, payload_size
from tests.helpers import World


def doubled(value: Any, times: int) -> Any:
    for _ in range(times):
        value = [value, value]
    return value


def doubled_in_objects(times: int) -> Any:
    value: Any = 0
    for _ in range(times):
        value = {"a": value, "b": value}
    return value


TEXT = "x" * 200_000
BOMBS = {
    "lists that hold a list twice": doubled([0], 99),
    "empty lists that hold a list twice": doubled([], 99),
    "tuples": doubled((None,), 99),
    "objects that hold an object twice": doubled_in_objects(99),
    "a long text, thousands of times": [TEXT] * 100_000,
    "a long name, thousands of times": [{TEXT: 0}] * 100_000,
    "a long number, thousands of times": [10**4299] * 100_000,
    "a million of nothing": [None] * 1_000_000,
}


@pytest.mark.parametrize("what", BOMBS)
@pytest.mark.timeout(20)
def test_a_payload_that_grows_without_end_is_refused_where_it_passes_the_limit(what: str) -> None:
    with pytest.raises(PayloadTooLarge, match="input is at least") as refused:
        payload_size(BOMBS[what], "input")

    assert PAYLOAD_LIMIT < refused.value.size < PAYLOAD_LIMIT + len(TEXT) + 100


@pytest.mark.timeout(20)
def test_a_handler_that_returns_a_bomb_fails_and_the_worker_goes_on() -> None:
    world = World()
    queue, worker = world.queue(), world.worker()
    worker.task("bomb")(lambda input: doubled([0], 99))
    bomb, other = queue.submit("bomb"), queue.submit("ok")

    worker.drain()

    assert "PermanentError: output is at least" in (queue.get(bomb.id).last_error or "")
    assert queue.get(other.id).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("value", [7, 8, 9, 10, 15, 16, 99, 100, 127, 128, 255, 256, 999, 10**50])
def test_what_is_counted_is_never_more_than_the_size(value: int) -> None:
    """So nothing that fits is refused."""
    count = (PAYLOAD_LIMIT - 2) // (len(str(value)) + 1)

    assert payload_size([value] * count, "input") <= PAYLOAD_LIMIT
