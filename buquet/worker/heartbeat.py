"""The heartbeat of a worker renews its lease, for all its claims at once."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta

from attrs import define, evolve, field

from buquet.clock import Event
from buquet.core.model import WorkerRecord
from buquet.errors import BuquetError
from buquet.ledger.ledger import Ledger
from buquet.worker.claims import Claims
from buquet.worker.lease import Lease

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 3
"""One missed heartbeat is harmless, and so is a second."""


@define(eq=False)
class Heartbeat:
    """Writes the worker's record every third of the lease."""

    _ledger: Ledger
    _record: WorkerRecord
    """The record as it was written last."""
    _lease: Lease
    """Each beat renews it."""
    _claims: Claims
    """What the worker is running. Each beat looks for cancel requests."""
    counters: Counter[str] = field(factory=Counter, init=False)
    """What the worker has done, by event; written with each beat."""
    _etag: str | None = field(default=None, init=False)
    _has_lapsed: bool = field(default=False, init=False)

    @property
    def interval(self) -> timedelta:
        """The time between two beats."""
        return self._lease.span / BEATS_PER_LEASE

    def beat(self) -> None:
        """Renew the lease, and report what the worker is running.

        Raises:
            StoreError: if the record could not be written; the lease is as before.
        """
        now = self._ledger.now()
        until = now + self._lease.span
        self._record = evolve(
            self._record,
            heartbeat_at=now,
            lease_expires_at=until,
            running=tuple(claim.task.id for claim in self._claims.all()),
            progress=self._claims.progress(),
            counters=dict(self.counters),
        )
        self._etag = self._ledger.workers.write(self._record, self._etag)
        self._lease.expires_at = until
        self._has_lapsed = False

    def run(self, stop: Event) -> None:
        """Beat until `stop` is set."""
        clock = self._ledger.store.clock
        interval = self.interval.total_seconds()
        pause = interval
        while not stop.wait(pause):
            begun = clock.monotonic()
            self._check_lapse()  # a thread may be held up for longer than a lease
            try:
                self.beat()
                self._claims.refresh()
                pause = max(interval - (clock.monotonic() - begun), 0)
            except BuquetError as error:
                # Sooner than usual: two thirds of the lease are left, and then nothing.
                pause = interval / 4
                logger.warning("A heartbeat of worker %s failed: %s", self._record.id, error)
                self._check_lapse()

    def _check_lapse(self) -> None:
        if self._lease.has_lapsed(self._ledger.now()) and not self._has_lapsed:
            self._has_lapsed = True
            logger.error(
                "Worker %s could not renew its lease: others may take its tasks.", self._record.id
            )
            self._claims.lose_lease()
