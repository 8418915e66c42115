"""Ids and keys: the only place where they are built and taken apart.

    tasks/{batch_id}.json
    ready/{minute}/{batch_id}/{generation}/{priority}/{count}/{expires}/{task_type}
    ended/{status}/{inverted minute}/{batch_id}
    workers/{worker_id}.json
    locks/{name}.json

A minute is minutes since the epoch, ten digits; an inverted one is 9999999999 less it, so that the
newest sorts first. A generation is a counter and the random digits of its writer.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cached_property

from attrs import frozen

from buquet.core.model import TASK_NUMBERS, TaskStatus
from buquet.errors import InvalidOptions, TaskNotFound

BATCHES = "tasks/"
READY = "ready/"
ENDED = "ended/"
WORKERS = "workers/"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MINUTE = 9_999_999_999
_END_OF_TIME = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(minutes=1)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TASK_TYPE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WORKER_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_READY = re.compile(
    rf"ready/(?P<minute>\d{{10}})/(?P<batch_id>{_ID.pattern})/(?P<generation>\d{{1,12}})-(?P<tail>[0-9a-f]{{1,32}})"
    rf"/(?P<priority>-?\d{{1,3}})/(?P<count>\d{{1,5}})/(?P<expires>-|\d{{1,12}})/(?P<task_type>{_TASK_TYPE.pattern})",
    re.ASCII,
)
_ENDED = re.compile(
    rf"ended/(?P<status>[a-z]+)/(?P<inverted>\d{{10}})/(?P<batch_id>{_ID.pattern})", re.ASCII
)


@frozen
class Entry:
    """What the key of a ready entry says."""

    minute: int
    batch_id: str
    generation: int
    tail: str
    priority: int
    count: int
    expires: int | None
    """The earliest deadline, in epoch seconds, rounded up: it has passed once this has come."""
    task_type: str

    @cached_property
    def key(self) -> str:
        """The key that says so."""
        expires = "-" if self.expires is None else self.expires
        return (
            f"{READY}{self.minute:010d}/{self.batch_id}/{self.generation}-{self.tail}"
            f"/{self.priority}/{self.count}/{expires}/{self.task_type}"
        )

    def has_expired_at(self, now: datetime) -> bool:
        """Return whether a deadline in the batch has passed."""
        return self.expires is not None and (now - _EPOCH).total_seconds() >= self.expires


@frozen
class EndedKey:
    """What the key of an ended entry says."""

    status: TaskStatus
    minute: int
    batch_id: str

    @property
    def key(self) -> str:
        """The key that says so."""
        return f"{ENDED}{self.status}/{_LAST_MINUTE - self.minute:010d}/{self.batch_id}"


def parse_entry(key: str) -> Entry | None:
    """Read the key of a ready entry; None if it is not one of ours."""
    match = _READY.fullmatch(key)
    if match is None or int(match["minute"]) > _END_OF_TIME:
        return None
    entry = Entry(
        minute=int(match["minute"]),
        batch_id=match["batch_id"],
        generation=int(match["generation"]),
        tail=match["tail"],
        priority=int(match["priority"]),
        count=int(match["count"]),
        expires=None if match["expires"] == "-" else int(match["expires"]),
        task_type=match["task_type"],
    )
    return entry if entry.key == key else None  # 007 and -0 are numbers, but not as we write them


def parse_ended(key: str) -> EndedKey | None:
    """Read the key of an ended entry; None if it is not one of ours."""
    match = _ENDED.fullmatch(key)
    if match is None or match["status"] not in set(TaskStatus):
        return None
    return EndedKey(
        TaskStatus(match["status"]), _LAST_MINUTE - int(match["inverted"]), match["batch_id"]
    )


def batch_key(batch_id: str) -> str:
    """Return the key of a batch."""
    return f"{BATCHES}{batch_id}.json"


def batch_id_of(key: str) -> str | None:
    """Return the id of the batch under a key; None if it is no batch's key."""
    batch_id = key.removeprefix(BATCHES).removesuffix(".json")
    return batch_id if _ID.fullmatch(batch_id) and batch_key(batch_id) == key else None


def worker_key(worker_id: str) -> str:
    """Return the key of a worker's record.

    Raises:
        InvalidOptions: if the id has characters that a key should not have.
    """
    if not _WORKER_ID.fullmatch(worker_id):
        raise InvalidOptions(f"{worker_id!r} is not a worker id: letters, digits, '.', '_', '-'.")
    return f"{WORKERS}{worker_id}.json"


def lock_key(name: str) -> str:
    """Return the key of a lock."""
    return f"locks/{name}.json"


def ready_after(minute: int) -> str:
    """Return the text after which the entries of this minute and later ones sort."""
    return f"{READY}{max(minute, 0):010d}/"


def ready_from(minute: int, batch_digits: str) -> str:
    """Return the text after which, within a minute, batch ids from these digits on sort."""
    return f"{READY}{max(minute, 0):010d}/{batch_digits}"


def ended_prefix(status: TaskStatus) -> str:
    """Return the prefix of the ended entries of a status."""
    return f"{ENDED}{status}/"


def minute_of(moment: datetime) -> int:
    """Return the minute since the epoch in which a moment lies."""
    return (moment - _EPOCH) // timedelta(minutes=1)


def start_of(minute: int) -> datetime:
    """Return the moment at which a minute begins."""
    return _EPOCH + timedelta(minutes=minute)


def epoch_seconds_up(moment: datetime) -> int:
    """Return the first whole epoch second that is not before a moment."""
    return -((_EPOCH - moment) // timedelta(seconds=1))


def new_batch_id(random_bits: int) -> str:
    """Make a batch id of 128 random bits: a UUID (version 4) whose last 16 bits are zero."""
    bits = random_bits & ~(0xF << 76) | (4 << 76)
    bits = bits & ~(0x3 << 62) | (2 << 62)
    digits = f"{bits & ~(TASK_NUMBERS - 1) & (1 << 128) - 1:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def batch_id_of_task(task_id: str) -> str:
    """Return the id of the batch that holds a task."""
    return task_id[:-4] + "0000"


def task_id(batch_id: str, number: int) -> str:
    """Return the id of the task with this number in a batch."""
    return f"{batch_id[:-4]}{number:04x}"


def is_task_id(text: str) -> bool:
    """Return whether this is an id as it is written in the store."""
    return _ID.fullmatch(text) is not None


def check_task_id(text: str) -> str:
    """Return the id as it is written in the store.

    Raises:
        TaskNotFound: if it is no task id: then there is no task under it either.
    """
    lowered = str(text).strip().lower()
    if not is_task_id(lowered):
        raise TaskNotFound(text)
    return lowered


def check_task_type(text: str) -> str:
    """Return the task type, if it is one.

    Raises:
        InvalidOptions: if it has other characters, or is empty or too long.
    """
    match = _TASK_TYPE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidOptions(
            f"{text!r} is not a task type. Use 1 to 128 letters, digits and . _ : - signs."
        )
    return match[0]  # plain text, also where a member of an enum was given
