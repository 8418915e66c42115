"""The commands that keep a queue tidy: sweep and sweeper; and those that look at it."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer
from attrs import asdict

from buquet.cli import show, standing
from buquet.cli.logs import log_to_stderr
from buquet.cli.options import parse_span
from buquet.cli.program import FAILED
from buquet.cli.session import Session
from buquet.client.queue import Queue
from buquet.clock import Event
from buquet.core.durations import format_duration
from buquet.ledger.ledger import Commit
from buquet.sweeper import Sweeper, SweepReport

logger = logging.getLogger(__name__)


def sweep(
    session: Session,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Look into every batch there is, and mend the index.")
    ] = False,
) -> None:
    """Expire what is late, take back what dead workers left; for cron."""
    # A line for each task that expired would be a long mail from cron.
    log_to_stderr(debug=session.debug, level=logging.WARNING)
    with session.queue() as queue:
        report = Sweeper(queue).sweep_once(full=full)
    counts = asdict(report, filter=lambda attribute, _: attribute.name != "backlog")
    if session.as_json:
        show.say_json({**counts, "backlog": standing.backlog_as_json(report.backlog)})
    else:
        for name, number in counts.items():
            show.say(f"{name}: {number}")
    if report.errors:
        show.note(f"buquet: Batches that could not be swept: {report.errors}. Their ids are above.")
        raise typer.Exit(FAILED)


def sweeper(
    session: Session,
    *,
    interval: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_span,
            metavar="DURATION",
            help="From one sweep to the next: 60, 5m.  [default: 60]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Sweep again and again, until SIGTERM or Ctrl-C.

    Workers do so by themselves; this is for queues that have none for a while.
    """
    span = timedelta(seconds=60) if interval is None else interval
    if span < timedelta(seconds=1):
        raise typer.BadParameter("--interval must be at least a second")
    log_to_stderr(debug=session.debug)
    with session.queue() as queue, _stop_signal(queue) as stop, counting(queue) as counters:
        sweeping = Sweeper(queue)
        logger.info("Sweeping every %s.", format_duration(span))
        _log_backlog(sweeping.sweep_once())
        sweeping.run(stop, interval=span)
    logger.info("The sweeper has stopped.")
    if session.as_json:
        show.say_json(dict(counters))


def stats(session: Session) -> None:
    """Count what waits, runs, and ended badly in the last day."""
    with session.queue() as queue:
        found = queue.stats()
        if session.as_json:
            show.say_json(standing.stats_as_json(found))
        else:
            standing.show_stats(found, queue.now())


# --- what they share


def _log_backlog(report: SweepReport) -> None:
    ready = sum(backlog.ready for backlog in report.backlog.values())
    logger.info("%s ready.", show.count(ready, "task").capitalize())


@contextmanager
def counting(queue: Queue, by: str | None = None) -> Iterator[Counter[str]]:
    """Count what becomes of tasks through this queue."""
    counters: Counter[str] = Counter()
    lock = threading.Lock()

    def observe(commit: Commit) -> None:
        events = Counter(
            revision.event for _, revision in commit.revisions if by is None or revision.by == by
        )
        with lock:
            counters.update(events)

    queue.ledger.observers.append(observe)
    try:
        yield counters
    finally:
        queue.ledger.observers.remove(observe)


@contextmanager
def _stop_signal(queue: Queue) -> Iterator[Event]:
    """Give an event that SIGTERM and SIGINT set."""
    stop = queue.store.clock.event()

    def on_signal(number: int, frame: Any) -> None:  # noqa: ARG001 -- as signal wants it
        # In a thread: the main one may be inside the event's own lock.
        threading.Thread(target=stop.set, name="buquet-stop", daemon=True).start()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before: list[Callable[..., Any] | int | None] = [
        signal.signal(number, on_signal) for number in numbers
    ]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
