"""What a supervisor does about what happens; with real processes: tests/integration."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from buquet.cli.lifeline import Lifeline
from buquet.cli.program import RELOAD
from buquet.cli.supervisor import LONG_LIFE, Plan, Slot, Supervisor, ending
from buquet.testing import FakeClock
from buquet.worker.health import HealthFile, file_of, touch_as_oldest


def supervisor(**plan: object) -> tuple[Supervisor, Slot]:
    """A supervisor with a slot whose process has just been started."""
    made = Supervisor(Plan(command=lambda _: [], processes=1, **plan), FakeClock())  # type: ignore[arg-type]
    (slot,) = made._slots
    slot.start_at, slot.born_at = None, made.clock.monotonic()
    return made, slot


def test_the_delay_grows_to_a_limit_and_starts_anew_after_a_long_life() -> None:
    slot, now = Slot(1), 1000.0
    delays = []
    for _ in range(9):
        slot.born_at = now
        delays.append(slot.next_delay(now + 1))

    slot.born_at = now

    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert slot.next_delay(now + LONG_LIFE) == 0.5


@pytest.mark.parametrize(
    ("plan", "code", "delay"),
    [
        ({}, 1, 0.5),
        ({}, -signal.SIGSEGV, 0.5),
        ({}, 0, 0.5),
        ({}, 5, 0.5),
        ({"is_recycled": True}, 0, 0),
        ({"is_recycled": True}, 1, 0.5),
        ({"is_burst": True}, 1, 0.5),
        ({"is_reloaded": True}, RELOAD, 0),
        ({"is_reloaded": True}, 2, 0.5),
    ],
)
def test_a_process_that_ended_is_replaced(plan: dict[str, bool], code: int, delay: float) -> None:
    made, slot = supervisor(**plan)
    slot.meant = code

    made._on_end(slot, code)

    assert slot.start_at == made.clock.monotonic() + delay


@pytest.mark.parametrize(
    ("plan", "code", "exit_code"),
    [({}, 2, 2), ({"is_burst": True}, 0, 0), ({"is_burst": True}, 5, 5)],
)
def test_a_process_that_has_done_its_part_or_never_will_is_not_replaced(
    plan: dict[str, bool], code: int, exit_code: int
) -> None:
    made, slot = supervisor(**plan)
    slot.meant = code

    made._on_end(slot, code)

    assert slot.is_over
    assert made.run() == exit_code


@pytest.mark.parametrize(
    ("code", "exit_code"), [(0, 0), (-15, 0), (130, 0), (RELOAD, 0), (1, 1), (-9, 1)]
)
def test_the_exit_code_tells_whether_all_left_in_order(code: int, exit_code: int) -> None:
    made, slot = supervisor()
    made._on_stop(1)

    made._on_end(slot, code)

    assert made.run() == exit_code


@pytest.mark.parametrize("code", [0, 2, 5, RELOAD])
@pytest.mark.parametrize("plan", [{}, {"is_burst": True}, {"is_recycled": True}], ids=str)
def test_an_exit_code_that_the_process_has_not_said_is_that_of_a_crash(
    plan: dict[str, bool], code: int
) -> None:
    made, slot = supervisor(**plan)

    made._on_end(slot, code)

    assert slot.start_at == made.clock.monotonic() + 0.5


@contextmanager
def stubborn(slot: Slot) -> Iterator[Lifeline]:
    """Fill a slot with a process that does not end; yield its end of the lifeline."""
    slot.line, theirs = (Lifeline(end) for end in socket.socketpair())
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); input()"
    slot.process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with slot.process:
        yield theirs
    slot.line.close()
    theirs.close()


@pytest.mark.parametrize(
    ("words", "stops", "seconds"),
    [
        ([["grace", 30]], [1], 30 + 10 + 2),
        ([["grace", 30]], [1, 2], 5 + 2),
        ([["grace", 30]], [1, 2, 3], 0),
        ([["grace", 30], ["ending"]], [], 30 + 10 + 2),
        ([["grace", 30], ["exit", 0]], [], 5 + 2),
        ([["grace", 30], ["ending"], ["exit", 0]], [], 5 + 2),
    ],
    ids=str,
)
def test_a_process_that_does_not_end_in_time_is_killed(
    words: list[list[object]], stops: list[int], seconds: float
) -> None:
    made, slot = supervisor()
    with stubborn(slot) as theirs:
        process = slot.process
        assert process is not None
        for each in words:
            theirs.say(*each)
        made._hear(slot)
        for count in stops:
            made._on_stop(count)
        if seconds:
            made.clock.advance(seconds=seconds - 0.1)  # type: ignore[attr-defined]
            made._kill_if_late(slot)
            assert process.poll() is None

        made.clock.advance(seconds=0.1)  # type: ignore[attr-defined]
        made._kill_if_late(slot)

        assert process.wait(10) == -signal.SIGKILL


def test_endings_are_told_in_words() -> None:
    assert ending(3) == "left with exit code 3"
    assert ending(-9) == "died of SIGKILL"
    assert ending(-250) == "died of signal 250"


def test_a_process_that_can_not_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, slot = supervisor()

    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(made.__class__, "_spawn", refuse)
    made._start(slot)

    assert slot.start_at == made.clock.monotonic() + 0.5


# --- health files


def test_a_health_file_has_the_time_of_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "health"
    others = [file_of(path, 1), file_of(path, 2)]
    others[0].touch()
    touch_as_oldest(path, others)
    assert not path.exists()

    others[1].touch()
    os.utime(others[1], (1000, 1000))
    touch_as_oldest(path, others)

    assert path.stat().st_mtime == 1000


def test_a_health_file_that_can_not_be_written_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HealthFile(tmp_path / "nowhere" / "health")

    file.touch()
    file.touch()

    assert len(caplog.records) == 1
    assert "No such file" in caplog.text
