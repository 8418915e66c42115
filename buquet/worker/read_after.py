"""When each entry of the index is next worth a read, so that no batch is read in vain."""

from __future__ import annotations

from datetime import datetime, timedelta

from buquet.core import index
from buquet.core.batch import Commit
from buquet.ledger.ledger import Ledger
from buquet.worker.pacer import Pacer

MOST_REMEMBERED = 20_000
"""For how many entries a moment is remembered."""

TIDIED_WITHIN = timedelta(minutes=1)
"""After so long, an entry that this process has dropped and that is still there is read again."""


class ReadAfter:
    """The moment before which the batch of an entry has nothing for this worker.

    Args:
        ledger: for the time.
        pacer: wakes the poll loop in time for these moments.
    """

    def __init__(self, ledger: Ledger, pacer: Pacer) -> None:
        self._ledger = ledger
        self._pacer = pacer
        self._moments: dict[str, datetime] = {}
        self._dropped: dict[str, datetime] = {}
        self._blocked: dict[str, datetime] = {}

    def set(self, key: str, moment: datetime, *, is_blocked: bool = False) -> None:
        """Do not read the batch of this entry before then.

        Args:
            key: the entry.
            moment: when to read it.
            is_blocked: whether it is due already, and only this worker is not free for it.
        """
        _keep(self._moments, key, moment)
        if is_blocked:
            _keep(self._blocked, key, moment)
        self._pacer.wake_by(moment)

    def observe(self, commit: Commit) -> None:
        """Pass over entries that this process drops: they are deleted in bulk, later."""
        for key in index.to_drop(commit.old, commit.new):
            _keep(self._dropped, key, self._ledger.now() + TIDIED_WITHIN)

    def is_over(self, key: str, now: datetime) -> bool:
        """Return whether the batch of an entry may have something to do now."""
        moment = self._moments.get(key) or self._dropped.get(key)
        return moment is None or moment <= now

    def is_blocked(self, key: str, now: datetime) -> bool:
        """Return whether an entry is due that this worker is not free for."""
        return key in self._blocked and self._blocked[key] > now

    def next(self, now: datetime) -> datetime | None:
        """Return the earliest moment to come, and forget those that have passed."""
        moments = dict(self._moments)
        for key in [key for key, moment in moments.items() if moment <= now]:
            self._moments.pop(key, None)
        return min((moment for moment in moments.values() if moment > now), default=None)


def _keep(moments: dict[str, datetime], key: str, moment: datetime) -> None:
    if len(moments) >= MOST_REMEMBERED:
        moments.clear()
    moments[key] = moment
