"""From what a producer asks for to batches of tasks: all is checked, nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

from attrs import define, field, fields, frozen

from buquet.core import codec, durations, index, keys, transitions
from buquet.core.model import TASK_NUMBERS, Batch, RetryPolicy, Task, moment, rfc3339
from buquet.core.transitions import Facts
from buquet.errors import InvalidOptions

BATCH_BYTES = 256 * 1024
"""How much input one batch takes, in bytes, unless a single task has more."""

OPEN_TASKS = 10_000
OPEN_BYTES = 32 * 1024 * 1024
"""How many tasks, and how much input, may wait for their batch to fill, of all types together."""


class SubmitOptions(TypedDict, total=False):
    """What `submit` takes beside the task type and the input; all of it is optional."""

    ttl: timedelta | None
    """The deadline, from when the task is due."""
    ttl_seconds: float | None
    """The same in seconds."""
    expires_at: datetime | None
    """The deadline: start before this or not at all."""
    schedule_at: datetime | None
    """Not to be started before."""
    delay: timedelta | None
    """The same, from now."""
    timeout_seconds: float | None
    """How long one attempt may run."""
    max_retries: int
    """How often it may be tried again: 3, unless given."""
    retry_policy: RetryPolicy
    """How long to wait before a retry."""
    priority: int
    """-100 to 100; higher goes first."""
    max_reschedules: int | None
    """How often a handler may put it off; None for any number of times."""


@frozen
class Item:
    """A task to be: the what, without the when."""

    number: int
    """Its place among those submitted together."""
    task_type: str
    input: Any = field(repr=False)
    size: int
    """Of its input as JSON, in bytes."""


@frozen(kw_only=True)
class Terms:
    """The options of a submit, worked out for a moment."""

    available_at: datetime
    expires_at: datetime | None
    timeout_seconds: float | None
    max_retries: int
    retry_policy: RetryPolicy
    priority: int
    max_reschedules: int | None


_TERMS = tuple(each.name for each in fields(Terms))
_TIMES = ("available_at", "expires_at")


def item(number: int, task_type: str, input: Any, *, path: str = "input") -> Item:
    """Check a task type and an input.

    Raises:
        InvalidOptions: if the type is none.
        InvalidPayload: if the input is not JSON, or too large.
    """
    return Item(number, keys.check_task_type(task_type), input, codec.payload_size(input, path))


def items(pairs: Iterable[tuple[str, Any]]) -> Iterator[Item]:
    """Check pairs of task type and input, one after another.

    Raises:
        InvalidOptions: if one is no such pair.
        InvalidPayload: if an input is not JSON, or too large; the path begins with `tasks[n]`.
    """
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidOptions(
                f"tasks[{number}] must be a pair (task_type, input), not {_described(pair)}."
            )
        yield item(number, pair[0], pair[1], path=f"tasks[{number}].input")


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, tuple | list) else kind


def groups(found: Iterable[Item], batch_size: int) -> Iterator[list[Item]]:
    """Sort items into groups that each make a batch: of one type, not too many, not too large.

    If the source breaks off with an error, what came before is still given out, and then the error.
    """
    filling = _Filling(batch_size)
    try:
        for new in found:
            yield from filling.add(new)
    except Exception:
        yield from filling.all()
        raise
    yield from filling.all()


@define
class _Group:
    items: list[Item] = field(factory=list)
    size: int = 0


@define
class _Filling:
    """The groups that have begun to fill, one for each type."""

    batch_size: int
    groups: dict[str, _Group] = field(factory=dict)
    count: int = 0
    size: int = 0

    def add(self, new: Item) -> Iterator[list[Item]]:
        """Put an item into its group; give out what is full then."""
        group = self.groups.get(new.task_type)
        if group and group.size + new.size > BATCH_BYTES:
            yield self._close(new.task_type)
        group = self.groups.setdefault(new.task_type, _Group())
        group.items.append(new)
        group.size += new.size
        self.count += 1
        self.size += new.size
        if len(group.items) >= self.batch_size:
            yield self._close(new.task_type)
        elif self.count >= OPEN_TASKS or self.size >= OPEN_BYTES:
            yield from self.all()

    def all(self) -> Iterator[list[Item]]:
        """Give out all groups as they are."""
        for task_type in list(self.groups):
            yield self._close(task_type)

    def _close(self, task_type: str) -> list[Item]:
        group = self.groups.pop(task_type)
        self.count -= len(group.items)
        self.size -= group.size
        return group.items


def check_batch_size(batch_size: int) -> int:
    """Return the batch size, if it is one.

    Raises:
        InvalidOptions: if it is not from 1 to 65,536.
    """
    return _whole(batch_size, "batch_size", 1, TASK_NUMBERS)


def terms(options: Mapping[str, Any], now: datetime) -> Terms:
    """Check the options and work them out for this moment.

    Raises:
        TypeError: if there is no such option; the message lists those there are.
        InvalidOptions: if one is out of range, or two contradict each other.
    """
    given = _known(options)
    available_at = _available_at(given, now)
    expires_at = _expires_at(given, available_at)
    is_scheduled = given.get("schedule_at") is not None or bool(given.get("delay"))
    if is_scheduled and expires_at is not None and available_at >= expires_at:
        raise InvalidOptions(
            f"It could never start: it is scheduled for {rfc3339(available_at)}, "
            f"and its deadline is {rfc3339(expires_at)}. Schedule it before its deadline."
        )
    policy = given.get("retry_policy")
    policy = RetryPolicy() if policy is None else policy
    if not isinstance(policy, RetryPolicy):
        raise InvalidOptions(f"retry_policy must be a RetryPolicy, not {policy!r}.")
    timeout, reschedules = given.get("timeout_seconds"), given.get("max_reschedules")
    return Terms(
        available_at=available_at,
        expires_at=expires_at,
        timeout_seconds=None if timeout is None else _timeout(timeout),
        max_retries=_whole(given.get("max_retries", 3), "max_retries", 0, 1_000_000),
        retry_policy=policy,
        priority=_whole(given.get("priority", 0), "priority", -100, 100),
        max_reschedules=None
        if reschedules is None
        else _whole(reschedules, "max_reschedules", 0, 1_000_000),
    )


def deadline(options: Mapping[str, Any], start: datetime) -> datetime | None:
    """Work out a deadline from `ttl`, `ttl_seconds` or `expires_at`; None if none is given.

    Raises:
        InvalidOptions: if more than one is given, or it is out of range.
    """
    return _expires_at(_known(options), start)


def batch(batch_id: str, group: list[Item], agreed: Terms, facts: Facts) -> Batch:
    """Make a new batch of a group of items."""
    # In the order of the group, so that ids sort as the tasks were given.
    tasks = tuple(
        _task(keys.task_id(batch_id, index), each, agreed, facts)
        for index, each in enumerate(group)
    )
    first_due = max(agreed.available_at, facts.now)
    new = Batch(
        id=batch_id,
        task_type=group[0].task_type,
        priority=agreed.priority,
        tasks=tasks,
        due=0,
    )
    return index.moved(new, keys.minute_of(first_due), facts.tail)


def like(task: Task, options: SubmitOptions) -> SubmitOptions:
    """Return the options with which a task is submitted anew: its own, but for its times."""
    own = {
        name: getattr(task, name) for name in _TERMS if name not in ("available_at", "expires_at")
    }
    return cast(SubmitOptions, own | options)


def _task(task_id: str, each: Item, agreed: Terms, facts: Facts) -> Task:
    new = Task(
        id=task_id,
        task_type=each.task_type,
        input=codec.copy_payload(each.input),
        created_at=facts.now,
        updated_at=facts.now,
        **{name: getattr(agreed, name) for name in _TERMS},
    )
    return transitions.create(new, facts)


def _known(options: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = options.keys() - SubmitOptions.__annotations__.keys()
    if unknown:
        names = ", ".join(sorted(SubmitOptions.__annotations__))
        raise TypeError(f"There is no option {min(unknown)!r}. There are: {names}.")
    return options


def _available_at(given: Mapping[str, Any], now: datetime) -> datetime:
    schedule_at, delay = given.get("schedule_at"), given.get("delay")
    if schedule_at is not None and delay is not None:
        raise InvalidOptions("Give schedule_at or delay, not both.")
    if schedule_at is not None:
        return moment(schedule_at, "schedule_at")
    if delay is None:
        return now
    return durations.later(now, _span(delay, "delay"), what="delay")


def _expires_at(given: Mapping[str, Any], start: datetime) -> datetime | None:
    named = [name for name in ("ttl", "ttl_seconds", "expires_at") if given.get(name) is not None]
    if len(named) > 1:
        raise InvalidOptions(f"Give {named[0]} or {named[1]}, not both.")
    if not named:
        return None
    name, value = named[0], given[named[0]]
    if name == "expires_at":
        return moment(value, name)
    span = _span(value if name == "ttl" else durations.seconds(value, what=name), name)
    return durations.later(start, span, what=name)


def _span(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta):
        seconds = isinstance(value, int | float) and not isinstance(value, bool)
        hint = f" For seconds, write timedelta(seconds={value!r})." if seconds else ""
        raise InvalidOptions(f"{name} must be a timedelta, not {value!r}.{hint}")
    if value < timedelta(0):
        raise InvalidOptions(f"{name} must not be negative, and is {value!r}.")
    return value


def _timeout(value: Any) -> float:
    if durations.seconds(value, what="timeout_seconds") <= timedelta(0):
        raise InvalidOptions(f"timeout_seconds must be above 0, not {value!r}.")
    return float(value)


def _whole(value: Any, name: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOptions(
            f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}."
        )
    return value
