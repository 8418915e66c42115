"""Whatever is given as an input comes back as it was, on each store, or is refused by its path."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import pathlib
import uuid
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buquet import InvalidPayload, Queue, Worker, connect
from buquet.core.codec import MAX_DIGITS
from buquet.testing.clock import START
from tests.fuzz.documents import ODD_TEXTS, ODD_VALUES
from tests.fuzz.effort import examples


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.StrEnum):
    RED = "red"


class Text(str):
    """Text with more to it."""

    __slots__ = ()


class Number(float):
    """A number with a word of its own for itself."""

    def __repr__(self) -> str:
        return "a number"


class Liar(dict[str, Any]):
    """An object that shows other things than it holds."""

    def __iter__(self) -> Iterator[str]:
        return iter(["not", "there"])


STRANGE = st.sampled_from(
    [
        *(b"x", bytearray(b"x"), {1}, frozenset(), 1j, object(), len, int, ..., range(3)),
        *(START, dt.date(2026, 1, 1), dt.timedelta(1), decimal.Decimal(1)),
        *(uuid.UUID(int=0), pathlib.PurePath("/"), deque([1]), UserDict(a=1), ValueError("x")),
        *(Level.HIGH, Colour.RED, Text("x"), Number(1.5), True, -0.0, 10 ** (MAX_DIGITS - 1)),
        *(OrderedDict(a=1), defaultdict(list, a=[]), memoryview(b"x"), float("nan"), "\udc80"),
        Liar(a=1),
    ]
)
KEYS = ODD_TEXTS | st.sampled_from([Text("k"), Colour.RED, 1, None, True, 1.5, (), b"k"])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    STRANGE | ODD_VALUES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=8,
)


def arrives_as(sent: Any, got: Any) -> bool:
    """Tell whether a value is what another is as JSON: tuples are lists, and kin its plain self."""
    match sent:
        case dict():
            pairs = zip(sent.items(), got.items(), strict=True)
            return type(got) is dict and all(
                arrives_as(name, key) and arrives_as(value, item)
                for (name, value), (key, item) in pairs
            )
        case list() | tuple():
            return type(got) is list and len(got) == len(sent) and all(map(arrives_as, sent, got))
        case None | bool():
            return got is sent
        case float():
            same_sign = math.copysign(1, sent) == math.copysign(1, got)
            return type(got) is float and float(sent) == got and same_sign
        case int():
            return type(got) is int and int(sent) == got
        case _:
            return type(got) is str and str.__str__(sent) == got


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("payloads") / "queue.db"
    with connect("memory:" if request.param == "memory" else f"sqlite:///{path}") as queue:
        yield queue


@given(value=ANYTHING)
@examples(250)
def test_any_value_comes_back_as_it_was_given_or_is_refused_with_its_path(
    queue: Queue, value: Any
) -> None:
    try:
        task = queue.submit("ok", value)
    except InvalidPayload as refused:
        assert refused.path.startswith("input")
        assert str(refused).startswith(refused.path)
        return

    assert arrives_as(value, task.input)
    assert arrives_as(value, queue.get(task.id).input)


@given(value=ANYTHING)
@examples(100)
def test_any_value_that_a_handler_returns_comes_back_or_fails_the_task(value: Any) -> None:
    queue = connect("memory:")
    worker = Worker(queue, check=False)
    worker.task("ok")(lambda _: value)
    task = queue.submit("ok")

    worker.drain()

    done = queue.get(task.id)
    if done.last_error is None:
        assert arrives_as(value, done.result())
    else:
        assert done.last_error.startswith("PermanentError: output")
