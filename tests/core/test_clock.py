from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from buquet.clock import EPOCH, StoreClock, SystemClock
from buquet.testing import FakeClock
from buquet.testing.clock import START


@define
class Server:
    """A store that answers with its `Date`, in whole seconds, as HTTP has it."""

    offset: float
    """By how much its clock is ahead of the local monotonic one."""
    local: FakeClock = field(factory=FakeClock)

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.local.monotonic() + self.offset)

    def answer(self, clock: StoreClock, *, there: float = 0.05, back: float = 0.05) -> None:
        sent = self.local.monotonic()
        self.local.advance(there)
        date = self.now().replace(microsecond=0)
        self.local.advance(back)
        clock.observe(date, sent, self.local.monotonic())


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_monotonic_time_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {time.CLOCK_BOOTTIME: 7200.0, time.CLOCK_MONOTONIC: 0.0}  # it has slept for two hours
    monkeypatch.setattr(time, "clock_gettime", shown.__getitem__)

    assert SystemClock().monotonic() == 7200


def test_before_any_answer_the_local_time_serves() -> None:
    local = FakeClock()
    clock = StoreClock(local)

    assert not clock.has_answer
    assert clock.now() == local.now()


def test_one_answer_tells_the_time_to_within_a_second() -> None:
    server = Server(offset=1234.5)
    clock = StoreClock(server.local)

    server.answer(clock)

    assert clock.has_answer
    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


def test_after_an_answer_that_took_long_the_time_is_not_too_late() -> None:
    server = Server(offset=1234.5)
    clock = StoreClock(server.local)

    server.answer(clock, there=1, back=8)
    assert clock.now() <= server.now() + timedelta(seconds=0.75)
    assert clock.latest() >= server.now()
    server.answer(clock)

    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


def test_an_answer_for_whose_time_the_process_was_stopped_does_not_tell_the_time() -> None:
    server = Server(offset=1234.5)
    clock = StoreClock(server.local)

    server.answer(clock, there=1, back=400)
    assert not clock.has_answer
    server.answer(clock)

    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


@given(
    offset=st.floats(-4000, 4000),
    trips=st.lists(
        st.tuples(st.floats(0.001, 2), st.floats(0.001, 2), st.floats(0, 3)), min_size=1, max_size=9
    ),
)
def test_however_slow_the_answers_the_time_is_hardly_too_late_and_not_much_too_early(
    offset: float, trips: list[tuple[float, float, float]]
) -> None:
    server = Server(offset)
    clock = StoreClock(server.local)
    width = 0.0

    for there, back, pause in trips:
        server.local.advance(pause)
        server.answer(clock, there=there, back=back)
        width = max(width, 1 + there + back)

        late = (clock.now() - server.now()).total_seconds()
        assert -width - 0.001 <= late <= min(width / 2, 0.75) + 0.001


@given(
    offset=st.floats(-4000, 4000),
    trips=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=20),
)
def test_the_latest_that_it_may_be_is_never_before_the_stores_own_time(
    offset: float, trips: list[tuple[float, float]]
) -> None:
    server = Server(offset)
    clock = StoreClock(server.local)

    for there, back in trips:
        server.answer(clock, there=there, back=back)

        assert clock.latest() >= server.now() - timedelta(microseconds=10)
        assert clock.latest() >= clock.now()


@pytest.mark.parametrize("drift", [5e-4, -5e-4])
@pytest.mark.parametrize("pause", [0.97, 61.3, 3601.0])
def test_a_clock_that_drifts_never_has_the_latest_before_the_stores_own_time(
    drift: float, pause: float
) -> None:
    server = Server(offset=12.3)
    clock = StoreClock(server.local)

    for _ in range(300):
        server.answer(clock, there=0.01, back=0.02)
        server.local.advance(pause)
        server.offset += drift * pause

        assert clock.latest() >= server.now() - timedelta(milliseconds=1)
        assert abs((clock.now() - server.now()).total_seconds()) <= 0.6 + abs(drift) * pause


def test_many_answers_narrow_it_down_to_a_round_trip() -> None:
    server = Server(offset=-77.123)
    clock = StoreClock(server.local)

    for _ in range(40):
        server.answer(clock, there=0.01, back=0.02)
        server.local.advance(0.997)

    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.03)


def test_a_slow_answer_does_not_widen_what_is_known() -> None:
    server = Server(offset=0)
    clock = StoreClock(server.local)
    for _ in range(40):
        server.answer(clock, there=0.01, back=0.01)
        server.local.advance(0.08)
    before = clock.now() - server.now()

    server.answer(clock, there=30, back=30)

    assert abs((clock.now() - server.now()) - before) <= timedelta(seconds=0.01)


@pytest.mark.parametrize("jump", [-3600, -60, 5, 3600])
def test_where_answers_contradict_each_other_the_latest_stands_alone(jump: float) -> None:
    server = Server(offset=0)
    clock = StoreClock(server.local)
    server.answer(clock)

    server.offset += jump
    server.answer(clock)

    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0.001, 1), st.floats(0, 2)), max_size=9))
def test_better_bounds_never_make_the_time_go_back(
    trips: list[tuple[float, float, float]],
) -> None:
    server = Server(offset=0.3)
    clock = StoreClock(server.local)
    server.answer(clock)
    latest = clock.now()

    for there, back, pause in trips:
        server.local.advance(pause)
        server.answer(clock, there=there, back=back)

        assert clock.now() >= latest
        latest = clock.now()


def test_the_time_stands_still_until_a_store_that_went_back_a_little_has_caught_up() -> None:
    server = Server(offset=0)
    clock = StoreClock(server.local)
    server.answer(clock)
    before = clock.now()

    server.offset -= 2
    server.answer(clock)

    assert clock.now() == before
    server.local.advance(3)
    assert before < clock.now()
    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        (timedelta(seconds=120), "120 seconds ahead of"),
        (timedelta(seconds=-120), "120 seconds behind"),
        (timedelta(hours=1), "3600 seconds ahead of"),
        (timedelta(hours=-1), "3600 seconds behind"),
    ],
)
def test_a_machine_whose_clock_is_off_gets_one_warning_that_names_the_offset(
    skew: timedelta, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(offset=0, local=FakeClock(START + timedelta(seconds=0.45), skew=skew))
    clock = StoreClock(server.local)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            server.answer(clock)

    [text] = [record.getMessage() for record in caplog.records]
    assert words in text
    assert abs(clock.now() - server.now()) <= timedelta(seconds=0.6)


def test_threads_that_hear_of_an_offset_at_once_warn_of_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(offset=0, local=FakeClock(skew=timedelta(hours=1)))
    clock = StoreClock(server.local)
    barrier = threading.Barrier(8)

    def observe() -> None:
        barrier.wait(10)
        clock.observe(server.now(), server.local.monotonic(), server.local.monotonic())

    threads = [threading.Thread(target=observe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(caplog.records) == 1


def test_a_clock_that_is_nearly_right_gets_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(offset=0, local=FakeClock(skew=timedelta(seconds=8)))

    server.answer(StoreClock(server.local))

    assert caplog.records == []


def test_the_wall_clock_of_this_machine_does_not_move_the_time_of_the_store() -> None:
    server = Server(offset=0)
    clock = StoreClock(server.local)
    server.answer(clock)
    before = clock.now()

    server.local.skew = timedelta(hours=1)

    assert clock.now() == before


def test_the_machines_own_clock_gives_aware_times_in_utc() -> None:
    clock = SystemClock()

    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() <= clock.monotonic()
    assert not clock.event().wait(0)
    clock.sleep(0)
