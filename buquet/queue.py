"""What a producer or an operator holds: submit tasks, find them, wait for them, change them."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self, Unpack, overload

from attrs import evolve, frozen

from buquet import census, keys, listing, metrics, submission, transitions
from buquet.errors import (
    CannotResubmit,
    InvalidOptions,
    SubmitManyError,
    SubmitUnclear,
    TaskNotFound,
    WaitTimeout,
)
from buquet.ledger import Ledger, Loaded
from buquet.model import Batch, Revision, Task, TaskStatus
from buquet.notices import Hook, Notices
from buquet.store import Store, open_store
from buquet.submission import Item, SubmitOptions
from buquet.transitions import Facts

SUBMITTERS = 8
"""How many batches are stored at a time when there are many."""

FIRST_LOOK = 0.05
LONGEST_LOOK = 2.0
"""Seconds between two looks at a task that is waited for: at first, and at the most."""

STATS_WINDOW = timedelta(days=1)
"""How far back `stats` counts what has ended."""


@frozen
class Stats:
    """How a queue stands."""

    unfinished: dict[str, census.Backlog]
    """What is ready and scheduled, by task type, as counted by the index."""
    running: int
    """Tasks that live workers say they are running, as of their last heartbeat."""
    workers: int
    """Workers that have given a sign of life within their lease."""
    ended: dict[TaskStatus, dict[str, int]]
    """Failed, cancelled and expired tasks of the last day, by status and type."""


class Queue:
    """A task queue in a store. It can be shared by threads, and used after a fork.

    Args:
        store: where the tasks are.
        by: who makes the changes, for histories; the user and host unless given.
        chance: the source of random ids and jitter, for tests.
    """

    def __init__(
        self, store: Store, *, by: str | None = None, chance: random.Random | None = None
    ) -> None:
        self.store = store
        self.ledger = Ledger(store, by=by, chance=chance)
        self._notices = Notices()
        self.ledger.observers += [metrics.observe_commit, self._notices.observe_commit]
        self.ledger.losers.append(metrics.observe_lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections. The queue can be used again; it then connects anew."""
        self.store.close()

    def now(self) -> datetime:
        """Return the store's time, by which deadlines are judged."""
        return self.ledger.now()

    def on_expired(self, hook: Hook) -> Hook:
        """Have a function called with each task that expires by a write made through this queue.

        Of all workers, sweepers and operators, the one whose write expired the task calls its
        hooks, once, in the thread that wrote. What a hook raises is logged. Usable as a decorator.
        """
        self._notices.hooks.append(hook)
        return hook

    # --- submit

    def submit(self, task_type: str, input: Any = None, **options: Unpack[SubmitOptions]) -> Task:
        """Store a task. When this returns, the task will not be lost.

        Args:
            task_type: says which handler runs it.
            input: what the handler gets: any JSON value.
            **options: see `SubmitOptions`.

        Raises:
            TypeError: if there is no such option.
            InvalidOptions: if an option is out of range or contradicts another.
            InvalidPayload: if the input is not JSON, with the path of the culprit.
            PayloadTooLarge: if it is above 256 KiB.
            SubmitUnclear: if the store broke off and can't be asked whether the task is stored.
            StoreError: if it is not stored.
        """
        return self._store([submission.item(0, task_type, input)], options)[0]

    def submit_many(
        self,
        tasks: Iterable[tuple[str, Any]],
        *,
        batch_size: int = 100,
        **options: Unpack[SubmitOptions],
    ) -> list[Task]:
        """Store many tasks, a batch of them with each write; all are checked before any is stored.

        Args:
            tasks: pairs of task type and input.
            batch_size: how many tasks share a write, at the most.
            **options: the same for all; see `SubmitOptions`.

        Returns:
            The tasks, in the order given.

        Raises:
            SubmitManyError: if it breaks in the middle; it says what is stored.
            TypeError: as `submit` does.
            InvalidOptions: as `submit` does.
            InvalidPayload: as `submit` does.
        """
        submission.check_batch_size(batch_size)
        submission.terms(options, self.now())
        items = list(submission.items(tasks))
        stored: list[tuple[int, Task]] = []
        try:
            stored.extend(self._pour(items, batch_size, options))
        except _Broken as broken:
            found = _in_order(stored + broken.stored)
            raise SubmitManyError(found, broken.unclear, len(items)) from broken.__cause__
        return _in_order(stored)

    def submit_stream(
        self,
        tasks: Iterable[tuple[str, Any]],
        *,
        batch_size: int = 100,
        **options: Unpack[SubmitOptions],
    ) -> Iterator[Task]:
        """Store tasks while they are being produced, and yield each once it is stored.

        It works as it is iterated over, in bounded memory however many there are. If a task is
        refused, those before it are still stored and yielded, and then the error is raised.

        Raises:
            SubmitManyError: if the store fails; `stored` are those that were not yielded.
            TypeError: as `submit` does, at once.
            InvalidOptions: as `submit` does.
            InvalidPayload: as `submit` does.
        """
        submission.check_batch_size(batch_size)
        submission.terms(options, self.now())
        return self._stream(submission.items(tasks), batch_size, options)

    def _stream(
        self, items: Iterable[Item], batch_size: int, options: SubmitOptions
    ) -> Iterator[Task]:
        with closing(self._pour(items, batch_size, options)) as poured:
            try:
                for _, task in poured:
                    yield task
            except _Broken as broken:
                found = _in_order(broken.stored)
                raise SubmitManyError(found, broken.unclear, broken.total) from broken.__cause__

    def _pour(
        self, items: Iterable[Item], batch_size: int, options: SubmitOptions
    ) -> Generator[tuple[int, Task]]:
        """Store items batch by batch, several at a time; yield number and task in that order."""
        groups = submission.groups(items, batch_size)
        waiting: deque[tuple[list[Item], Future[list[Task]]]] = deque()
        with ThreadPoolExecutor(SUBMITTERS, "buquet-submit") as pool:
            try:
                for group in groups:
                    waiting.append((group, pool.submit(self._store, group, options)))
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

    def _store(self, group: list[Item], options: SubmitOptions) -> list[Task]:
        facts = self.ledger.facts()
        agreed = submission.terms(options, facts.now)
        batch = submission.batch(self.ledger.new_batch_id(), group, agreed, facts)
        return list(self.ledger.create(batch, facts).batch.tasks[: len(group)])

    # --- find

    def get(self, task_id: str) -> Task:
        """Read a task.

        Raises:
            TaskNotFound: if there is none with this id.
        """
        return _found(self._batch(task_id), task_id)

    def history(self, task_id: str) -> tuple[Revision, ...]:
        """Read what has become of a task: its first change and the last fifty.

        Raises:
            TaskNotFound: if there is none with this id.
        """
        return self.get(task_id).history

    def list(
        self,
        status: TaskStatus | str | None = None,
        task_type: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Task]:
        """Walk tasks, newest first, reading them as they are asked for.

        Failed, cancelled and expired tasks come by when they ended, and only their batches are
        read; pending and running ones cost a read for each unfinished batch; others a read for
        each batch there is.

        Raises:
            InvalidOptions: if there is no such status, or the limit is negative.
        """
        if limit is not None and limit < 0:
            raise InvalidOptions(f"limit must not be negative, and is {limit!r}.")
        found = listing.newest_first(self.ledger, _status(status), task_type)
        return islice(found, limit)

    def stats(self) -> Stats:
        """Count: the unfinished by the index alone, the ended of the last day by their batches."""
        now = self.now()
        entries = (keys.parse_entry(each.key) for each in self.ledger.listing(keys.READY))
        alive = [record for record in self.ledger.workers() if not record.is_lapsed_at(now)]
        return Stats(
            unfinished=census.census((entry for entry in entries if entry), now),
            running=sum(len(record.running) for record in alive),
            workers=len(alive),
            ended=listing.count_ended(self.ledger, now - STATS_WINDOW),
        )

    @overload
    def wait(  # type: ignore[overload-overlap]  # a str is an iterable too: it is taken for an id
        self, task_ids: str, *, timeout: float | timedelta | None = None
    ) -> Task: ...

    @overload
    def wait(
        self, task_ids: Iterable[str], *, timeout: float | timedelta | None = None
    ) -> tuple[Task, ...]: ...

    def wait(
        self, task_ids: str | Iterable[str], *, timeout: float | timedelta | None = None
    ) -> Task | tuple[Task, ...]:
        """Wait until a task has ended, or many have; return what became of it, or of them in order.

        Args:
            task_ids: an id, or many.
            timeout: for how long, in seconds or as a timedelta; None for ever.

        Raises:
            TaskNotFound: if there is none with this id.
            WaitTimeout: if time is up; it says which have not ended.
        """
        if isinstance(task_ids, str):
            return self._wait_for((task_ids,), timeout)[0]
        return self._wait_for(tuple(task_ids), timeout)

    def _wait_for(
        self, task_ids: tuple[str, ...], timeout: float | timedelta | None
    ) -> tuple[Task, ...]:
        span = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        clock = self.store.clock
        end = math.inf if span is None else clock.monotonic() + span
        looks = _Looks(self.ledger, task_ids)
        pause = FIRST_LOOK
        with self._stirred() as stirred:
            while unfinished := looks.look():
                left = end - clock.monotonic()
                if left <= 0:
                    raise WaitTimeout(unfinished, timedelta(seconds=span or 0))
                if stirred.wait(min(pause, left)):
                    stirred.clear()
                else:
                    pause = min(pause * 1.5, LONGEST_LOOK)
        return looks.tasks()

    @contextmanager
    def _stirred(self) -> Iterator[Any]:
        """Give an event that is set by each change made through this very queue."""
        stirred = self.store.clock.event()

        def stir(old: Batch | None, new: Batch) -> None:  # noqa: ARG001 -- an observer
            stirred.set()

        self.ledger.observers.append(stir)
        try:
            yield stirred
        finally:
            self.ledger.observers.remove(stir)

    # --- change

    def cancel(self, task_id: str, *, by: str | None = None) -> Task:
        """Cancel a pending task; ask the handler of a running one to give in.

        Whether a running task takes notice is up to its handler; until then `cancel_requested` is
        set. Cancelling twice is fine.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotCancel: if it has ended otherwise.
        """
        return self._change(task_id, transitions.cancel, by=by)

    def mark_expired(self, task_id: str, *, by: str | None = None) -> Task:
        """Expire a pending task now, whatever its deadline.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotExpire: if it is not pending.
        """
        return self._change(task_id, transitions.mark_expired, by=by)

    def replay(
        self,
        task_id: str,
        *,
        ttl: timedelta | None = None,
        ttl_seconds: float | None = None,
        expires_at: datetime | None = None,
        by: str | None = None,
    ) -> Task:
        """Make a failed or cancelled task pending again; its id is kept, its counters start anew.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotReplay: if it has not failed or been cancelled, or if its deadline has passed and
                no new one is given.
            InvalidOptions: if the new deadline is none.
        """
        new = {"ttl": ttl, "ttl_seconds": ttl_seconds, "expires_at": expires_at}

        def move(task: Task, facts: Facts) -> Task:
            return transitions.replay(task, facts, expires_at=submission.deadline(new, facts.now))

        return self._change(task_id, move, by=by, wake=True)

    def resubmit(self, task_id: str, **options: Unpack[SubmitOptions]) -> Task:
        """Submit a new task of the type, input and options of one that has ended.

        The deadline and schedule are not taken over: give new ones.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotResubmit: if it has not ended.
            BuquetError: as `submit` does.
        """
        task = self.get(task_id)
        if not task.status.is_final:
            raise CannotResubmit(task.id, task.status, "It will still run.")
        merged: SubmitOptions = {**submission.options_of(task), **options}
        return self.submit(task.task_type, task.input, **merged)

    def archive(self, task_id: str, *, by: str | None = None) -> Task:
        """Lay a task aside that has ended: it leaves the lists of failed and expired tasks.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotArchive: if it has not ended.
        """
        return self._change(task_id, transitions.archive, by=by)

    def _change(
        self,
        task_id: str,
        move: Callable[[Task, Facts], Task],
        *,
        by: str | None,
        wake: bool = False,
    ) -> Task:
        known_id = keys.check_task_id(task_id)

        def edit(batch: Batch, facts: Facts) -> Batch:
            _found(batch, task_id)
            mine = evolve(facts, by=by or facts.by)
            return transitions.change_task(
                batch, known_id, mine, lambda task: move(task, mine), wake=wake
            )

        try:
            loaded = self.ledger.change(keys.batch_id_of_task(known_id), edit)
        except TaskNotFound:
            raise TaskNotFound(task_id) from None
        return _found(loaded.batch, task_id)

    def _batch(self, task_id: str) -> Batch | None:
        loaded = self.ledger.load(keys.batch_id_of_task(keys.check_task_id(task_id)))
        return loaded.batch if loaded else None


