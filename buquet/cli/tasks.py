"""The commands about tasks: submit, status, list, history, cancel, replay, resubmit, archive."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Annotated

import typer
from attrs import asdict

from buquet.cli import show, tables
from buquet.cli.find import find_id
from buquet.cli.options import (
    AnyTaskIds,
    Delay,
    ExpiresAt,
    Input,
    MaxRetries,
    NewType,
    Priority,
    ScheduleAt,
    Status,
    TaskId,
    TaskIds,
    Timeout,
    Ttl,
    read_input,
)
from buquet.cli.program import FAILED, code_of
from buquet.cli.session import Session
from buquet.client.queue import Queue
from buquet.client.submit import SubmitOptions
from buquet.core.model import Task, TaskStatus
from buquet.errors import BuquetError, InvalidOptions, StoreError

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
    """Submit a task; print its id.

    Times without a zone are local time, e.g. 2026-12-24T17:00; with Z they are UTC. A relative
    deadline (--ttl) counts from when the task is due.
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
        if session.as_json:
            show.say_json(task.to_dict())
        _tell_of_new(session, [task], queue)


def status(session: Session, *, task_id: TaskId) -> None:
    """Show a task: its status, progress, times, input and output."""
    with session.queue() as queue:
        task = queue.get(find_id(queue, task_id))
        progress = queue.ledger.workers.progress(task)
        if session.as_json:
            show.say_json(task.to_dict() | {"progress": tables.progress_as_json(progress)})
        else:
            tables.show_task(task, queue.now(), progress)


def history(session: Session, *, task_id: TaskId) -> None:
    """Show what has become of a task, change by change."""
    with session.queue() as queue:
        task = queue.get(find_id(queue, task_id))
        if session.as_json:
            show.say_json(task.to_dict()["history"])
        else:
            tables.show_history(task, queue.now())


def list_tasks(
    session: Session,
    *,
    status: Status = None,
    task_type: Annotated[
        str | None, typer.Option("--type", "-t", metavar="TYPE", help="Only of this type.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=0,
            max=1_000_000_000,
            help=f"How many at the most.  [default: {DEFAULT_LIMIT}]",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="However many there are.")
    ] = False,
) -> None:
    """List tasks, newest first; without their inputs and outputs."""
    if everything and limit is not None:
        raise InvalidOptions("--all and --limit contradict each other. Give one of them.")
    most = None if everything else DEFAULT_LIMIT if limit is None else limit
    with session.queue() as queue:
        found = queue.list(status, task_type)
        shown = islice(found, most)
        if session.as_json:
            rows = [tables.brief(task) for task in shown]
            show.say_json(rows)
            number = len(rows)
        else:
            number = tables.show_tasks(shown, queue.now())
        if number == most and next(found, None) is not None:
            show.note(
                f"There is more: these are the newest {number:,}. See all with --all, "
                "or more with --limit."
            )
        elif number == 0 and most != 0:
            show.note("There are no such tasks." if status or task_type else "There are no tasks.")


def cancel(
    session: Session,
    *,
    task_ids: AnyTaskIds = None,
    task_type: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="TYPE", help="All of this type, instead of ids."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --type: only tell what would be done.")
    ] = False,
) -> None:
    """Cancel pending tasks; ask running ones to give in.

    Whether a running task takes notice is up to its handler.
    """

    def act(queue: Queue, task_id: str) -> Task:
        task = queue.cancel(task_id)
        if task.status is TaskStatus.RUNNING:
            show.note(f"{task.id} is running: its handler has been asked to give in.")
        return task

    if bool(task_ids) == (task_type is not None):
        raise InvalidOptions("Say which tasks: give ids, or --type TYPE.")
    if task_type is not None:
        _cancel_by_type(session, task_type, dry_run=dry_run)
    elif dry_run:
        raise InvalidOptions("--dry-run goes with --type.")
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
            f"{asked:,} running {'would be ' if dry_run else ''}asked to give in."
        )
    for batch_id, text in report.errors.items():
        show.note(f"buquet: batch {batch_id}: {show.clean(text)}")
    _end(FAILED if report.errors else 0)


def replay(
    session: Session, *, task_ids: TaskIds, ttl: Ttl = None, expires_at: ExpiresAt = None
) -> None:
    """Make failed or cancelled tasks pending again.

    They keep their ids. One whose deadline has passed needs a new one; an expired task can't be
    replayed, but submitted anew: see resubmit.
    """
    _change_each(
        session,
        task_ids,
        lambda queue, task_id: queue.replay(task_id, ttl=ttl, expires_at=expires_at),
    )


def archive(session: Session, *, task_ids: TaskIds) -> None:
    """Lay tasks aside that have ended.

    They leave the lists of failed and expired tasks.
    """
    _change_each(session, task_ids, lambda queue, task_id: queue.archive(task_id))


def resubmit(
    session: Session,
    *,
    task_ids: TaskIds,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    delay: Delay = None,
    schedule_at: ScheduleAt = None,
) -> None:
    """Submit new tasks like ones that have ended; print their ids.

    Type, input and options are those of the old task; the deadline and schedule are given anew.
    """
    options: SubmitOptions = {
        "ttl": ttl,
        "expires_at": expires_at,
        "delay": delay,
        "schedule_at": schedule_at,
    }
    with session.queue() as queue:
        made, code = _each(
            queue, task_ids, lambda queue, task_id: queue.resubmit(task_id, **options)
        )
        if session.as_json:
            show.say_json([task.to_dict() for task in made])
        _tell_of_new(session, made, queue)
    _end(code)


# --- what they share


def _tell_of_new(session: Session, tasks: list[Task], queue: Queue) -> None:
    """Print the ids of new tasks; warn of those that are too late already."""
    now = queue.now()
    for task in tasks:
        if not session.as_json:
            show.say(task.id)
        if task.is_expired_at(now):
            show.note(f"{task.id} will never run: its deadline has passed.")
        elif task.expires_at is not None and show.terminal():
            show.note(f"It has to be started by {show.when(task.expires_at, now)}.")


def _change_each(session: Session, task_ids: list[str], act: Callable[[Queue, str], Task]) -> None:
    """Change tasks one after another, show what became of them, and exit with the right code."""
    with session.queue() as queue:
        changed, code = _each(queue, task_ids, act)
        if session.as_json:
            show.say_json([tables.brief(task) for task in changed])
        else:
            tables.show_tasks(changed, queue.now())
    _end(code)


def _each(
    queue: Queue, task_ids: list[str], act: Callable[[Queue, str], Task]
) -> tuple[list[Task], int]:
    """Do something to each of the tasks; return those it was done to, and the exit code."""
    if len(task_ids) == 1:
        return [act(queue, find_id(queue, task_ids[0]))], 0
    done: list[Task] = []
    code = 0
    for typed in task_ids:
        try:
            done.append(act(queue, find_id(queue, typed)))
        except BuquetError as error:
            show.note(f"buquet: {show.clean(error)}")
            if isinstance(error, StoreError):
                return done, code_of(error)
            code = FAILED
    return done, code


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
