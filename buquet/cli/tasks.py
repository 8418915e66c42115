"""The commands about tasks: submit, status, list, history, cancel, replay, resubmit, archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Annotated

import typer
from attrs import asdict, evolve

from buquet.cli import show, tables
from buquet.cli.find import find_id
from buquet.cli.options import (
    AnyTaskIds,
    Delay,
    ExpiresAt,
    Input,
    MaxRetries,
    NewTtl,
    NewType,
    Priority,
    ScheduleAt,
    Statuses,
    TaskId,
    TaskIds,
    Timeout,
    Ttl,
    read_ids,
    read_input,
)
from buquet.cli.program import BROKEN_PIPE, DONE, FAILED, code_of
from buquet.cli.session import Session
from buquet.client.many import ChangeReport, change_many
from buquet.client.queue import Queue
from buquet.client.submit import SubmitOptions
from buquet.core import transitions
from buquet.core.model import Task, TaskStatus
from buquet.errors import BuquetError, Contention, InvalidOptions, StoreError

DEFAULT_LIMIT = 50


def submit(  # noqa: PLR0913 -- each is an option of the command
    session: Session,
    *,
    task_type: NewType,
    given_input: Input = "null",
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    delay: Delay = None,
    schedule_at: ScheduleAt = None,
    priority: Priority = 0,
    max_retries: MaxRetries = 3,
    timeout: Timeout = None,
) -> None:
    """Submit a task and print its id.

    A time such as 2026-12-24T17:00 is local time. With a Z at its end it is UTC.
    """
    options: SubmitOptions = {
        "ttl": ttl,
        "expires_at": expires_at,
        "delay": delay,
        "schedule_at": schedule_at,
        "priority": priority,
        "max_retries": max_retries,
        "timeout_seconds": None if timeout is None else timeout.total_seconds(),
    }
    value = read_input(given_input)
    with session.queue(is_new=True) as queue:
        task = queue.submit(task_type, value, **options)
        with _named_if_output_is_lost([task], "stored"):
            if session.as_json:
                show.say_json(task.to_dict())
            _report_new(session, [task], queue)


def status(session: Session, *, task_id: TaskId) -> None:
    """Show a task: its status, progress, times, input and output."""
    with session.queue() as queue:
        task = _with_lease_of_worker(queue, queue.get(find_id(queue, task_id)))
        progress = queue.ledger.workers.progress(task)
        if session.as_json:
            show.say_json(task.to_dict() | {"progress": tables.progress_as_json(progress)})
        else:
            tables.show_task(task, queue.now(), progress)


def _with_lease_of_worker(queue: Queue, task: Task) -> Task:
    """Return the task with the lease that counts: workers renew theirs in their own records."""
    if task.status is not TaskStatus.RUNNING or task.worker_id is None:
        return task
    record = queue.ledger.workers.read(task.worker_id)
    own = task.lease_expires_at
    if record is None or own is None:
        return task
    return evolve(task, lease_expires_at=max(own, record.lease_expires_at))


def history(session: Session, *, task_id: TaskId) -> None:
    """Show each change of a task."""
    with session.queue() as queue:
        task = queue.get(find_id(queue, task_id))
        if session.as_json:
            show.say_json(task.to_dict()["history"])
        else:
            tables.show_history(task, queue.now())


def list_tasks(
    session: Session,
    *,
    status: Statuses = None,
    task_type: Annotated[
        str | None, typer.Option("--type", "-t", metavar="TYPE", help="Only tasks of this type.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            max=1_000_000_000,
            help=f"How many tasks at most.  [default: {DEFAULT_LIMIT}]",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="All tasks, however many there are.")
    ] = False,
) -> None:
    """List tasks, last changed first, without their payloads."""
    if everything and limit is not None:
        raise InvalidOptions("--all and --limit contradict each other. Give one of them.")
    most = None if everything else DEFAULT_LIMIT if limit is None else limit
    with session.queue() as queue:
        found = queue.list(status or None, task_type)
        shown = islice(found, most)
        if session.as_json:
            rows = [tables.brief(task) for task in shown]
            show.say_json(rows)
            number = len(rows)
        else:
            number = tables.show_tasks(shown, queue.now())
        if number == most and next(found, None) is not None:
            shown_are = f"these are the first {number:,}" if number else "none were asked for"
            show.note(f"There is more: {shown_are}. Use --limit to see more, or --all.")
        elif number == 0 and most != 0:
            show.note("There are no such tasks." if status or task_type else "There are no tasks.")


def cancel(
    session: Session,
    *,
    task_ids: AnyTaskIds = None,
    task_type: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Cancel all tasks of this type instead."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --type: only report what would be done."),
    ] = False,
) -> None:
    """Cancel pending tasks, and ask running ones to stop.

    Whether a running task stops is up to its handler.
    """

    def act(queue: Queue, task_ids: list[str]) -> ChangeReport:
        with queue.hooks.called_after():
            report = change_many(queue.ledger, task_ids, transitions.cancel, by=None)
        for task in report.changed:
            if task.status is TaskStatus.RUNNING:
                show.note(f"{task.id} is running: its handler has been asked to stop.")
        return report

    if bool(task_ids) == (task_type is not None):
        raise InvalidOptions("Name the tasks to cancel: give ids, or --type TYPE.")
    if task_type is not None:
        _cancel_by_type(session, task_type, dry_run=dry_run)
    elif dry_run:
        raise InvalidOptions("--dry-run works only with --type.")
    else:
        _change_each(session, task_ids or [], act)


def _cancel_by_type(session: Session, task_type: str, *, dry_run: bool) -> None:
    with session.queue() as queue:
        report = queue.cancel_by_type(task_type, dry_run=dry_run)
    if session.as_json:
        show.say_json({"dry_run": dry_run} | asdict(report))
    else:
        cancelled, asked = len(report.cancelled), len(report.requested)
        show.say(
            f"{show.count(cancelled, 'task')} {'would be ' if dry_run else ''}cancelled; "
            f"{asked:,} running {'would be ' if dry_run else ''}asked to stop."
        )
    for batch_id, text in report.errors.items():
        show.note(f"buquet: batch {batch_id}: {show.clean(text)}")
    _end(FAILED if report.errors else 0)


def replay(
    session: Session, *, task_ids: TaskIds, ttl: NewTtl = None, expires_at: ExpiresAt = None
) -> None:
    """Make failed or cancelled tasks pending again, under the same ids.

    A task whose deadline has passed needs a new one. An expired task can't be replayed: resubmit
    it.
    """
    _change_each(
        session,
        task_ids,
        lambda queue, ids: queue.replay_many(ids, ttl=ttl, expires_at=expires_at),
    )


def archive(session: Session, *, task_ids: TaskIds) -> None:
    """Archive tasks that have ended.

    They leave the lists of failed, cancelled and expired tasks.
    """
    _change_each(session, task_ids, lambda queue, ids: queue.archive_many(ids))


def resubmit(
    session: Session,
    *,
    task_ids: TaskIds,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    delay: Delay = None,
    schedule_at: ScheduleAt = None,
) -> None:
    """Submit copies of tasks that have ended, and print the new ids.

    A copy has the type, input and options of the old task, but not its deadline or schedule.
    """
    options: SubmitOptions = {
        "ttl": ttl,
        "expires_at": expires_at,
        "delay": delay,
        "schedule_at": schedule_at,
    }
    with session.queue() as queue:
        made, code = _change(queue, task_ids, lambda ids: queue.resubmit_many(ids, **options))
        with _named_if_output_is_lost(made, "stored"):
            if session.as_json:
                show.say_json([task.to_dict() for task in made])
            _report_new(session, made, queue)
    _end(code)


# --- what they share


def _report_new(session: Session, tasks: Sequence[Task], queue: Queue) -> None:
    """Print the ids of new tasks, and warn of those that are too late already."""
    now = queue.now()
    for task in tasks:
        if not session.as_json:
            show.say(task.id)
        if task.is_expired_at(now):
            show.note(f"{task.id} will never run: its deadline has passed.")
        elif task.expires_at is not None and show.terminal():
            show.note(f"It must start by {show.when(task.expires_at, now)}.")


def _change_each(
    session: Session, typed: list[str], act: Callable[[Queue, list[str]], ChangeReport]
) -> None:
    """BulkChange tasks, show them, and exit with the right code."""
    with session.queue() as queue:
        changed, code = _change(queue, typed, partial(act, queue))
        with _named_if_output_is_lost(changed, "changed"):
            if session.as_json:
                show.say_json([tables.brief(task) for task in changed])
            else:
                tables.show_tasks(changed, queue.now())
    _end(code)


def _change(
    queue: Queue, typed: list[str], act: Callable[[list[str]], ChangeReport]
) -> tuple[Sequence[Task], int]:
    """BulkChange tasks; return those that were changed, and the exit code.

    The error of a lone task is raised, since its exit code says more.
    """
    ids, errors = _find_ids(queue, read_ids(typed))
    report = act(ids)
    errors += report.errors.values()
    if len(errors) == 1 and not report.changed:
        raise errors[0]
    for error in errors:
        show.note(f"buquet: {show.clean(error)}")
    of_store = [each for each in errors if isinstance(each, StoreError)]
    away = [each for each in of_store if not isinstance(each, Contention)]
    return report.changed, code_of(away[0]) if away else FAILED if errors else DONE


def _find_ids(queue: Queue, typed: list[str]) -> tuple[list[str], list[BuquetError]]:
    found: list[str] = []
    errors: list[BuquetError] = []
    for each in typed:
        try:
            found.append(find_id(queue, each))
        except StoreError:
            raise
        except BuquetError as error:
            errors.append(error)
    return found, errors


@contextmanager
def _named_if_output_is_lost(tasks: Sequence[Task], done: str) -> Iterator[None]:
    """Name the tasks on stderr if stdout can't be written: they are changed all the same."""
    try:
        yield
        show.flush()
    except (show.OutputLost, BrokenPipeError) as error:
        show.discard_output()
        reason = error if isinstance(error, show.OutputLost) else "nobody reads it"
        ids = " ".join(task.id for task in tasks)
        if tasks:
            number = show.count(len(tasks), "task was", "tasks were")
            show.note(f"buquet: stdout can't be written ({reason}), but {number} {done}: {ids}")
        code = BROKEN_PIPE if isinstance(error, BrokenPipeError) else FAILED
        raise typer.Exit(code) from None


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
