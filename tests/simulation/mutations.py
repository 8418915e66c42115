"""Faults of the protocol, planted one at a time: the simulation must find each of them.

A fault is planted in the text of a module before that is imported, so each needs a process of its
own.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from attrs import frozen


@frozen
class Mutation:
    """A fault: what stands in a module, and what is put there."""

    name: str
    module: str
    old: str
    new: str
    breaks: str
    """What the witness must say of it: the guarantee, and more where that is not enough."""
    within: int = 300
    """In how many seeds, from 0, it must be found."""


def plant(mutation: Mutation) -> None:
    """Have a module imported with the fault in it."""
    if f"buquet.{mutation.module}" in sys.modules:
        raise RuntimeError(f"buquet.{mutation.module} has been imported already.")
    sys.meta_path.insert(0, _Finder(mutation))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and name == f"buquet.{self._mutation.module}":
            assert spec.origin is not None
            spec.loader = _Loader(name, spec.origin, self._mutation)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self.path, self._mutation), self.path, "exec")


def mutated(path: Any, mutation: Mutation) -> str:
    """Return the text of a module with the fault in it.

    Raises:
        LookupError: if what is to be replaced does not stand there exactly once.
    """
    text = Path(path).read_text()
    count = text.count(mutation.old)
    if count != 1:
        raise LookupError(f"{mutation.name}: its text stands {count} times in {path}, not once.")
    return text.replace(mutation.old, mutation.new)


def _block(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n"), "    ") + "\n"


_STEPS = _block(
    """
    for key in change.add:
        store.put(key, b"")
    if store.clock.monotonic() - change.begun > COMMIT_TIME_LIMIT:
        return Conflict()
    etag = store.put(
        change.key, change.body, if_match=change.if_match, if_absent=change.if_match is None
    )
    if isinstance(etag, str) and change.drop:
        drop(change.drop)
    return etag
    """
)

MUTATIONS = (
    Mutation(
        "the index is written after the decision",
        "store.base",
        _STEPS,
        _block(
            """
            etag = store.put(
                change.key, change.body, if_match=change.if_match, if_absent=change.if_match is None
            )
            for key in change.add:
                store.put(key, b"")
            if isinstance(etag, str) and change.drop:
                drop(change.drop)
            return etag
            """
        ),
        breaks="index",
    ),
    Mutation(
        "tidied before the decision",
        "store.base",
        '    for key in change.add:\n        store.put(key, b"")\n',
        '    for key in change.add:\n        store.put(key, b"")\n    drop(change.drop)\n',
        breaks="index",
    ),
    Mutation(
        "a commit has no time limit",
        "store.base",
        "    if store.clock.monotonic() - change.begun > COMMIT_TIME_LIMIT:",
        "    if store.clock.monotonic() - change.begun > 10 * 3600:",
        breaks="index",
    ),
    Mutation(
        "the decision has no condition",
        "store.base",
        "if_match=change.if_match, if_absent=change.if_match is None",
        "if_match=None, if_absent=False",
        breaks="G4",
    ),
    Mutation(
        "a new batch is written on no condition",
        "store.base",
        "if_absent=change.if_match is None",
        "if_absent=False",
        breaks="G1",
    ),
    Mutation(
        "no count in the key",
        "core.index",
        "generation=batch.generation + 1,",
        "generation=1,",
        breaks="index",
    ),
    Mutation(
        "no random tail in the key",
        "core.index",
        "        tail=tail,\n",
        '        tail="0",\n',
        breaks="index",
    ),
    Mutation(
        "the key that is wanted is dropped",
        "core.index",
        "return (ready,) if ready and ready != ready_key(new) else ()",
        "return (ready,) if ready else ()",
        breaks="index",
    ),
    Mutation(
        "a move does not move the entry",
        "core.index",
        "    if wake or not batch.unfinished:\n        return moved(new, minute_of(now), tail)\n",
        "",
        breaks="index",
    ),
    Mutation(
        "entries are looked for from the present minute on",
        "core.index",
        "WATERMARK_MINUTES = 6",
        "WATERMARK_MINUTES = 0",
        breaks="G2",
    ),
    Mutation(
        "an early entry is deleted at once",
        "ledger.ledger",
        "if standing is Standing.EARLY and is_young:",
        "if False:",
        breaks="index",
    ),
    Mutation(
        "no look at the write ids after an unclear answer",
        "ledger.compare_and_set",
        "if current is not None and is_mine(current):",
        "if False:",
        breaks="G1",
    ),
    Mutation(
        "one write id is kept", "ledger.ledger", "KEPT_WRITES = 16", "KEPT_WRITES = 1", breaks="G1"
    ),
    Mutation(
        "an unclear submit is called a failed one",
        "ledger.compare_and_set",
        'raise StoreUnclear(f"A write got no clear answer, and then: {error}") from error',
        "raise",
        breaks="G1",
    ),
    Mutation(
        "a writer that was held up does not write its entries once more",
        "ledger.ledger",
        "            self._add_again(change.add)\n",
        "            pass\n",
        breaks="G2",
    ),
    Mutation(
        "leases are judged by the local clock",
        "ledger.ledger",
        "        return transitions.settle(batch, facts, leases)\n",
        "        local = evolve(facts, now=self.store.clock.now())\n"
        "        return transitions.settle(batch, local, leases)\n",
        breaks="G2",
    ),
    Mutation(
        "deadlines are judged by the middle of what the time may be",
        "ledger.ledger",
        "            return self.store.latest()\n",
        "            return self.store.now()\n",
        breaks="G5",
    ),
    Mutation(
        "a lapsed claim is taken back without a look at its worker",
        "ledger.worker_records",
        "self._lease(worker, until, now) for worker",
        "EPOCH for worker",
        breaks="G3",
    ),
    Mutation(
        "a worker that was seen alive is not looked at again",
        "ledger.worker_records",
        "was_lapsed = max(until, claimed_until) <= seen_at",
        "was_lapsed = True",
        breaks="G3",
    ),
    Mutation(
        "a heartbeat is written on no condition",
        "ledger.worker_records",
        "put_if_unchanged(self._store, key, body, expected=etag, tries=self._tries)",
        "self._store.put(key, body)",
        breaks="G3",
    ),
    Mutation(
        "a result is taken under any lease",
        "worker.edits",
        "        and task.lease_id == claim.task.lease_id\n",
        "",
        breaks="G3",
    ),
    Mutation(
        "a batch is let go of while its tasks run",
        "worker.claimed_batch",
        "if self._is_closed or self._is_writing or self._claims or self._outcomes:",
        "if self._is_closed or self._is_writing:",
        breaks="G2",
    ),
    Mutation(
        "a result that could not be written is dropped",
        "worker.claimed_batch",
        "            self._outcomes[:0] = outcomes\n        logger.warning(",
        "            pass\n        logger.warning(",
        breaks="G2",
    ),
    Mutation(
        "claims that nobody knows of are kept",
        "worker.edits",
        "if is_orphan and task.lease_id else task",
        "if False else task",
        breaks="G2",
    ),
    Mutation(
        "claims are kept when a worker stops",
        "worker.claims",
        "by_batch.setdefault(claim.task.batch_id, []).append(released(claim))",
        "by_batch.setdefault(claim.task.batch_id, [])",
        breaks="G2",
    ),
    Mutation(
        "what was stored before submit_many broke off is not told",
        "client.bulk",
        "raise SubmitManyError(found, self.unclear, total) from cause",
        "raise SubmitManyError([], self.unclear, total) from cause",
        breaks="G1",
    ),
    Mutation(
        "what may be stored when submit_many breaks off is not told",
        "client.bulk",
        "            self.unclear = error.task_ids\n",
        "            pass\n",
        breaks="G1",
    ),
    Mutation(
        "the deadline is not looked at before the handler",
        "worker.runner",
        "if task.is_expired_at(latest):",
        "if False:",
        breaks="G5",
    ),
    Mutation(
        "a retry that would come too late is made",
        "core.transitions",
        "    if task.is_expired_at(due):\n",
        "    if False:\n",
        breaks="G6",
    ),
    Mutation(
        "a lapsed claim is believed for an hour more",
        "core.index",
        "    own = task.lease_expires_at or task.updated_at\n",
        "    own = (task.lease_expires_at or task.updated_at) + timedelta(hours=1)\n",
        breaks="G2",
    ),
    Mutation(
        "attempts do not run out",
        "core.transitions",
        "if task.attempt > task.max_retries",
        "if False",
        breaks="G4",
    ),
    Mutation(
        "what has expired is not listed",
        "core.index",
        "INDEXED_STATUSES = (TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)",
        "INDEXED_STATUSES = (TaskStatus.FAILED, TaskStatus.CANCELLED)",
        breaks="index",
    ),
    Mutation(
        "the key does not tell of deadlines",
        "core.index",
        "        expires=max(epoch_seconds_up(min(deadlines)), 0) if deadlines else None,\n",
        "        expires=None,\n",
        breaks="index",
    ),
    Mutation(
        "what is put off lies five minutes too far ahead",
        "core.index",
        "    minute = max(minute_of(min(pending)), minute_of(now))\n",
        "    minute = max(minute_of(min(pending)), minute_of(now)) + 5\n",
        breaks="index",
    ),
    Mutation(
        "a parked entry stays where it is when a retry is due before it",
        "core.index",
        "    if minute < batch.due:\n        return moved(new, minute, tail)\n",
        "",
        breaks="index",
    ),
    Mutation(
        "who lists deletes what is being written",
        "client.listing",
        "    if not tasks and read.since - hint.modified > STRAY_AGE:\n",
        "    if not tasks:\n",
        breaks="index",
    ),
    Mutation(
        "a poll that fails ends the worker",
        "worker.poll_loop",
        '                logger.warning("A poll failed; trying again: %s", error)\n',
        "                raise\n",
        breaks="G2",
    ),
    Mutation(
        "a poll lists twice",
        "worker.poller",
        "        scan = Scan()\n        if self._is_backlog",
        "        scan = Scan()\n        self._ledger.store.list('')\n        if self._is_backlog",
        breaks="G7",
    ),
    Mutation(
        "each sweep reads every batch",
        "sweeper",
        "        if full:\n            self._reindex(report)\n",
        "        self._reindex(report)\n        if full:\n",
        breaks="G7",
    ),
    Mutation(
        "a sweep looks into nothing",
        "sweeper",
        "        return entry.has_expired_at(now) or place <= OLDEST\n",
        "        return False\n",
        breaks="G6",
    ),
    Mutation(
        "strays are left",
        "ledger.ledger",
        "        self.store.delete([entry.key])\n        return Standing.STALE\n",
        "        return Standing.STALE\n",
        breaks="index",
    ),
    Mutation("clocks are taken not to drift", "clock", "DRIFT = 0.001", "DRIFT = 0.0", breaks="G5"),
    Mutation(
        "tasks come back in another order than they were given",
        "client.bulk",
        "sorted(stored, key=lambda pair: pair[0])",
        "sorted(stored, key=lambda pair: -pair[0])",
        breaks="G8",
    ),
    Mutation(
        "an attempt counts when it has ended",
        "core.transitions",
        "        attempt=task.attempt + 1,\n",
        "        attempt=task.attempt,\n",
        breaks="G4",
    ),
)
