"""Storing new tasks: a batch of them with each write, and several batches at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import NoReturn

from attrs import define, field

from buquet.client import submit
from buquet.client.fan_out import FanOut, fan_out
from buquet.client.submit import Item, SubmitOptions
from buquet.core.model import Task
from buquet.errors import SubmitManyError, SubmitUnclear
from buquet.ledger.ledger import Ledger
from buquet.shield import shielded

BATCH_SIZE = 100
"""How many tasks share a write, at the most, unless said otherwise."""

SUBMITTERS = 8
"""How many batches are stored at a time when there are many."""


def store(ledger: Ledger, group: list[Item], options: SubmitOptions) -> list[Task]:
    """Store a group of items as one batch.

    Raises:
        SubmitUnclear: if the store broke off and can't be asked whether it is stored.
        StoreError: if it is not stored.
    """
    facts = ledger.facts()
    agreed = submit.terms(options, facts.now)
    batch = submit.batch(ledger.new_batch_id(), group, agreed, facts)
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
        broken.raise_for(stored, len(items))
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
            broken.raise_for([], broken.total)


def _pour(
    ledger: Ledger, items: Iterable[Item], batch_size: int, options: SubmitOptions
) -> Generator[tuple[int, Task]]:
    """Store items batch by batch, several at a time; yield number and task in that order."""
    groups = submit.groups(items, batch_size)
    waiting: _Waiting = deque()
    try:
        with fan_out(SUBMITTERS, "submit") as out:
            try:
                for group in groups:
                    _begin(out, _Write(ledger, group, options), waiting)
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
    except BaseException as interruption:
        if isinstance(interruption, Exception | GeneratorExit):
            raise
        raise _broken([write for write, _ in waiting]) from interruption


@define(eq=False)
class _Write:
    """A group on its way into the store, and what has become of it."""

    ledger: Ledger
    group: list[Item]
    options: SubmitOptions
    tasks: list[Task] = field(factory=list, init=False)
    unclear: tuple[str, ...] = field(default=(), init=False)

    def __call__(self) -> None:
        """Store it."""
        try:
            self.tasks = store(self.ledger, self.group, self.options)
        except SubmitUnclear as error:
            self.unclear = error.task_ids
            raise

    def stored(self) -> Iterator[tuple[int, Task]]:
        """Return number and task of each that is stored: all, or none."""
        return zip((item.number for item in self.group), self.tasks, strict=False)


_Waiting = deque[tuple[_Write, Future[None]]]


def _begin(out: FanOut, write: _Write, waiting: _Waiting) -> None:
    """Have a write done by a thread.

    Raises:
        _Broken: if no thread can be started.
    """
    try:
        waiting.append((write, out.begin(write)))
    except RuntimeError as error:
        out.stop()  # the write is in line all the same, for the threads that there are
        raise _broken([*(each for each, _ in waiting), write]) from error


def _stored(waiting: _Waiting) -> Iterator[tuple[int, Task]]:
    """Wait for the first of the writes under way, and give out what it stored."""
    write, future = waiting[0]
    with shielded():
        future.exception()  # waits
    if future.exception() is not None:
        for _, other in waiting:
            if not other.cancel():
                other.exception()
        raise _broken([each for each, _ in waiting]) from future.exception()
    waiting.popleft()
    yield from write.stored()


class _Broken(Exception):
    """One of many writes failed: what became of those that were under way with it."""

    def __init__(self, stored: list[tuple[int, Task]], unclear: list[str], total: int) -> None:
        super().__init__(stored, unclear, total)
        self.stored = stored
        self.unclear = unclear
        self.total = total

    def raise_for(self, before: list[tuple[int, Task]], total: int) -> NoReturn:
        """Raise the error for the caller, with what was stored before as well.

        Raises:
            SubmitManyError: if the store failed.
            BaseException: what interrupted it, with a note.
        """
        found = _in_order(before + self.stored)
        cause = self.__cause__
        if cause is not None and not isinstance(cause, Exception):
            cause.add_note(f"Of {total:,} tasks, {len(found):,} were stored by then.")
            raise cause
        raise SubmitManyError(found, self.unclear, total) from cause


def _broken(writes: list[_Write]) -> _Broken:
    """Return what became of the writes under way when one of them failed; all are over."""
    stored = [pair for write in writes for pair in write.stored()]
    unclear = [task_id for write in writes for task_id in write.unclear]
    last = max((item.number for write in writes for item in write.group), default=-1)
    return _Broken(stored, unclear, last + 1)


def _in_order(stored: list[tuple[int, Task]]) -> list[Task]:
    return [task for _, task in sorted(stored, key=lambda pair: pair[0])]
