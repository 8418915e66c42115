"""What a worker remembers of the index, so that it reads no batch in vain."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from buquet.core import index
from buquet.core.batch import Commit
from buquet.ledger.ledger import Ledger

MOST_REMEMBERED = 20_000
"""How many entries' next looks are remembered."""

TIDIED_WITHIN = timedelta(minutes=1)
"""After so long an entry that this process dropped should be gone; one still there is met again."""


class Memory:
    """When each entry next has something for this worker: before that it is not read again."""

    def __init__(self, ledger: Ledger) -> None:
        self.on_sooner: Callable[[datetime], None] = lambda _: None
        """Is told of each moment that becomes known."""
        self._ledger = ledger
        self._looks: dict[str, datetime] = {}
        self._dropped: dict[str, datetime] = {}

    def remember(self, key: str, look: datetime) -> None:
        """Do not look at this entry before then."""
        _keep(self._looks, key, look)
        self.on_sooner(look)

    def on_commit(self, commit: Commit) -> None:
        """Do not look at entries that this process drops: they are deleted in bulk, later."""
        for key in index.to_drop(commit.old, commit.new):
            _keep(self._dropped, key, self._ledger.now() + TIDIED_WITHIN)

    def is_worth_a_look(self, key: str, now: datetime) -> bool:
        """Tell whether an entry may have something to do."""
        look = self._looks.get(key) or self._dropped.get(key)
        return look is None or look <= now

    def next_look(self, now: datetime) -> datetime | None:
        """Return the earliest of all; those that have passed are no longer remembered."""
        looks = dict(self._looks)
        for key in [key for key, look in looks.items() if look <= now]:
            self._looks.pop(key, None)
        return min((look for look in looks.values() if look > now), default=None)


def _keep(looks: dict[str, datetime], key: str, look: datetime) -> None:
    if len(looks) >= MOST_REMEMBERED:
        looks.clear()
    looks[key] = look
