"""The only place where tasks meet the store: create, load, commit, change, tidy.

Every change of anything is a commit: the entries that the new batch wants are written first, then
the batch on the condition that it is still as it was read, then the entries it no longer wants are
deleted. A lost race is a value here, not an exception.
"""

from __future__ import annotations

import getpass
import logging
import math
import os
import random
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from attrs import evolve, frozen

from buquet.core import codec, index, keys, transitions
from buquet.core.batch import Commit
from buquet.core.index import STRAY_AGE, Standing
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts
from buquet.errors import (
    BuquetError,
    Contention,
    DamagedObject,
    StoreRefused,
    StoreUnclear,
    SubmitUnclear,
    TaskNotFound,
)
from buquet.ledger.compare_and_set import Lost, compare_and_set
from buquet.ledger.worker_records import WorkerRecords
from buquet.shield import shielded
from buquet.store import COMMIT_TIME_LIMIT, Change, Store

logger = logging.getLogger(__name__)

LATEST = datetime.max.replace(tzinfo=UTC)

KEPT_WRITES = 16
"""How many of its last writes a batch remembers by their ids."""

TRIES = 20
"""How often a change is tried before others have won too often."""

LEAST_TRIES = 3
"""How often it is tried at least: a process may have been held up for long in one try."""

CHANGE_WITHIN = 30.0
"""Seconds after which it is not tried again."""

OF_ONE_BATCH = (DamagedObject, StoreRefused)
"""Errors that are about one object: a walk passes over its batch, and goes on."""

MOST_PASSED_OVER = 10_000

_T = TypeVar("_T")

Observer = Callable[[Commit], None]
"""Is called with each commit that took effect, within the write and under its locks.

So it must not block, and must not call code of a user.
"""


@frozen
class Loaded:
    """A batch as it is in the store, and the etag that says so."""

    batch: Batch
    etag: str


