"""What people write by hand: durations, rates, URLs, the environment. It is read, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buquet import ConfigurationError, InvalidOptions, Queue, RetryPolicy, Worker, connect
from buquet.core.durations import format_duration, parse_duration
from buquet.store.location import Location, parse_url
from buquet.testing import FakeClock
from buquet.worker.limits import parse_rate
from tests.fuzz.documents import ODD_NUMBERS, ODD_TEXTS, ODD_VALUES
from tests.fuzz.effort import examples

DIGITS = st.sampled_from(
    ["0", "1", "007", "1.5", ".5", "5.", "-1", "1e9", "\u0665", "9" * 30, "9" * 400]
)
UNITS = st.sampled_from(["", "ms", "s", "m", "h", "d", "w", "y", "M", " ", "\n", "\u00a0", "/"])
AMOUNTS = st.lists(st.tuples(DIGITS, UNITS).map("".join), max_size=4).map("".join)
URLS = st.lists(
    st.sampled_from(
        [
            *("s3:", "sqlite:", "memory:", "S3:", "http:", "//", "///", "////", "/", ":", "?", "#"),
            *("bucket", "b", "a" * 300, "..", "x.db", ":memory:", "arn:aws:s3", "@", "%00", " "),
        ]
    )
    | ODD_TEXTS,
    max_size=6,
).map("".join)


@given(AMOUNTS | st.text(max_size=12))
@examples(500)
def test_any_text_is_a_duration_or_no_duration(text: str) -> None:
    try:
        span = parse_duration(text)
    except InvalidOptions:
        return
    assert timedelta(0) <= span
    assert parse_duration(f"{span.total_seconds():f}") == span
    assert parse_duration(format_duration(span)) <= span


@given(st.tuples(DIGITS, st.sampled_from("/,"), UNITS).map("".join) | st.text() | ODD_VALUES)
@examples(300)
def test_any_value_is_a_rate_or_no_rate(value: Any) -> None:
    try:
        rate = parse_rate(value)
    except ConfigurationError:
        return
    assert rate.count >= 1
    count, unit = re.fullmatch(r"0*(\d+)/([smhd])", value.strip()).groups()  # type: ignore[union-attr]
    assert (str(rate.count), rate.seconds) == (
        count,
        {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit],
    )


@given(URLS)
@examples(500)
def test_any_text_names_a_store_or_none(url: str) -> None:
    try:
        location = parse_url(url)
    except ConfigurationError:
        return
    written = {
        "s3": f"s3://{location.name}/{location.prefix}",
        "sqlite": f"sqlite:///{location.name}",
        "memory": "memory:",
    }[location.scheme]
    assert parse_url(written) == location
    assert location.name or location == Location("memory")


@pytest.fixture
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(
    url=URLS.filter(lambda text: "\0" not in text) | st.just("s3://bucket"),
    endpoint=st.sampled_from(["", "x", "http://", "http://[", "http://a b", "://", "é", "ftp://x"]),
)
@examples(150)
def test_whatever_is_in_the_environment_opens_a_queue_or_is_refused(
    environment: pytest.MonkeyPatch, url: str, endpoint: str
) -> None:
    environment.setenv("BUQUET_URL", url.encode("utf-8", "replace").decode())
    environment.setenv("BUQUET_ENDPOINT_URL", endpoint)
    try:
        with connect() as queue:
            assert isinstance(queue, Queue)
    except ConfigurationError:
        return


OPTIONS = {
    "priority": st.integers(-101, 101),
    "max_retries": ODD_NUMBERS,
    "max_reschedules": st.none() | ODD_NUMBERS,
    "timeout_seconds": st.none() | ODD_NUMBERS,
    "ttl_seconds": st.none() | ODD_NUMBERS,
    "ttl": st.none() | st.timedeltas(),
    "delay": st.none() | st.timedeltas(),
    "expires_at": st.none() | st.datetimes(timezones=st.none() | st.timezones()),
    "schedule_at": st.none() | st.datetimes(timezones=st.none() | st.timezones()),
}
SUBMITS = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.none(), max_size=4).flatmap(
    lambda chosen: st.fixed_dictionaries({name: OPTIONS[name] | ODD_VALUES for name in chosen})
)


@given(SUBMITS)
@examples(400)
def test_whatever_is_asked_of_a_submit_is_kept_to_or_refused(options: dict[str, Any]) -> None:
    clock = FakeClock()
    queue = connect("memory:", clock=clock)
    worker = Worker(queue, check=False)
    worker.task("ok")(lambda _: None)
    try:
        task = queue.submit("ok", **options)
    except InvalidOptions:
        assert not list(queue.list())
        return

    assert queue.get(task.id) == task
    assert task.priority == options.get("priority", 0)
    worker.drain()
    clock.advance(days=400)
    worker.drain()

    ended = queue.get(task.id)
    assert ended.status.is_final or ended.available_at > queue.now()


@given(
    st.dictionaries(
        st.sampled_from(["initial_seconds", "factor", "max_seconds", "jitter"]), ODD_VALUES
    ),
    st.integers(-1, 2**63),
    st.floats(0, 1, exclude_max=True),
)
@examples(300)
def test_any_policy_waits_for_at_most_its_longest_or_is_refused(
    settings: dict[str, Any], retry: int, chance: float
) -> None:
    try:
        policy = RetryPolicy(**settings)
    except ConfigurationError:
        return
    assert 0 <= policy.delay_seconds(retry, chance) <= policy.max_seconds