class _Looks:
    """Looks at many tasks again and again, and reads only batches that have changed."""

    def __init__(self, ledger: Ledger, task_ids: tuple[str, ...]) -> None:
        self._ledger = ledger
        self._task_ids = tuple(keys.check_task_id(task_id) for task_id in task_ids)
        self._loaded: dict[str, Loaded] = {}

    def look(self) -> list[str]:
        """Look once; return the ids of those that have not ended."""
        unfinished = self._unfinished()
        first_of = {keys.batch_id_of_task(task_id): task_id for task_id in reversed(unfinished)}
        for batch_id, task_id in first_of.items():
            known = self._loaded.get(batch_id)
            loaded = self._ledger.load(batch_id, unless=known.etag if known else None)
            if loaded is not None:
                self._loaded[batch_id] = loaded
            elif known is None:
                raise TaskNotFound(task_id)
        return self._unfinished()

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks as they were seen last."""
        return tuple(self._task(task_id) for task_id in self._task_ids)

    def _unfinished(self) -> list[str]:
        return [
            task_id
            for task_id in self._task_ids
            if keys.batch_id_of_task(task_id) not in self._loaded
            or not self._task(task_id).status.is_final
        ]

    def _task(self, task_id: str) -> Task:
        loaded = self._loaded.get(keys.batch_id_of_task(task_id))
        return _found(loaded.batch if loaded else None, task_id)


def connect(url: str | None = None, *, by: str | None = None, **options: Any) -> Queue:
    """Open the queue in a store.

    Args:
        url: `s3://bucket/prefix`, `sqlite:///queue.db` or `memory:`; without it and without
            `bucket=`, the environment variable `BUQUET_URL` decides.
        by: who makes the changes, for histories; the user and host unless given.
        **options: see `open_store`: `bucket=`, `prefix=`, `endpoint_url=`, `client=`, …

    Raises:
        ConfigurationError: saying what to set.
    """
    return Queue(open_store(url, on_request=metrics.count_request, **options), by=by)


def _stored(
    waiting: deque[tuple[list[Item], Future[list[Task]]]],
) -> Iterator[tuple[int, Task]]:
    """Wait for the first of the writes under way, and give out what it stored."""
    group, future = waiting[0]
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


def _found(batch: Batch | None, task_id: str) -> Task:
    task = batch.task(keys.check_task_id(task_id)) if batch else None
    if task is None:
        raise TaskNotFound(task_id)
    return task


def _status(status: TaskStatus | str | None) -> TaskStatus | None:
    try:
        return None if status is None else TaskStatus(status)
    except ValueError:
        known = ", ".join(TaskStatus)
        raise InvalidOptions(f"There is no status {status!r}. There are: {known}.") from None
