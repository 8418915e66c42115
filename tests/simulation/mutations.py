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
    ),
    Mutation(
        "tidied before the decision",
        "store.base",
        '    for key in change.add:\n        store.put(key, b"")\n',
        '    for key in change.add:\n        store.put(key, b"")\n    drop(change.drop)\n',
    ),
    Mutation(
        "a commit has no time limit",
        "store.base",
        "    if store.clock.monotonic() - change.begun > COMMIT_TIME_LIMIT:",
        "    if store.clock.monotonic() - change.begun > 10 * 3600:",
    ),
    Mutation(
        "the decision has no condition",
        "store.base",
        "if_match=change.if_match, if_absent=change.if_match is None",
        "if_match=None, if_absent=False",
    ),
    Mutation(
        "a new batch is written on no condition",
        "store.base",
        "if_absent=change.if_match is None",
        "if_absent=False",
    ),
    Mutation(
        "no count in the key",
        "entries",
        "generation=batch.generation + 1,",
        "generation=1,",
    ),
    Mutation("no random tail in the key", "entries", "        tail=tail,\n", '        tail="0",\n'),
    Mutation(
        "the key that is wanted is dropped",
        "entries",
        "return (ready,) if ready and ready != ready_key(new) else ()",
        "return (ready,) if ready else ()",
    ),
    Mutation(
        "a move does not move the entry",
        "entries",
        "    if wake or not batch.unfinished:\n        return moved(new, minute_of(now), tail)\n",
        "",
    ),
    Mutation(
        "entries are looked for from the present minute on",
        "entries",
        "WATERMARK_MINUTES = 6",
        "WATERMARK_MINUTES = 0",
    ),
    Mutation(
        "an early entry is deleted at once",
        "ledger",
        "if standing is Standing.EARLY and is_young:",
        "if False:",
    ),
    Mutation(
        "no look at the write ids after an unclear answer",
        "ledger",
        "if current is None or write_id not in current.batch.writes:",
        "if current is None or not isinstance(answer, str):",
    ),
    Mutation("one write id is kept", "ledger", "KEPT_WRITES = 16", "KEPT_WRITES = 1"),
    Mutation(
        "an unclear submit is called a failed one",
        "ledger",
        "if isinstance(error, StoreUnclear) or unclear:",
        "if False:",
    ),
    Mutation(
        "a writer that was held up does not write its entries once more",
        "ledger",
        "            self._add_again(change.add)\n",
        "            pass\n",
    ),
    Mutation(
        "leases are judged by the local clock",
        "ledger",
        "        return transitions.settle(batch, facts, leases)\n",
        "        local = evolve(facts, now=self.store.clock.now())\n"
        "        return transitions.settle(batch, local, leases)\n",
    ),
    Mutation(
        "deadlines are judged by the middle of what the time may be",
        "ledger",
        "            return self.store.latest()\n",
        "            return self.store.now()\n",
    ),
    Mutation(
        "a lapsed claim is taken back without a look at its worker",
        "records",
        "self._lease(worker, until, now) for worker",
        "EPOCH for worker",
    ),
    Mutation(
        "a worker that was seen alive is not looked at again",
        "records",
        "was_lapsed = max(until, claimed_until) <= seen_at",
        "was_lapsed = True",
    ),
    Mutation(
        "a heartbeat is written on no condition",
        "records",
        "self._store.put(key, body, if_match=etag, if_absent=etag is None)",
        "self._store.put(key, body)",
    ),
    Mutation(
        "a result is taken under any lease",
        "worker.holding",
        "        and task.lease_id == assignment.task.lease_id\n",
        "",
    ),
    Mutation(
        "results of lost claims are handed over",
        "worker.holding",
        "            kept = [each for each in outcomes if self._has(each.assignment)]\n",
        "            kept = list(outcomes)\n",
    ),
    Mutation(
        "claims that nobody knows of are kept",
        "worker.holding",
        "if is_orphan and task.lease_id else task",
        "if False else task",
    ),
    Mutation(
        "claims are kept when a worker stops",
        "worker.shift",
        "wake=True) for assignment in assignments]",
        "wake=True) for assignment in assignments[:0]]",
    ),
    Mutation(
        "what was stored before submit_many broke off is not told",
        "pouring",
        "raise SubmitManyError(found, broken.unclear, len(items)) from broken.__cause__",
        "raise SubmitManyError([], broken.unclear, len(items)) from broken.__cause__",
    ),
    Mutation(
        "what may be stored when submit_many breaks off is not told",
        "pouring",
        "                unclear.extend(error.task_ids)\n",
        "                pass\n",
    ),
    Mutation(
        "the deadline is not looked at before the handler",
        "worker.runner",
        "if task.is_expired_at(self._ledger.latest()):",
        "if False:",
    ),
    Mutation(
        "a task past its deadline stays pending",
        "transitions",
        "return expire(task, facts) if task.is_expired_at(facts.latest) else task",
        "return task",
    ),
    Mutation(
        "a retry that would come too late is made",
        "transitions",
        "    if task.is_expired_at(due):\n",
        "    if False:\n",
    ),
    Mutation(
        "lapsed claims are left alone",
        "transitions",
        "return recover(task, facts) if facts.now >= entries.held_until(task, leases) else task",
        "return task",
    ),
    Mutation(
        "an attempt counts when it has ended",
        "transitions",
        "        attempt=task.attempt + 1,\n",
        "        attempt=task.attempt,\n",
    ),
)
