"""Documents as they are in a bucket, and what may become of them: damaged in every way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from buquet import TaskStatus
from buquet.core import codec, keys
from buquet.core.model import Progress, WorkerRecord
from buquet.testing.clock import START
from tests.core.making import BATCH_ID, make_any, make_batch

BATCH_KEY = keys.batch_key(BATCH_ID)
WORKER_KEY = keys.worker_key("w1")
DEEP = "@deep@"
"""Stands for lists in lists, far too many for `json.dumps`."""

Path = tuple[str | int, ...]


def _batches() -> list[bytes]:
    rich = {"input": {"to": ["ann", 1, 2.5, None, True]}, "ttl": 3600, "timeout_seconds": 9.5}
    every = [make_any(status, number=n, **rich) for n, status in enumerate(TaskStatus)]
    newer = evolve(every[0], extra={"colour": {"r": 1}})
    return [
        codec.encode_batch(make_batch(*every)),
        codec.encode_batch(make_batch(newer, writes=("a1", "b2"), extra={"zone": [1]})),
        codec.encode_batch(make_batch(make_any(TaskStatus.RUNNING))),
    ]


def _worker() -> bytes:
    record = WorkerRecord(
        id="w1",
        host="web-1",
        pid=4711,
        threads=8,
        task_types=("email", "ok"),
        started_at=START,
        heartbeat_at=START,
        lease_expires_at=START + timedelta(seconds=60),
        running=(keys.task_id(BATCH_ID, 1),),
        progress={keys.task_id(BATCH_ID, 1): Progress(0.5, "half", START, extra={"of": 2})},
        counters={"completed": 7},
        extra={"zone": "b"},
    )
    return codec.encode_worker(record)


BATCHES = _batches()
WORKER = _worker()
LOCK = json.dumps({"by": "ann@host", "until": "2026-01-01T12:01:00.000000Z"}).encode()
DOCUMENTS = [*BATCHES, WORKER, LOCK]

ODD_TEXTS = st.sampled_from(
    [
        *("", " ", "x", "null", "\x00", "\x1b[2J", "\ud800", "\udfff", "é", "\U0001f600", "a/b"),
        *("../../x", "pending", "running", "lost", "w1", "nobody", BATCH_ID, BATCH_ID[:-1] + "1"),
        *("2026-01-01T12:00:00Z", "2026-01-01T12:00:00", "0001-01-01T00:00:00+14:00", DEEP),
        *("9999-12-31T23:59:59.999999-14:00", "9999-12-31T23:59:59.999999Z", "2026-13-01"),
        *("1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-W01-1", "20260101", "x" * 3000),
    ]
) | st.text(max_size=8)
ODD_NUMBERS = (
    st.sampled_from([0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**64), 10**12, 10**400, 10**4300 - 1])
    | st.sampled_from([0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf")])
    | st.integers()
    | st.floats()
)
ODD_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Walk the paths of all values in a document, its own first."""
    yield path
    if isinstance(value, dict | list):
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, name))


def at(document: Any, path: Path) -> Any:
    """Return what is at a path."""
    for step in path:
        document = document[step]
    return document


def _replace(draw: st.DrawFn, holder: Any, name: Any, document: Any) -> None:
    holder[name] = draw(ODD_VALUES)


def _swap_in(draw: st.DrawFn, holder: Any, name: Any, document: Any) -> None:
    holder[name] = deepcopy(at(document, draw(st.sampled_from(list(places(document))))))


def _remove(draw: st.DrawFn, holder: Any, name: Any, document: Any) -> None:
    del holder[name]


def _repeat(draw: st.DrawFn, holder: Any, name: Any, document: Any) -> None:
    if isinstance(holder, list):
        holder.insert(name, deepcopy(holder[name]))
    else:
        holder[draw(ODD_TEXTS)] = deepcopy(holder[name])


def _rename(draw: st.DrawFn, holder: Any, name: Any, document: Any) -> None:
    if isinstance(holder, dict):
        holder[draw(ODD_TEXTS | st.sampled_from(["extra", "memo", "tasks"]))] = holder.pop(name)


Change = Callable[[st.DrawFn, Any, Any, Any], None]
CHANGES: list[Change] = [_replace, _replace, _swap_in, _remove, _repeat, _rename]


@st.composite
def changed(draw: st.DrawFn, documents: list[bytes]) -> bytes:
    """Draw a document in which some values have become others, or have gone, or are there twice."""
    document = json.loads(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        found = [path for path in places(document) if path]
        if found:
            *outer, name = draw(st.sampled_from(found))
            draw(st.sampled_from(CHANGES))(draw, at(document, tuple(outer)), name, document)
    text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    levels = draw(st.sampled_from([80, 300, 700, 950, 3000]))
    text = text.replace(f'"{DEEP}"', "[" * levels + "]" * levels)
    return text.encode("utf-8", "surrogatepass")


@st.composite
def broken(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes of which some are missing, are others, or are there twice."""
    body = draw(bodies)
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    middle = draw(st.sampled_from([b"", body[begin:end] * 2]) | st.binary(max_size=6))
    return draw(st.sampled_from([body[:end], body[:begin] + middle + body[end:]]))


def damaged(*documents: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that were one of these documents once, or have never been any."""
    whole = st.sampled_from(documents)
    return changed(list(documents)) | broken(whole) | broken(changed(list(documents))) | st.binary()
