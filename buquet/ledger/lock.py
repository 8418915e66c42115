"""Taking turns: of many processes that would do the same chore, one does it at a time.

It saves work and requests. Nothing is unsafe when two take the same turn.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from attrs import frozen

from buquet.core import codec, keys
from buquet.core.model import rfc3339
from buquet.ledger.compare_and_set import Lost, put_if_unchanged
from buquet.ledger.ledger import Ledger
from buquet.store import Stored


@frozen
class _Seen:
    """The lock as it was seen last."""

    etag: str
    until: datetime
    is_mine: bool


class Lock:
    """A lock object with a lease, and what is known of it: looking at it again costs a request."""

    def __init__(self, ledger: Ledger, chore: str) -> None:
        self._ledger = ledger
        self._key = keys.lock_key(chore)
        self._seen: _Seen | None = None

    def try_acquire(self, span: timedelta) -> bool:
        """Acquire the lock for a span of time, unless somebody else holds it.

        Acquiring it again while more than half of the span is left costs no request.

        Raises:
            StoreError: if the store can't be reached, or refuses the write.
        """
        for _ in range(2):
            now = self._ledger.now()
            seen = self._seen
            # What lies further ahead than a span was written before the clock was set back.
            if seen is not None and now < seen.until <= now + span:
                if not seen.is_mine:
                    return False
                if now + span / 2 < seen.until:
                    return True
            if self._write(seen.etag if seen else None, now + span, span):
                return True
        return False

    def _write(self, etag: str | None, until: datetime, span: timedelta) -> bool:
        body = json.dumps({"by": self._ledger.by, "until": rfc3339(until)}).encode()
        result = put_if_unchanged(
            self._ledger.store, self._key, body, expected=etag, tries=self._ledger.tries
        )
        if isinstance(result, Lost):
            self._seen = self._seen_in(result.current, span)
            return False
        self._seen = _Seen(result, until, is_mine=True)
        return True

    def _seen_in(self, stored: Stored | None, span: timedelta) -> _Seen | None:
        if stored is None:
            return None
        now = self._ledger.now()
        # Nobody holds it for longer than this one would: a process that does the chore once a day,
        # or had a wrong clock, must not keep out those that do it each minute.
        until = min(_until(stored.body, now), now + span)
        return _Seen(stored.etag, until, is_mine=False)


def _until(body: bytes, now: datetime) -> datetime:
    try:
        return max(datetime.fromisoformat(codec.loads(body)["until"]), now)
    except (ValueError, KeyError, TypeError):
        return now  # a lock that can't be read is nobody's
