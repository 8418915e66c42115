"""How values are written down: strict JSON, in which nothing is lost and nothing is guessed.

Fields that this version does not know are kept in `extra` and written back (rolling upgrades).
"""

from __future__ import annotations

import json
import math
from collections import abc
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from attrs import fields
from cattrs import BaseValidationError, Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from buquet.core import keys
from buquet.core.model import (
    Batch,
    Progress,
    RetryPolicy,
    Revision,
    Task,
    TaskStatus,
    WorkerRecord,
    rfc3339,
)
from buquet.errors import BuquetError, DamagedObject, InvalidPayload, PayloadTooLarge

PAYLOAD_LIMIT = 256 * 1024
"""How large an input or output may be as JSON, in bytes."""

MAX_DEPTH = 100
"""How deep the lists and objects of a payload may be nested."""

DOCUMENT_DEPTH = MAX_DEPTH + 20
"""How deep a document may be nested: a payload, and what there is around it."""

MAX_DIGITS = 4300
"""How long an integer may be: beyond this Python itself refuses to read it."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""What comes out of the store as it went in; kin of these, such as members of enums, do not."""

_T = TypeVar("_T")

LARGEST_COUNT = 2**63 - 1
"""No number of ours is larger: one of thousands of digits could be read, but not counted on."""

_DAMAGE = (
    BaseValidationError,
    BuquetError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    RecursionError,
)
"""What reading a document of the wrong shape may raise."""


# --- payloads


def payload_size(value: Any, path: str) -> int:
    """Check that an input or output is JSON and not too large; return its size in bytes.

    Args:
        value: the payload.
        path: what to call it in errors: `input` or `output`.

    Raises:
        InvalidPayload: naming the path of the first value that is not JSON.
        PayloadTooLarge: if it is above `PAYLOAD_LIMIT`.
    """
    _Walk(path).check(value, path, 0)
    size = len(_dumps(value).encode())
    if size > PAYLOAD_LIMIT:
        raise PayloadTooLarge(path, size, PAYLOAD_LIMIT)
    return size