class Ledger:
    """What stands between the pure core and a store.

    Args:
        store: where the batches are.
        by: whose name goes into histories.
        chance: the source of random digits and jitter.
        on_lost_race: is called with the batch that was not written when a commit loses a race.
    """

    def __init__(
        self,
        store: Store,
        *,
        by: str | None = None,
        chance: random.Random | None = None,
        on_lost_race: Callable[[Batch], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.by = by or default_identity()
        self.observers: list[Observer] = []
        """Are called with each commit that took effect, even if its answer was lost."""
        self._on_lost_race = on_lost_race
        self._chance = chance or random.SystemRandom()
        self._passed_over: set[str] = set()
        self.workers = WorkerRecords(store, self.tries)

    def now(self) -> datetime:
        """Return the store's time."""
        with shielded():
            return self.store.now()

    def latest(self) -> datetime:
        """Return the latest that the store's time may be: by it deadlines are judged."""
        with shielded():
            return self.store.latest()

    def facts(self, by: str | None = None) -> Facts:
        """Gather what a move must know: the time first, so that a slow answer can't age it."""
        begun = self.store.clock.monotonic()
        return Facts(
            now=self.now(),
            latest=self.latest(),
            by=by or self.by,
            chance=self._chance.random(),
            tail=self.digits(8),
            begun=begun,
        )

    def digits(self, count: int) -> str:
        """Draw random hex digits."""
        return f"{self._chance.getrandbits(4 * count):0{count}x}"

    def new_batch_id(self) -> str:
        """Draw the id of a new batch."""
        return keys.new_batch_id(self._chance.getrandbits(128))

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """Return the items in an order left to chance."""
        return self._chance.sample(items, len(items))

    # --- load

    def load(self, batch_id: str, *, unless: str | None = None) -> Loaded | None:
        """Read a batch; None if there is none, or if its etag is `unless`.

        Raises:
            DamagedObject: if it can't be read.
        """
        key = keys.batch_key(batch_id)
        with shielded():
            stored = self.store.get(key, unless=unless)
        if stored is None:
            return None
        batch = codec.decode_batch(stored.body, key)
        if batch.id != batch_id:
            raise DamagedObject(key, f"it says that it is batch {batch.id!r}")
        if keys.parse_entry(index.entry_of(batch).key) is None:
            raise DamagedObject(key, "its fields make no key for the index")
        return Loaded(batch, stored.etag)

    def read_entry(self, entry: keys.Entry, modified: datetime) -> Loaded | Standing:
        """Read the batch of an entry that was found in the index.

        An entry that its batch has left behind is deleted, and so is one that was abandoned: then
        it is `STALE`. One that may belong to a commit in the making is `EARLY`.
        """
        # Judged before the read: a process that is held up after it must not take a young entry
        # for an old one.
        is_young = self.now() - modified <= STRAY_AGE
        loaded = self.load(entry.batch_id)
        standing = index.standing(entry, loaded.batch if loaded else None)
        if standing is Standing.WANTED and loaded is not None:
            return loaded
        if standing is Standing.EARLY and is_young:
            return Standing.EARLY
        self.store.delete([entry.key])
        return Standing.STALE

    # --- commit

    def create(self, batch: Batch, facts: Facts) -> Loaded:
        """Store a new batch.

        Raises:
            SubmitUnclear: if the store broke off and can't be asked whether it is stored.
            StoreError: if it is not stored.
        """
        try:
            result = self.commit(None, batch, facts)
        except StoreUnclear as error:
            raise SubmitUnclear(_ids(batch), str(error)) from error
        if isinstance(result, Lost):
            raise SubmitUnclear(_ids(batch), "it took longer than a commit may take.")
        return result

    def commit(self, old: Loaded | None, new: Batch, facts: Facts) -> Loaded | Lost[Loaded]:
        """Put `new` in the place of `old`, if `old` is still there.

        A `Loaded` that comes back may hold more than `new`: others may have written since. `Lost`
        means that others were faster, or that the commit was held up for so long that it had to be
        given up.

        Raises:
            StoreUnclear: if nobody can tell whether it took effect, or will.
            StoreError: if it did not: the store refuses it.
        """
        with shielded():  # observers take locks of the whole process as well
            return self._commit(old, new, facts)

    def _commit(self, old: Loaded | None, new: Batch, facts: Facts) -> Loaded | Lost[Loaded]:
        write_id = self.digits(12)
        before = old.batch if old else None
        new = evolve(new, writes=(*new.writes, write_id)[-KEPT_WRITES:])
        change = Change(
            key=keys.batch_key(new.id),
            body=codec.encode_batch(new),
            if_match=old.etag if old else None,
            add=index.to_add(before, new),
            drop=index.to_drop(before, new),
            begun=facts.begun,
        )
        try:
            result = compare_and_set(
                change.key,
                lambda: self.store.commit(change),
                lambda: self.load(new.id),
                expected=change.if_match,
                is_mine=lambda loaded: write_id in loaded.batch.writes,
                tries=self.tries,
            )
        except StoreUnclear:
            if not self._is_late(facts):
                raise
            result = Lost(old)
        if isinstance(result, Lost):
            _notify([self._on_lost_race], new)
            return result
        if self._is_late(facts):
            self._add_again(change.add)
        _notify(self.observers, Commit.of(before, new))
        return result if isinstance(result, Loaded) else Loaded(new, result)

    def _is_late(self, facts: Facts) -> bool:
        """Return whether a commit has taken longer than it may."""
        return self.store.clock.monotonic() - facts.begun > COMMIT_TIME_LIMIT

    def _add_again(self, added: Sequence[str]) -> None:
        """Write the entries of a commit once more that was held up in the midst of its write.

        They may have been taken for strays meanwhile.
        """
        try:
            for key in added:
                self.store.put(key, b"")
        except BuquetError as error:
            raise StoreUnclear(f"A write took too long, and then: {error}") from error

    def change(self, batch_id: str, edit: Callable[[Batch, Facts], Batch]) -> Loaded:
        """Change a batch, whoever else is at it: load, settle, edit, commit, and again if need be.

        Args:
            batch_id: which.
            edit: a pure function; it is called anew after each lost race. What it raises is passed
                on, after the housekeeping that was due has been written.

        Raises:
            TaskNotFound: if there is no such batch.
            Contention: if others were faster each time.
        """
        loaded = self.load(batch_id)
        tried = 0
        for number in self.tries(TRIES, within=CHANGE_WITHIN, least=LEAST_TRIES):
            tried = number + 1
            if loaded is None:
                raise TaskNotFound(batch_id)
            facts = self.facts()
            settled = self.settle(loaded.batch, facts)
            refusal = None
            try:
                new = edit(settled, facts)
            except Exception as error:  # noqa: BLE001 -- raised again below, once the healing is written
                refusal, new = error, settled
            result = loaded if new is loaded.batch else self.commit(loaded, new, facts)
            if isinstance(result, Loaded):
                if refusal is not None:
                    raise refusal
                return result
            loaded = result.current
        raise Contention(batch_id, tried)

    def pass_over(self, batch_id: str, error: BuquetError) -> None:
        """Log that a walk passes over a batch: a warning the first time, since walks are many."""
        is_known = batch_id in self._passed_over
        if len(self._passed_over) < MOST_PASSED_OVER:
            self._passed_over.add(batch_id)
        level = logging.DEBUG if is_known else logging.WARNING
        logger.log(level, "Batch %s is passed over: %s", batch_id, error)

    def settle(self, batch: Batch, facts: Facts, *, but: str = "") -> Batch:
        """Do the housekeeping that is due in a batch, in memory; leave the worker `but` alone."""
        leases = self.workers.leases(batch, facts.now) | {but: LATEST}
        return transitions.settle(batch, facts, leases)

    def tries(self, most: int, *, within: float = math.inf, least: int = 1) -> Iterator[int]:
        """Count tries from 0, with waits in between that grow and are left to chance.

        Args:
            most: how many there are.
            within: seconds after which there are no more.
            least: how many there are however long they take.
        """
        clock = self.store.clock
        end = clock.monotonic() + within
        for number in range(most):
            if number >= least and clock.monotonic() >= end:
                return
            if number:
                clock.sleep(min(0.02 * 2**number, 1.0) * self._chance.random())
            yield number


def _notify(observers: Sequence[Callable[[_T], None]], event: _T) -> None:
    """Call all observers; whatever one of them raises, the write has taken effect."""
    for observer in tuple(observers):  # one may come or go meanwhile
        try:
            observer(event)
        except BaseException:
            with suppress(BaseException):  # a broken log must not do so either
                logger.exception("An observer of commits failed: %r.", observer)


def default_identity() -> str:
    """Return user@host, as far as they are known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in a container
        user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{user}@{host_name()}"


def host_name() -> str:
    """Return this machine's name, fit for a key."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:60] or "host"


def task_in(batch: Batch | None, task_id: str) -> Task:
    """Return the task with this id from the batch that should hold it.

    Raises:
        TaskNotFound: if there is none.
    """
    task = batch.task(keys.check_task_id(task_id)) if batch else None
    if task is None:
        raise TaskNotFound(task_id)
    return task


def _ids(batch: Batch) -> list[str]:
    return [task.id for task in batch.tasks]
