"""Requests to stop, by signals and from a supervisor: which of them are one and the same."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from buquet.cli.lifeline import NOW, STOP, Lifeline
from buquet.cli.stopping import StopRequests
from buquet.testing import FakeClock


class Heard:
    """The counts that were acted upon, in order."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._came = threading.Condition()

    def __call__(self, count: int) -> None:
        with self._came:
            self.counts.append(count)
            self._came.notify_all()

    def after(self, number: int) -> list[int]:
        """Wait for so many; return all."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.counts) >= number, 10)
        return sorted(self.counts)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    """The supervisor's end; the other end is its `peer`."""
    ours, theirs = (Lifeline(end) for end in socket.socketpair())
    ours.peer = theirs  # type: ignore[attr-defined]
    yield ours
    ours.close()
    theirs.close()


def test_a_signal_that_a_platform_sends_twice_is_one_request(heard: Heard) -> None:
    requests = StopRequests(heard, FakeClock())

    requests.on_signal(signal.SIGTERM)
    requests.on_signal(signal.SIGTERM)

    assert requests.count == 1
    assert heard.after(1) == [1]


def test_a_second_signal_later_on_is_a_second_request(heard: Heard) -> None:
    clock = FakeClock()
    requests = StopRequests(heard, clock)

    requests.on_signal(signal.SIGTERM)
    clock.advance(seconds=1)
    requests.on_signal(signal.SIGTERM)
    clock.advance(seconds=1)
    requests.on_signal(signal.SIGTERM)

    assert heard.after(3) == [1, 2, 3]


def test_another_signal_is_a_second_request_at_once(heard: Heard) -> None:
    requests = StopRequests(heard, FakeClock())

    requests.on_signal(signal.SIGTERM)
    requests.on_signal(signal.SIGINT)

    assert heard.after(2) == [1, 2]


def test_a_stop_that_comes_by_signal_and_from_the_supervisor_is_one_request(
    heard: Heard, lifeline: Lifeline
) -> None:
    requests = StopRequests(heard, FakeClock())
    requests.follow(lifeline.peer)  # type: ignore[attr-defined]

    requests.on_signal(signal.SIGTERM)
    lifeline.say(STOP)
    heard.after(1)
    lifeline.say(NOW)

    assert heard.after(2) == [1, 2]


def test_a_process_whose_supervisor_is_gone_stops_in_order(
    heard: Heard, lifeline: Lifeline
) -> None:
    requests = StopRequests(heard, FakeClock())
    requests.follow(lifeline.peer)  # type: ignore[attr-defined]

    lifeline.close()

    assert heard.after(1) == [1]
