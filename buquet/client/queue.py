"""What a producer or an operator holds: submit tasks, find them, wait for them, change them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self, Unpack, overload

from attrs import evolve

from buquet.client import bulk, cancel, listing, many, metrics, stats, submit, waiting
from buquet.client.cancel import CancelReport
from buquet.client.hooks import Hook, Hooks, register
from buquet.client.many import ChangeReport
from buquet.client.stats import Stats
from buquet.client.submit import SubmitOptions
from buquet.core import keys, transitions
from buquet.core.model import Batch, Progress, Revision, Task, TaskStatus, WorkerRecord
from buquet.core.transitions import Facts, Move
from buquet.errors import CannotResubmit, InvalidOptions, TaskNotFound
from buquet.ledger.ledger import Ledger, task_in
from buquet.store import Store, open_store


class Queue:
    """A task queue in a store. It can be shared by threads, and used after a fork.

    Args:
        store: where the tasks are.
        by: whose name goes into histories; the user and host unless given.
        chance: the source of random ids and jitter, for tests.
    """

    def __init__(
        self, store: Store, *, by: str | None = None, chance: random.Random | None = None
    ) -> None:
        self.store = store
        self.hooks = Hooks()
        self.ledger = Ledger(store, by=by, chance=chance, on_lost_race=metrics.count_lost_race)
        self.ledger.observers += [metrics.observe_commit, self.hooks.observe_commit]

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
        """Call a function with each task that expires by a write made through this queue.

        Of all workers, sweepers and operators, the one whose write expired the task calls its
        hooks, once: after the write, and outside of all locks. What a hook raises is logged.
        Usable as a decorator.
        """
        return register(hook, self.hooks.expired)

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
        item = submit.item(0, task_type, input)
        return bulk.store(self.ledger, [item], options)[0]

    def submit_many(
        self,
        tasks: Iterable[tuple[str, Any]],
        *,
        batch_size: int = bulk.BATCH_SIZE,
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
        submit.check_batch_size(batch_size)
        submit.terms(options, self.now())
        items = list(submit.items(tasks))
        return bulk.store_all(self.ledger, items, batch_size, options)

    def submit_stream(
        self,
        tasks: Iterable[tuple[str, Any]],
        *,
        batch_size: int = bulk.BATCH_SIZE,
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
        submit.check_batch_size(batch_size)
        submit.terms(options, self.now())
        return bulk.store_stream(self.ledger, submit.items(tasks), batch_size, options)

    # --- find

    def get(self, task_id: str) -> Task:
        """Read a task.

        Raises:
            TaskNotFound: if there is none with this id.
        """
        return task_in(self._batch(task_id), task_id)

    def history(self, task_id: str) -> tuple[Revision, ...]:
        """Read what has become of a task: its first change and the last fifty.

        Raises:
            TaskNotFound: if there is none with this id.
        """
        return self.get(task_id).history

    def progress(self, task_id: str) -> Progress | None:
        """Read how far a running task is, as of its worker's last heartbeat.

        It is None if the task is not running, or if its handler has not reported anything.

        Raises:
            TaskNotFound: if there is none with this id.
        """
        return self.ledger.workers.progress(self.get(task_id))

    def list(
        self,
        status: TaskStatus | str | Iterable[TaskStatus | str] | None = None,
        task_type: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Task]:
        """Walk tasks, those that changed last first, reading them as they are asked for.

        Failed, cancelled and expired tasks come by when they ended, and only their batches are
        read; pending and running ones cost a read for each unfinished batch; others a read for
        each batch there is, and come by when their batch last changed. Of several statuses the
        unfinished come first, and then the ended.

        Args:
            status: of these statuses only: one, or several.
            task_type: of this type only.
            limit: how many at most.

        Raises:
            InvalidOptions: if there is no such status, or the limit is no number of tasks.
        """
        if limit is not None and not (isinstance(limit, int) and 0 <= limit <= sys.maxsize):
            raise InvalidOptions(f"limit must be a whole number, 0 or more, not {limit!r}.")
        found = listing.last_changed_first(self.ledger, _statuses(status), task_type)
        return islice(found, limit)

    def stats(self) -> Stats:
        """Count: the unfinished by the index alone, the ended of the last day by their batches."""
        return stats.count(self.ledger)

    def workers(self) -> tuple[WorkerRecord, ...]:
        """Read what the workers said at their last heartbeat, also of those that are gone.

        One that died stays for a while: see `WorkerRecord.is_lapsed_at`.
        """
        return tuple(self.ledger.workers.all())

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
            return waiting.wait_for(self.ledger, (task_ids,), timeout)[0]
        return waiting.wait_for(self.ledger, tuple(task_ids), timeout)

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

    def cancel_many(self, task_ids: Iterable[str], *, by: str | None = None) -> CancelReport:
        """Cancel many tasks, all of a batch with one write; report what became of each.

        Like `cancel`: pending ones at once, running ones by a request. Those that have ended are
        left alone. To do it twice is fine.

        Raises:
            StoreError: if the store can't be reached; some may have been cancelled by then.
        """
        ids = (task_ids,) if isinstance(task_ids, str) else task_ids
        with self.hooks.called_after():
            return cancel.cancel_many(self.ledger, ids, by=by)

    def cancel_by_type(
        self, task_type: str, *, dry_run: bool = False, by: str | None = None
    ) -> CancelReport:
        """Cancel all tasks of a type that have not ended, as `cancel_many` does.

        Their batches are found by the keys of the index alone. Tasks that are submitted meanwhile
        may escape.

        Args:
            task_type: which type.
            dry_run: change nothing, and report what would become of the tasks.
            by: whose name goes into their histories.

        Raises:
            InvalidOptions: if it is no task type.
            StoreError: if the store can't be reached; some may have been cancelled by then.
        """
        with self.hooks.called_after():
            return cancel.cancel_by_type(self.ledger, task_type, by=by, is_dry=dry_run)

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
        return self._change(task_id, _replay(new), by=by, wake=True)

    def replay_many(
        self,
        task_ids: Iterable[str],
        *,
        ttl: timedelta | None = None,
        ttl_seconds: float | None = None,
        expires_at: datetime | None = None,
        by: str | None = None,
    ) -> ChangeReport:
        """Replay many tasks, with one write for each batch.

        The report has the error of each that could not be replayed.

        Raises:
            InvalidOptions: if the new deadline is none.
        """
        new = {"ttl": ttl, "ttl_seconds": ttl_seconds, "expires_at": expires_at}
        submit.deadline(new, self.now())
        return self._change_many(task_ids, _replay(new), by=by, wake=True)

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
        return self.submit(task.task_type, task.input, **submit.like(task, options))

    def resubmit_many(
        self,
        task_ids: Iterable[str],
        *,
        batch_size: int = bulk.BATCH_SIZE,
        **options: Unpack[SubmitOptions],
    ) -> ChangeReport:
        """Resubmit many tasks, a batch of new ones with each write.

        The report has the new tasks, and the error of each that could not be resubmitted.

        Raises:
            InvalidOptions: as `submit` does.
        """
        submit.check_batch_size(batch_size)
        submit.terms(options, self.now())
        return many.resubmit_many(self.ledger, task_ids, options, batch_size=batch_size)

    def archive(self, task_id: str, *, by: str | None = None) -> Task:
        """Lay a task aside that has ended: it leaves the lists of failed and expired tasks.

        Raises:
            TaskNotFound: if there is none with this id.
            CannotArchive: if it has not ended.
        """
        return self._change(task_id, transitions.archive, by=by)

    def archive_many(self, task_ids: Iterable[str], *, by: str | None = None) -> ChangeReport:
        """Archive many tasks, with one write for each batch.

        The report has the error of each that could not be archived.
        """
        return self._change_many(task_ids, transitions.archive, by=by)

    def _change_many(
        self,
        task_ids: Iterable[str],
        move: Move,
        *,
        by: str | None,
        wake: bool = False,
    ) -> ChangeReport:
        with self.hooks.called_after():
            return many.change_many(self.ledger, task_ids, move, by=by, wake=wake)

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
            task_in(batch, task_id)
            mine = evolve(facts, by=by or facts.by)
            return transitions.change_task(
                batch, known_id, mine, lambda task: move(task, mine), wake=wake
            )

        try:
            with self.hooks.called_after():
                loaded = self.ledger.change(keys.batch_id_of_task(known_id), edit)
        except TaskNotFound:
            raise TaskNotFound(task_id) from None
        return task_in(loaded.batch, task_id)

    def _batch(self, task_id: str) -> Batch | None:
        loaded = self.ledger.load(keys.batch_id_of_task(keys.check_task_id(task_id)))
        return loaded.batch if loaded else None


def connect(url: str | None = None, *, by: str | None = None, **options: Any) -> Queue:
    """Open the queue in a store.

    Args:
        url: `s3://bucket/prefix`, `sqlite:///queue.db` or `memory:`; without it and without
            `bucket=`, the environment variable `BUQUET_URL` decides.
        by: whose name goes into histories; the user and host unless given.
        **options: see `open_store`: `bucket=`, `prefix=`, `endpoint_url=`, `client=`, …

    Raises:
        ConfigurationError: saying what to set.
    """
    return Queue(open_store(url, on_request=metrics.count_request, **options), by=by)


def _replay(deadline: Mapping[str, Any]) -> Move:
    def move(task: Task, facts: Facts) -> Task:
        return transitions.replay(task, facts, expires_at=submit.deadline(deadline, facts.now))

    return move


def _statuses(
    status: TaskStatus | str | Iterable[TaskStatus | str] | None,
) -> frozenset[TaskStatus]:
    if status is None:
        return frozenset(TaskStatus)
    given = (status,) if isinstance(status, str) else status
    return frozenset(_status(each) for each in given)


def _status(status: TaskStatus | str) -> TaskStatus:
    try:
        return TaskStatus(status)
    except ValueError:
        known = ", ".join(TaskStatus)
        raise InvalidOptions(f"There is no status {status!r}. There are: {known}.") from None
