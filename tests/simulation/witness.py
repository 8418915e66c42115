"""Sees every write that takes effect, and says which guarantee it breaks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, NoReturn

from attrs import define, evolve, field

from buquet.core import keys
from buquet.core.batch import Commit
from buquet.core.codec import decode_batch, decode_worker
from buquet.core.keys import Entry
from buquet.core.model import Batch, Revision, Task, TaskStatus
from buquet.core.transitions import ALLOWED
from buquet.store import Conflict, MemoryStore
from buquet.testing import Crash
from tests.simulation.engine import current

UNSURE = timedelta(seconds=1.2)
"""How far a process's idea of the store's time may be from it: dates come in whole seconds."""

BELIEVED = timedelta(seconds=12)
"""For how long a worker that was seen lapsed may be taken for dead, and then the write."""

WATERMARK = 6
"""Minutes in the past below which nothing is written."""

PARKED = timedelta(minutes=11)
"""How far ahead the entry of long work may lie."""

MOVES = {
    "claimed": "claim",
    "completed": "complete",
    "failed": "fail",
    "retried": "retry",
    "rescheduled": "reschedule",
    "released": "release",
    "recovered": "recover",
    "expired": "expire",
    "cancel requested": "cancel",
    "cancelled": "cancel",
    "replayed": "replay",
    "archived": "archive",
}
MAY_MOVE_DEADLINES = {"rescheduled", "replayed", "expired", "cancelled"}
"""The last two where a handler asked for more time, and it was not enough or not wanted."""
BY_THE_OWNER = {"completed", "retried", "rescheduled", "released"}
TOLD = ("status", "version")
"""What a history tells of a task."""
IMMUTABLE = ("id", "task_type", "input", "created_at", "max_retries", "priority")


class Violation(Exception):
    """A guarantee was broken."""


def report(text: str) -> NoReturn:
    """Say from a simulated thread that a guarantee was broken, past whatever catches exceptions."""
    current().engine.failures.append(Violation(text))
    current().process.die()
    raise Crash


@define
class Sign:
    """When a worker's record was written, and until when it says that the worker lives."""

    at: datetime
    until: datetime | None
    """None where the worker has deleted it, as it does when it leaves."""


