"""Durations as people write them: `90s`, `5m`, `1h30m`, `7d`."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from buquet.errors import InvalidOptions

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PLAIN = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(rf"({_PLAIN.pattern})\s*(ms|[smhdw])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read a duration: numbers with units `ms s m h d w`, or a plain number of seconds.

    Raises:
        InvalidOptions: if it is none, e.g. empty, negative, or in months.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    given = text.strip()
    if _PLAIN.fullmatch(given):
        return seconds(float(given), what="the duration")
    if not _WHOLE.fullmatch(given):
        raise InvalidOptions(f"{text!r} is not a duration. Write e.g. 90s, 5m, 1h30m, 7d or 500ms.")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(given))
    return seconds(total, what="the duration")


def seconds(number: float, *, what: str) -> timedelta:
    """Make a timedelta of a number of seconds, or say by name why it can't be one.

    Raises:
        InvalidOptions: if it is not a number, not finite, or too large.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidOptions(f"{what} must be a number of seconds, not {number!r}.")
    try:
        if not math.isfinite(number):
            raise InvalidOptions(f"{what} must be finite, not {number!r}.")
        return timedelta(seconds=number)
    except OverflowError as error:
        raise InvalidOptions(f"{what} is too long: at most {timedelta.max.days:,} days.") from error


def later(moment: datetime, span: timedelta, *, what: str) -> datetime:
    """Return the moment that is `span` after another, or say by name why there is none.

    Raises:
        InvalidOptions: if it is beyond the year 9999.
    """
    try:
        return moment + span
    except OverflowError as error:
        raise InvalidOptions(f"{what} is too long: it ends after the year 9999.") from error


def format_duration(span: timedelta) -> str:
    """Write a duration for people, with its two largest units.

    >>> format_duration(timedelta(hours=2, minutes=30, seconds=59))
    '2h 30m'
    """
    left = abs(span.total_seconds())
    if left < 1:
        return f"{int(left * 1000)}ms"
    left = int(left)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNITS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if part[0] != "0")