def copy_payload(value: Any) -> Any:
    """Return a copy of a payload, as it would come out of the store."""
    if isinstance(value, Mapping):
        return {copy_payload(key): copy_payload(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_payload(item) for item in value]
    return value if type(value) in _PLAIN else json.loads(_dumps(value))


class _Walk:
    """A walk through a payload that ends where the payload is certain to be too large.

    Writing it down first would be too late: lists that hold the same list twice, and so on, are
    small in memory and without end as JSON.
    """

    def __init__(self, payload: str) -> None:
        self._payload = payload
        self._size = 0

    def check(self, value: Any, path: str, depth: int) -> None:
        if self._size > PAYLOAD_LIMIT:
            raise PayloadTooLarge(self._payload, self._size, PAYLOAD_LIMIT)
        if depth > MAX_DEPTH:
            raise InvalidPayload(path, f"is nested deeper than {MAX_DEPTH} levels")
        match value:
            case None | bool():
                self._size += 4
            case str():
                self._text(value, path)
            case int():
                _check_integer(value, path)
                self._size += 1 + (value.bit_length() - 1) // 4  # a digit takes 3.3 bits
            case float():
                _check_float(value, path)
                self._size += 3
            case dict():
                self._object(value, path, depth)
            case list() | tuple():
                self._list(value, path, depth)
            case _:
                kind = type(value).__name__
                raise InvalidPayload(
                    path, f"is of type {kind}, which JSON does not have: pass text instead"
                )

    def _list(self, value: list[Any] | tuple[Any, ...], path: str, depth: int) -> None:
        self._size += 2
        for index, item in enumerate(value):
            self.check(item, f"{path}[{index}]", depth + 1)

    def _object(self, value: dict[Any, Any], path: str, depth: int) -> None:
        self._size += 2
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidPayload(path, f"has the key {key!r}; in JSON all keys are text")
            self._text(key, path)
            self.check(item, f"{path}.{key}", depth + 1)

    def _text(self, value: str, path: str) -> None:
        _check_text(value, path)
        self._size += 2 + len(value)


def _check_text(value: str, path: str) -> None:
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload(path, "has a lone surrogate, which is no character") from error


def _check_float(value: float, path: str) -> None:
    if not math.isfinite(value):
        raise InvalidPayload(path, f"is {value!r}, which JSON does not have")


def _check_integer(value: int, path: str) -> None:
    # The exact look is only for what comes near.
    if value.bit_length() > 3 * MAX_DIGITS and abs(value) >= 10**MAX_DIGITS:
        raise InvalidPayload(path, f"is an integer of more than {MAX_DIGITS:,} digits")


# --- documents


def encode_batch(batch: Batch) -> bytes:
    """Write a batch down."""
    head = _dumps(_converter.unstructure(batch))
    tasks = ",".join([_task_text(task) for task in batch.tasks])
    return _bytes(f'{head[:-1]},"tasks":[{tasks}]}}')


def decode_batch(body: bytes, key: str) -> Batch:
    """Read a batch.

    Raises:
        DamagedObject: if it is none, or if ids or types in it contradict each other.
    """
    batch = _read(body, key, Batch)
    ids = {task.id for task in batch.tasks if keys.is_task_id(task.id)}
    if len(ids) != len(batch.tasks) or any(task.batch_id != batch.id for task in batch.tasks):
        raise DamagedObject(key, "its tasks do not have ids of their own within the batch")
    if any(task.task_type != batch.task_type for task in batch.tasks):
        raise DamagedObject(key, "its tasks are not all of its type")
    return batch


def encode_worker(record: WorkerRecord) -> bytes:
    """Write a worker's record down."""
    return _bytes(_dumps(_converter.unstructure(record)))


def decode_worker(body: bytes, key: str) -> WorkerRecord:
    """Read a worker's record.

    Raises:
        DamagedObject: if it is none, or names tasks by what are no ids.
    """
    record = _read(body, key, WorkerRecord)
    if not all(keys.is_task_id(task_id) for task_id in record.running):
        raise DamagedObject(key, "it names tasks by what are no ids")
    return record


def to_json(value: Any) -> str:
    """Write any JSON value for people and pipes: ASCII only, so that every terminal can show it."""
    return json.dumps(value, indent=2, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Read JSON, refusing what is not: NaN, infinities, numbers too large to hold.

    Raises:
        ValueError: saying what is wrong.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _bytes(text: str) -> bytes:
    # Payloads have no lone surrogates, but a name or an error from elsewhere may: what stands for
    # them then is their escape in JSON.
    return text.encode("utf-8", "backslashreplace")


def _task_text(task: Task) -> str:
    if task.memo is None:
        # The one write to a frozen value: the memo is no part of what the task is.
        object.__setattr__(task, "memo", _dumps(_converter.unstructure(task)))
    return task.memo or ""


def _read(body: bytes, key: str, kind: type[_T]) -> _T:
    try:
        document = loads(body)
        _check_depth(document)
        return _converter.structure(document, kind)
    except _DAMAGE as error:
        raise DamagedObject(key, _describe(error)) from error


def _check_depth(document: Any) -> None:
    """Refuse what Python can read but, a few frames further down, neither write nor show."""
    level: list[Any] = [[document]]
    for _ in range(DOCUMENT_DEPTH + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) in (dict, list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DOCUMENT_DEPTH} levels")


def _describe(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error).rstrip(".") or type(error).__name__


# --- the converter


def _exactly(kind: type[_T], *also: type) -> Callable[[Any, Any], _T]:
    kinds = (kind, *also)

    def structure(value: Any, _: Any) -> _T:
        if type(value) not in kinds:
            raise TypeError(f"{_short(value)} is no {kind.__name__}")
        return kind(value)  # type: ignore[call-arg]  # str, int, float, bool, dict all take one

    return structure


def _count(value: Any, _: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST_COUNT:
        raise TypeError(f"{_short(value)} is no int")
    return value


def _status(value: Any, _: Any) -> TaskStatus:
    try:
        return TaskStatus(value)
    except ValueError:  # whose text has the value in full
        raise ValueError(f"{_short(value)} is no status") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _tuple_of(converter: Converter, item: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    read = converter.get_structure_hook(item)

    def structure(value: Any, _: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError(f"{_short(value)} is no list")
        return tuple([read(each, item) for each in value])

    return structure


def _by_name(converter: Converter, item: type[_T]) -> Callable[[Any, Any], dict[str, _T]]:
    read = converter.get_structure_hook(item)

    def structure(value: Any, _: Any) -> dict[str, _T]:
        if type(value) is not dict:
            raise TypeError(f"{_short(value)} is no dict")
        return {name: read(each, item) for name, each in value.items()}

    return structure


def _moment(value: Any, _: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError(f"{_short(value)} is no time")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:  # whose text has the value in full
        raise ValueError(f"{_short(value)} is no time") from None
    return moment if moment.tzinfo in (None, UTC) else moment.astimezone(UTC)


def _with_extra(converter: Converter, kind: type[Any], *apart: str) -> None:
    """Teach the converter a class whose unknown fields go to `extra` and come out again."""
    hidden: dict[str, Any] = {name: override(omit=True) for name in ("extra", *apart)}
    write = make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True, **hidden)
    read = make_dict_structure_fn(
        kind, converter, _cattrs_detailed_validation=False, extra=override(omit=False)
    )
    known = frozenset(each.name for each in fields(kind) if each.init) - {"extra"}

    def unstructure(value: Any) -> dict[str, Any]:
        written = write(value)
        return {**value.extra, **written} if value.extra else written

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"{_short(value)} is no {kind.__name__.lower()}")
        unknown = value.keys() - known
        if unknown:
            value = {**value, "extra": {name: value[name] for name in sorted(unknown)}}
        return read(value, kind)

    converter.register_unstructure_hook(kind, unstructure)
    converter.register_structure_hook(kind, structure)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    converter.register_structure_hook(str, _exactly(str))
    converter.register_structure_hook(bool, _exactly(bool))
    converter.register_structure_hook(int, _count)
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook(datetime, _moment)
    converter.register_unstructure_hook(datetime, rfc3339)
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is abc.Mapping, _exactly(dict)
    )
    converter.register_structure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _tuple_of(converter, kind.__args__[0]),
    )
    converter.register_structure_hook(TaskStatus, _status)
    converter.register_unstructure_hook(TaskStatus, str)
    _with_extra(converter, RetryPolicy)
    _with_extra(converter, Revision)
    _with_extra(converter, Task)
    _with_extra(converter, Batch, "tasks")
    _with_extra(converter, Progress)
    converter.register_structure_hook_func(
        lambda kind: kind == Mapping[str, Progress], _by_name(converter, Progress)
    )
    _with_extra(converter, WorkerRecord)
    return converter


_converter = _make_converter()