@define(eq=False)
class Witness(MemoryStore):
    """The server: a store in memory that looks at each write."""

    now_: Any
    batches: dict[str, Batch] = field(factory=dict)
    acknowledged: dict[str, str] = field(factory=dict)
    """The ids of tasks whose submit returned, and what was given with them."""
    refused: set[str] = field(factory=set)
    """What was given with tasks whose submit said that they are not stored."""
    tell: Callable[[str], None] = lambda _: None
    """Is told what each write changed, for traces."""
    is_late: bool = False
    """Whether the writer of what comes next was held up beyond its time limit in the midst of it:
    then its entries may be gone, and it writes them once more."""
    caller: str = ""
    """Who makes the call that takes effect."""
    owed: set[str] = field(factory=set)
    """The batches whose entries are still to be written once more."""
    were_late: set[str] = field(factory=set)
    """The batches of which that was ever so."""
    _wanted_before: dict[str, set[str]] = field(factory=lambda: defaultdict(set))
    _signs: dict[str, list[Sign]] = field(factory=lambda: defaultdict(list))

    def __attrs_post_init__(self) -> None:
        MemoryStore.__init__(self)

    def now(self) -> datetime:
        return self.now_()

    latest = now

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        answer = super().put(key, body, if_match=if_match, if_absent=if_absent)
        if isinstance(answer, str):
            if key.startswith(keys.BATCHES):
                self._see_batch(decode_batch(body, key))
            elif key.startswith(keys.WORKERS):
                record = decode_worker(body, key)
                self._signs[record.id].append(Sign(self.now(), record.lease_expires_at))
            elif entry := keys.parse_entry(key):
                self._see_entry(entry)
        return answer

    def delete(self, keys_: Iterable[str]) -> None:
        gone = list(keys_)
        super().delete(gone)
        for key in gone:
            for batch_id in self.batches.keys() & set(key.split("/")):
                self._check_index(self.batches[batch_id])
            if key.startswith(keys.BATCHES):
                raise Violation(f"G2: {key} was deleted")
            if key == keys.worker_key(self.caller):
                self._signs[self.caller].append(Sign(self.now(), None))

    def task(self, task_id: str) -> Task:
        """Return a task as it is."""
        task = self.batches[keys.batch_id_of_task(task_id)].task(task_id)
        assert task is not None
        return task

    def tasks(self) -> list[Task]:
        """Return all tasks as they are."""
        return [task for batch in self.batches.values() for task in batch.tasks]

    def due(self, task: Task) -> datetime:
        """Return since when, or from when on, somebody should see to a task."""
        if task.status is TaskStatus.PENDING:
            return min(task.available_at, task.expires_at or task.available_at)
        signs = [sign.until for sign in self._signs[task.worker_id or ""] if sign.until]
        return max([task.lease_expires_at or task.updated_at, *signs[-1:]])

    # --- the rules

    def _see_entry(self, entry: Entry) -> None:
        if entry.batch_id in self.owed and not self._missing(self.batches[entry.batch_id]):
            self.owed.discard(entry.batch_id)

    def _see_batch(self, new: Batch) -> None:
        old = self.batches.get(new.id)
        self.batches[new.id] = new
        for task, revision in Commit.of(old, new).revisions:
            self.tell(f"task {task.id} {revision.event} by {revision.by}")
        if self.is_late and self._missing(new):
            self.owed.add(new.id)
            self.were_late.add(new.id)
        self._check_index(new)
        self._check_entry(old, new)
        before = {task.id: task for task in old.tasks} if old else {}
        if old is not None and before.keys() != {task.id for task in new.tasks}:
            raise Violation(f"G2: the tasks of batch {new.id} are others than before")
        for task in new.tasks:
            if task.input["token"] in self.refused:
                raise Violation(f"G1: {task.id} is stored, and its submit said that it is not")
            self._check_task(before.get(task.id), task)

    def _check_index(self, batch: Batch) -> None:
        missing = self._missing(batch)
        if missing and batch.id not in self.owed:
            raise Violation(f"index: {missing[0]} is wanted and not there")

    def _missing(self, batch: Batch) -> list[str]:
        wanted = [_ready_key(batch), *_ended_keys(batch)]
        return [key for key in wanted if key is not None and self.get(key) is None]

    def _check_entry(self, old: Batch | None, new: Batch) -> None:
        key = _ready_key(new)
        if key is None:
            return
        if wrong := _wrong_with(new, self.now()):
            raise Violation(f"index: {key} {wrong}")
        if key == _ready_key(old):
            return
        wanted = self._wanted_before[new.id]
        if key in wanted:
            raise Violation(f"index: {key} is used again")
        wanted.add(key)
        if not self.is_late and new.due < keys.minute_of(self.now()) - WATERMARK:
            raise Violation(f"index: {key} was written below the watermark")

    def _check_task(self, old: Task | None, new: Task) -> None:
        if old is not None:
            _check_identity(old, new)
        was = old
        for revision in _revisions(old, new):
            if was is not None:
                self._check_step(was, revision, new)
            was = _after(was, revision, new)
        if was is not None and any(getattr(was, name) != getattr(new, name) for name in TOLD):
            raise Violation(f"G4: {new.id} is not what its history says")
        last = new.history[-1]
        if new.attempt > new.max_retries + 1:
            raise Violation(f"G4: {new.id} has begun attempt {new.attempt}")
        if last.event == "claimed" and last.details["attempt"] != new.attempt:
            raise Violation(f"G4: {new.id} does not count the attempt that has begun")
        self._check_deadline(old, new)

    def _check_step(self, was: Task, revision: Revision, new: Task) -> None:
        event = revision.event
        if was.status not in ALLOWED[MOVES[event]]:
            raise Violation(f"G4: {new.id} was {was.status}, and then {event}")
        is_running = was.status is TaskStatus.RUNNING
        if is_running and event in BY_THE_OWNER and revision.by != was.worker_id:
            raise Violation(
                f"G3: {new.id} was with {was.worker_id}, and {revision.by} says {event}"
            )
        if event == "completed" and new.output["attempt"] != was.attempt:
            raise Violation(f"G3: {new.id} was completed by attempt {new.output['attempt']}")
        if event == "recovered" and not self._has_lapsed(was, revision.at):
            raise Violation(f"G3: {new.id} was taken from {was.worker_id}, which lives")
        if event == "claimed" and was.is_expired_at(revision.at):
            raise Violation(f"G5: {new.id} was claimed at its deadline or after")

    def _check_deadline(self, old: Task | None, new: Task) -> None:
        deadline = new.expires_at
        if new.status is TaskStatus.PENDING and deadline and new.available_at > deadline:
            raise Violation(f"G6: {new.id} is not available before its deadline")
        if old is None or old.version == new.version:
            return
        events = {revision.event for revision in _revisions(old, new)}
        if deadline != old.expires_at and not events & MAY_MOVE_DEADLINES:
            raise Violation(f"G6: the deadline of {new.id} was moved by {events}")
        is_early = old.expires_at is None or self.now() < old.expires_at - UNSURE
        last = new.history[-1]
        if last.event == "expired" and is_early and "reason" not in last.details:
            raise Violation(f"G6: {new.id} expired before its deadline")

    def _has_lapsed(self, task: Task, at: datetime) -> bool:
        """Tell whether the claim looked lapsed at any time of late."""
        own = task.lease_expires_at
        assert own is not None
        signs = self._signs[task.worker_id or ""]
        begin, end = at - BELIEVED - UNSURE, at + UNSURE
        held = own
        for sign in [sign for sign in signs if sign.at < end]:
            if begin < sign.at and held - UNSURE < sign.at:
                return True
            held = max(held, sign.until) if sign.until else own
        return held - UNSURE < end


