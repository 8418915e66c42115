"""However strange the dates that a store sends: its time is bounded, and does not go back."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from buquet.clock import EPOCH, LARGEST_CORRECTION, StoreClock
from buquet.testing import FakeClock
from tests.fuzz.effort import examples

SPANS = st.floats(0, 3) | st.sampled_from([0.0, 0.001, 60.0, 3600.0])
TICK = timedelta(microseconds=2)
"""What rounding to microseconds may make of a time."""


@frozen
class Answer:
    """One answer of a store, and what comes before it."""

    pause: float
    """How long nothing is asked."""
    there: float
    back: float
    """How long the question and the answer take."""
    jump: float
    """By how much the store's clock has been set anew, or is another server's."""


ANSWERS = st.builds(
    Answer,
    pause=SPANS,
    there=SPANS,
    back=SPANS,
    jump=st.just(0.0) | st.sampled_from([-3600.0, -5.1, -4.9, -1.0, 1.0, 5.1, 86400.0])
    | st.floats(-1e6, 1e6),
)  # fmt: skip
OFFSETS = st.floats(-1e6, 1e6)


class Watched:
    """A store's clock, the clock made of its answers, and what that has shown."""

    def __init__(self, offset: float) -> None:
        self.local = FakeClock()
        self.clock = StoreClock(self.local)
        self.offset = offset

    def true_now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.local.monotonic() + self.offset)

    def take(self, answer: Answer) -> float:
        """Let it answer; return how long that took."""
        self.local.advance(answer.pause)
        self.offset += answer.jump
        sent = self.local.monotonic()
        self.local.advance(answer.there)
        date = self.true_now().replace(microsecond=0)
        self.local.advance(answer.back)
        self.clock.observe(date, sent, self.local.monotonic())
        return self.local.monotonic() - sent


@given(OFFSETS, st.lists(ANSWERS, min_size=1, max_size=12))
@examples(400)
def test_time_goes_back_by_more_than_a_correction_or_not_at_all(
    offset: float, answers: list[Answer]
) -> None:
    watched = Watched(offset)
    last = None

    for answer in answers:
        watched.take(answer)
        now = watched.clock.now()
        if last is not None and now < last:
            assert last - now > LARGEST_CORRECTION
        assert watched.clock.latest() >= now
        last = now


@given(OFFSETS, st.lists(ANSWERS, min_size=1, max_size=12))
@examples(400)
def test_after_any_answers_the_time_is_within_the_last_ones_bounds_or_shown_before(
    offset: float, answers: list[Answer]
) -> None:
    watched = Watched(offset)
    shown = EPOCH

    for answer in answers:
        took = watched.take(answer)
        now, true = watched.clock.now(), watched.true_now()
        # The store's clock had come to its Date when it answered, and had not got a second further.
        low, high = -timedelta(seconds=1 + took) - TICK, timedelta(seconds=1 + took) + TICK
        assert low <= now - true <= high or now == shown
        assert now <= max(true + high, shown)
        shown = now


@given(OFFSETS, st.lists(ANSWERS, min_size=1, max_size=12))
@examples(400)
def test_the_latest_is_not_before_the_time_of_the_server_that_answered_last(
    offset: float, answers: list[Answer]
) -> None:
    watched = Watched(offset)

    for number, answer in enumerate(answers):
        watched.take(answer)
        # A jump within the bounds is not seen: then it is what the bounds allow.
        if number == 0 or abs(answer.jump) > 3600 * 3:
            assert watched.clock.latest() >= watched.true_now() - TICK


@given(OFFSETS, st.lists(ANSWERS, min_size=1, max_size=12), st.lists(SPANS, max_size=5))
@examples(200)
def test_between_answers_time_goes_as_the_local_one_does(
    offset: float, answers: list[Answer], pauses: list[float]
) -> None:
    watched = Watched(offset)
    for answer in answers:
        watched.take(answer)
    begin = watched.clock.now()

    for pause in pauses:
        before = watched.clock.now()
        watched.local.advance(pause)
        assert watched.clock.now() >= before

    assert watched.clock.now() - begin <= timedelta(seconds=sum(pauses)) + TICK * 3
