"""Storing new tasks: a batch of them with each write, and several batches at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from buquet import submission
from buquet.errors import SubmitManyError, SubmitUnclear
from buquet.ledger import Ledger
from buquet.model import Task
from buquet.shield import shielded
from buquet.submission import Item, SubmitOptions

SUBMITTERS = 8
"""How many batches are stored at a time when there are many."""


def store(ledger: Ledger, group: list[Item], options: SubmitOptions) -> list[Task]:
    """Store a group of items as one batch.

    Raises:
        SubmitUnclear: if the store broke off and can't be asked whether it is stored.
        StoreError: if it is not stored.
    """
    facts = ledger.facts()
    agreed = submission.terms(options, facts.now)
    batch = submission.batch(ledger.new_batch_id(), group, agreed, facts)
    return list(ledger.create(batch, facts).batch.tasks[: len(group)])


def store_all(
    ledger: Ledger, items: list[Item], batch_size: int, options: SubmitOptions
) -> list[Task]:
    """Store items; return their tasks in the order given.

    Raises:
        SubmitManyError: if it breaks in the middle; it says what is stored.
    """
    stored: list[tuple[int, Task]] = []
    try:
        stored.extend(_pour(ledger, items, batch_size, options))
    except _Broken as broken:
        found = _in_order(stored + broken.stored)
        raise SubmitManyError(found, broken.unclear, len(items)) from broken.__cause__
    return _in_order(stored)


def store_stream(
    ledger: Ledger, items: Iterable[Item], batch_size: int, options: SubmitOptions
) -> Iterator[Task]:
    """Store items while they are being produced, and yield the task of each once it is stored.

    Raises:
        SubmitManyError: if the store fails; `stored` are those that were not yielded.
    """
    with closing(_pour(ledger, items, batch_size, options)) as poured:
        try:
            for _, task in poured:
                yield task
        except _Broken as broken:
            found = _in_order(broken.stored)
            raise SubmitManyError(found, broken.unclear, broken.total) from broken.__cause__


def _pour(
    ledger: Ledger, items: Iterable[Item], batch_size: int, options: SubmitOptions
) -> Generator[tuple[int, Task]]:
    """Store items batch by batch, several at a time; yield number and task in that order."""
    groups = submission.groups(items, batch_size)
    waiting: deque[tuple[list[Item], Future[list[Task]]]] = deque()
    with ThreadPoolExecutor(SUBMITTERS, "buquet-submit") as pool:
        try:
            for group in groups:
                with shielded():
                    waiting.append((group, pool.submit(store, ledger, group, options)))
                if len(waiting) >= 2 * SUBMITTERS:
                    yield from _stored(waiting)
        except _Broken:
            raise
        except Exception:  # the source broke off: what came before it is stored all the same
            while waiting:
                yield from _stored(waiting)
            raise
        while waiting:
            yield from _stored(waiting)


def _stored(
    waiting: deque[tuple[list[Item], Future[list[Task]]]],
) -> Iterator[tuple[int, Task]]:
    """Wait for the first of the writes under way, and give out what it stored."""
    group, future = waiting[0]
    with shielded():
        future.exception()  # waits
    if future.exception() is not None:
        raise _broken(waiting) from future.exception()
    waiting.popleft()
    for item, task in zip(group, future.result(), strict=True):
        yield item.number, task


class _Broken(Exception):
    """One of many writes failed: what became of those that were under way with it."""

    def __init__(self, stored: list[tuple[int, Task]], unclear: list[str], total: int) -> None:
        super().__init__(stored, unclear, total)
        self.stored = stored
        self.unclear = unclear
        self.total = total


def _broken(waiting: deque[tuple[list[Item], Future[list[Task]]]]) -> _Broken:
    """Tell what became of the writes under way when one of them failed."""
    stored: list[tuple[int, Task]] = []
    unclear: list[str] = []
    for group, future in waiting:
        match future.exception():
            case None:
                stored.extend(zip((item.number for item in group), future.result(), strict=True))
            case SubmitUnclear() as error:
                unclear.extend(error.task_ids)
    last = max(item.number for group, _ in waiting for item in group)
    return _Broken(stored, unclear, last + 1)


def _in_order(stored: list[tuple[int, Task]]) -> list[Task]:
    return [task for _, task in sorted(stored, key=lambda pair: pair[0])]