# The rules of the index, as docs/protocol.md has them and without the code that follows them.


def _ready_key(batch: Batch | None) -> str | None:
    if batch is None or all(task.status.is_final for task in batch.tasks):
        return None
    expires = "-" if batch.expires is None else batch.expires
    return (
        f"ready/{batch.due:010d}/{batch.id}/{batch.generation}-{batch.tail}"
        f"/{batch.priority}/{batch.count}/{expires}/{batch.task_type}"
    )


def _ended_keys(batch: Batch) -> list[str]:
    return [
        f"ended/{task.status}/{9_999_999_999 - keys.minute_of(task.ended_at):010d}/{batch.id}"
        for task in batch.tasks
        if task.status in ("failed", "cancelled", "expired") and task.ended_at
    ]


def _wrong_with(batch: Batch, now: datetime) -> str:
    """Say what a ready key says that is not so; nothing if all is right."""
    left = [task for task in batch.tasks if not task.status.is_final]
    deadlines = [task.expires_at.timestamp() for task in left if task.expires_at]
    pending = [task.available_at for task in left if task.status is TaskStatus.PENDING]
    latest = keys.minute_of(max(min(pending), now + UNSURE) if pending else now + PARKED)
    if batch.due > latest:
        return f"comes {batch.due - latest} minutes late"
    if deadlines and (batch.expires is None or batch.expires > math.ceil(min(deadlines))):
        return f"does not tell of the deadline at {min(deadlines)}"
    if batch.count < len(left):
        return f"does not tell of {len(left)} tasks"
    return ""


def _check_identity(old: Task, new: Task) -> None:
    for name in IMMUTABLE:
        if getattr(old, name) != getattr(new, name):
            raise Violation(f"G2: {name} of {new.id} has changed")
    if old.version == new.version and old != new:
        raise Violation(f"G4: {new.id} has changed without a line in its history")


def _revisions(old: Task | None, new: Task) -> list[Revision]:
    known = old.version if old else 0
    return list(new.history[known - new.version :]) if new.version > known else []


def _after(was: Task | None, revision: Revision, new: Task) -> Task:
    base = was or evolve(new, attempt=0, lease_id=None, worker_id=None, expires_at=new.expires_at)
    changes: dict[str, Any] = {"status": revision.status, "version": revision.version}
    if revision.event == "claimed":
        changes |= {"worker_id": revision.by, "attempt": revision.details["attempt"]}
        changes |= {"lease_expires_at": new.lease_expires_at or base.lease_expires_at}
    if revision.event in ("released", "rescheduled"):
        changes |= {"attempt": base.attempt - 1}
    if revision.event == "replayed":
        changes |= {"attempt": 0}
    return evolve(base, **changes)
