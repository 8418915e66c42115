"""The records of workers: what each says of itself, and until when it can be counted on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from buquet.clock import EPOCH
from buquet.core import codec, keys
from buquet.core.model import Batch, Progress, Task, TaskStatus, WorkerRecord
from buquet.errors import DamagedObject, StoreUnavailable
from buquet.ledger.compare_and_set import Tries, put_if_unchanged
from buquet.shield import shielded
from buquet.store import Store, walk

logger = logging.getLogger(__name__)

LAPSED_IS_BELIEVED = timedelta(seconds=10)
"""For how long the record of a worker that has lapsed is not read again."""

SILENCE = timedelta(seconds=30)
"""A worker that wrote its record within this time is not suspected: its heartbeat is at work."""

TRIES = 5
"""How often a record is written that turns out to be another than was thought."""


class WorkerRecords:
    """The records in a store.

    Args:
        store: where they are.
        tries: counts tries, with waits in between.
    """

    def __init__(self, store: Store, tries: Tries) -> None:
        self._store = store
        self._tries = tries
        self._leases: dict[str, tuple[datetime, datetime]] = {}

    # --- of one worker

    def read(self, worker_id: str) -> WorkerRecord | None:
        """Read a worker's record; None if there is none, or if it can't be read."""
        try:
            key = keys.worker_key(worker_id)
            with shielded():
                stored = self._store.get(key)
            record = codec.decode_worker(stored.body, key) if stored else None
        except (DamagedObject, ValueError) as error:
            logger.warning("A worker's record is passed over: %s", error)
            return None
        if record is not None and record.id != worker_id:
            logger.warning(
                "The record of worker %r is that of another, and passed over.", worker_id
            )
            return None
        return record

    def write(self, record: WorkerRecord, etag: str | None) -> str:
        """Write a worker's record in the place of its last one; return its etag.

        On that condition: else one that the network holds back could take the place of a newer one.

        Args:
            record: what to write.
            etag: that of the last one, as far as is known; None if there should be none.

        Raises:
            StoreError: if it could not be written, or nobody can tell.
        """
        key, body = keys.worker_key(record.id), codec.encode_worker(record)
        for _ in self._tries(TRIES):
            result = put_if_unchanged(self._store, key, body, expected=etag, tries=self._tries)
            if isinstance(result, str):
                return result
            etag = result.current.etag if result.current else None
        raise StoreUnavailable(f"Others keep changing the record of worker {record.id!r}.")

    def forget(self, worker_id: str) -> None:
        """Delete a worker's record."""
        self._store.delete([keys.worker_key(worker_id)])

    def progress(self, task: Task) -> Progress | None:
        """Read how far the running attempt of a task is; None if nothing is known of that."""
        if task.status is not TaskStatus.RUNNING or task.worker_id is None:
            return None
        record = self.read(task.worker_id)
        found = record.progress.get(task.id) if record else None
        # The record may still be about an earlier attempt by the same worker.
        return found if found and found.at >= (task.started_at or found.at) else None

    # --- of all

    def all(self) -> Iterator[WorkerRecord]:
        """Read the records of all workers."""
        for listed in walk(self._store, keys.WORKERS):
            yield from self._under(listed.key)

    def silent(self, now: datetime) -> Iterator[WorkerRecord]:
        """Read the records that have not been written for a while. The others need no read."""
        for listed in walk(self._store, keys.WORKERS):
            if now - listed.modified >= SILENCE:
                yield from self._under(listed.key)

    def _under(self, key: str) -> Iterator[WorkerRecord]:
        record = self.read(key.removeprefix(keys.WORKERS).removesuffix(".json"))
        if record is not None:
            yield record

    # --- leases

    def leases(self, batch: Batch, now: datetime) -> dict[str, datetime]:
        """Return until when workers are alive whose claims in the batch look lapsed."""
        lapsed: dict[str, datetime] = {}
        for task in batch.unfinished:
            if task.status is TaskStatus.RUNNING and task.is_lease_expired_at(now):
                worker, until = task.worker_id or "", task.lease_expires_at or now
                lapsed[worker] = max(lapsed.get(worker, until), until)
        return {
            worker: self._lease(worker, until, now) for worker, until in lapsed.items() if worker
        }

    def _lease(self, worker_id: str, claimed_until: datetime, now: datetime) -> datetime:
        until, seen_at = self._leases.get(worker_id, (EPOCH, EPOCH))
        # What was seen while one of the two still held says nothing of what came after it.
        was_lapsed = max(until, claimed_until) <= seen_at
        is_believed = was_lapsed and now - seen_at < LAPSED_IS_BELIEVED
        if until <= now and not is_believed:
            record = self.read(worker_id)
            until = record.lease_expires_at if record else EPOCH
            if len(self._leases) > 1000:
                self._leases.clear()
            self._leases[worker_id] = until, now
        return until
