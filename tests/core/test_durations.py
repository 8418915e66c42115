from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buquet import InvalidOptions
from buquet.core.durations import format_duration, later, parse_duration, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        (" 7d ", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("300", timedelta(minutes=5)),
        ("0", timedelta(0)),
        ("0.25", timedelta(milliseconds=250)),
        ("5 m", timedelta(minutes=5)),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "-5m", "5 months", "5y", "m5", "1h30", "1,5h", "1e3s", "nan", "inf", "h"]
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidOptions, match=r"not a duration.*1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1m s", "1 0s", "1 . 5h"])
def test_a_blank_within_a_number_or_a_unit_is_not_guessed_at(text: str) -> None:
    with pytest.raises(InvalidOptions, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "d", "99999999999w", "1e999"])
def test_a_duration_beyond_all_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptions):
        parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        span = parse_duration(text)
    except InvalidOptions:
        return
    assert span >= timedelta(0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 10**400, 1e300])
def test_a_number_of_seconds_that_makes_no_duration_is_refused_by_name(number: float) -> None:
    with pytest.raises(InvalidOptions, match=r"^ttl_seconds "):
        seconds(number, what="ttl_seconds")


@pytest.mark.parametrize("number", [True, "5", None, timedelta(1)])
def test_what_is_no_number_is_refused_by_name(number: object) -> None:
    with pytest.raises(InvalidOptions, match="ttl_seconds must be a number of seconds"):
        seconds(number, what="ttl_seconds")  # type: ignore[arg-type]


def test_a_moment_after_the_year_9999_is_refused_by_name() -> None:
    with pytest.raises(InvalidOptions, match=r"ttl is too long.*9999"):
        later(datetime(9999, 12, 31, tzinfo=UTC), timedelta(days=2), what="ttl")


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(0), "0ms"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(microseconds=999_999), "999ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(hours=2, minutes=30, seconds=59), "2h 30m"),
        (timedelta(hours=1, seconds=5), "1h"),
        (timedelta(days=1), "1d"),
        (timedelta(days=400, hours=10), "400d 10h"),
        (-timedelta(minutes=90), "1h 30m"),
    ],
)
def test_a_duration_is_written_with_its_two_largest_units(span: timedelta, expected: str) -> None:
    assert format_duration(span) == expected


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9999)))
def test_what_is_written_is_read_back_a_little_shorter_at_most(span: timedelta) -> None:
    read = parse_duration(format_duration(span))

    assert read <= span
    assert span - read < max(span / 20, timedelta(milliseconds=1))
