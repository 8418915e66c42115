"""The lease of a worker, and the heartbeat that renews it for all its tasks at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from attrs import evolve

from buquet.clock import Event
from buquet.core.model import Progress, WorkerRecord
from buquet.errors import BuquetError
from buquet.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 3
"""One missed heartbeat is harmless, and so is a second."""


class Lease:
    """Until when the worker's claims hold."""

    def __init__(self, span: timedelta, expires_at: datetime) -> None:
        self.span = span
        self.expires_at = expires_at

    def allows_claims(self, now: datetime) -> bool:
        """Tell whether enough is left of it for a new claim: half."""
        return self.expires_at - now >= self.span / 2

    def has_lapsed(self, now: datetime) -> bool:
        """Tell whether others may take the worker's tasks."""
        return now >= self.expires_at


class Heartbeat:
    """Writes the worker's record every third of the lease.

    Args:
        ledger: where to write.
        record: what does not change about the worker.
        lease: the lease, which each beat renews.
        running: gives the ids of the claimed tasks.
        progress: gives how far those of them are whose handlers have reported.
        on_beat: is called after each beat, to look for cancel requests.
        on_lapsed: is called when the lease could not be renewed in time.
    """

    def __init__(
        self,
        ledger: Ledger,
        record: WorkerRecord,
        lease: Lease,
        *,
        running: Callable[[], Iterable[str]],
        progress: Callable[[], Mapping[str, Progress]],
        on_beat: Callable[[], None],
        on_lapsed: Callable[[], None],
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._ledger = ledger
        self._record = record
        self._lease = lease
        self._running = running
        self._progress = progress
        self._on_beat = on_beat
        self._on_lapsed = on_lapsed
        self._etag: str | None = None
        self._is_told = False

    @property
    def interval(self) -> timedelta:
        """The time between two beats."""
        return self._lease.span / BEATS_PER_LEASE

    def beat(self) -> None:
        """Renew the lease, and tell what the worker is at.

        Raises:
            StoreError: if the record could not be written; the lease is as before.
        """
        now = self._ledger.now()
        until = now + self._lease.span
        self._record = evolve(
            self._record,
            heartbeat_at=now,
            lease_expires_at=until,
            running=tuple(self._running()),
            progress=self._progress(),
            counters=dict(self.counters),
        )
        self._etag = self._ledger.workers.write(self._record, self._etag)
        self._lease.expires_at = until
        self._is_told = False

    def run(self, stop: Event) -> None:
        """Beat until `stop` is set."""
        clock = self._ledger.store.clock
        interval = self.interval.total_seconds()
        pause = interval
        while not stop.wait(pause):
            begun = clock.monotonic()
            try:
                self.beat()
                self._on_beat()
                pause = max(interval - (clock.monotonic() - begun), 0)
            except BuquetError as error:
                # Sooner than usual: two thirds of the lease are left, and then nothing.
                pause = interval / 4
                self._tell_if_lapsed(error)

    def _tell_if_lapsed(self, error: Exception) -> None:
        logger.warning("A heartbeat of worker %s failed: %s", self._record.id, error)
        if self._lease.has_lapsed(self._ledger.now()) and not self._is_told:
            self._is_told = True
            logger.error(
                "Worker %s could not renew its lease: others may take its tasks.", self._record.id
            )
            self._on_lapsed()
