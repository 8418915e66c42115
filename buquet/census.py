"""What the keys of the index tell without a single read: how much is ready, how old, how near."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from attrs import define

from buquet.keys import Entry, minute_of, start_of

NEAR = timedelta(minutes=5)
"""A deadline is near when it is no further away than this."""


@define
class Backlog:
    """The unfinished tasks of one type, as their entries count them.

    An entry counts the tasks that were unfinished when it was written: of a batch that is being
    worked on, some have ended since.
    """

    task_type: str
    ready: int = 0
    """Due now, those that are running included."""
    scheduled: int = 0
    """For later."""
    near_expiration: int = 0
    """In batches with a deadline within the next five minutes."""
    oldest_due_at: datetime | None = None
    """When the oldest of the ready ones was due, to the minute."""

    def count(self, entry: Entry, now: datetime) -> None:
        """Take one entry into account."""
        if entry.minute > minute_of(now):
            self.scheduled += entry.count
        else:
            self.ready += entry.count
            due_at = start_of(entry.minute)
            self.oldest_due_at = min(self.oldest_due_at or due_at, due_at)
        if entry.has_expired_at(now + NEAR) and not entry.has_expired_at(now):
            self.near_expiration += entry.count


def count(found: dict[str, Backlog], entry: Entry, now: datetime) -> None:
    """Take one entry into account, under its task type."""
    found.setdefault(entry.task_type, Backlog(entry.task_type)).count(entry, now)


def census(entries: Iterable[Entry], now: datetime) -> dict[str, Backlog]:
    """Count entries by task type."""
    found: dict[str, Backlog] = {}
    for entry in entries:
        count(found, entry, now)
    return found
