"""The commands that keep a queue tidy where no worker does: sweep and sweeper."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Annotated

import typer
from attrs import asdict

from buquet.cli import show
from buquet.cli.ending import TIDY_SECONDS, last_resort
from buquet.cli.logs import log_to_stderr
from buquet.cli.options import parse_span
from buquet.cli.program import DONE, FAILED
from buquet.cli.session import Session
from buquet.cli.stats import backlog_as_json
from buquet.cli.stopping import IN_ORDER, StopRequests, hearing
from buquet.cli.tally import counting
from buquet.core.durations import format_duration
from buquet.sweeper import Sweeper, SweepReport

logger = logging.getLogger(__name__)


def sweep(
    session: Session,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Read every batch there is, and repair the index.")
    ] = False,
) -> None:
    """Expire late tasks and recover those of dead workers, once. For cron."""
    # A line for each task that expired would be a long mail from cron.
    log_to_stderr(debug=session.debug, level=logging.WARNING)
    with session.queue() as queue:
        report = Sweeper(queue).sweep_once(full=full)
    counts = asdict(report, filter=lambda attribute, _: attribute.name != "backlog")
    if session.as_json:
        show.say_json({**counts, "backlog": backlog_as_json(report.backlog)})
    else:
        for name, number in counts.items():
            show.say(f"{name}: {number}")
    if report.errors:
        batches = show.count(report.errors, "batch", "batches")
        show.note(f"buquet: {batches} could not be swept. The log above names them.")
        raise typer.Exit(FAILED)


def sweeper(
    session: Session,
    *,
    interval: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_span,
            metavar="DURATION",
            help="Time from one sweep to the next: 60s, 5m.  [default: 60s]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Sweep repeatedly, until SIGTERM or Ctrl-C.

    Workers sweep by themselves. Use this for a queue that has no worker for a while.
    """
    span = timedelta(seconds=60) if interval is None else interval
    if span < timedelta(seconds=1):
        raise typer.BadParameter("--interval must be at least one second")
    log_to_stderr(debug=session.debug)
    with session.queue() as queue, counting(queue) as tally:
        stop = queue.store.clock.event()

        def on_request(count: int) -> None:
            # To end in the middle of a sweep does no harm.
            last_resort.within(TIDY_SECONDS if count == IN_ORDER else 0, DONE)
            stop.set()

        with hearing(StopRequests(on_request)):
            sweeping = Sweeper(queue)
            logger.info("Sweeping every %s.", format_duration(span))
            _log_backlog(sweeping.sweep_once())
            sweeping.run(stop, interval=span)
    logger.info("The sweeper has stopped.")
    if session.as_json:
        show.say_json(dict(tally.events))


def _log_backlog(report: SweepReport) -> None:
    ready = sum(backlog.ready for backlog in report.backlog.values())
    logger.info("%s ready.", show.count(ready, "task"))
