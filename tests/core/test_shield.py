"""Interruptions come, and never where they would do harm."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from buquet.shield import Shield, shielded


class Interrupted(BaseException):
    """What comes from outside."""


def test_an_interruption_waits_until_the_shield_is_left() -> None:
    passed: list[str] = []

    with pytest.raises(Interrupted):  # noqa: PT012 -- where it is raised is the point
        with shielded() as _:
            shielded().interrupt(Interrupted)
            passed.append("within")
        passed.append("after")

    assert passed == ["within"]


def test_a_shield_within_a_shield_is_one() -> None:
    passed: list[str] = []

    with pytest.raises(Interrupted):  # noqa: PT012 -- where it is raised is the point
        with shielded():
            with shielded():
                shielded().interrupt(Interrupted)
            passed.append("out of the inner")
        passed.append("out of both")

    assert passed == ["out of the inner"]


def test_an_interruption_that_is_called_back_does_not_come() -> None:
    interrupted: list[bool] = []
    go_on = threading.Event()

    def work() -> None:
        shields.append(shielded())
        with shields[0]:
            begun.set()
            go_on.wait(10)
            shields[0].clear()
        interrupted.append(False)

    shields: list[Shield] = []
    begun = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    shields[0].interrupt(Interrupted)
    go_on.set()
    thread.join(10)

    assert interrupted == [False]


def test_a_thread_that_has_nothing_to_call_back_can_be_profiled() -> None:
    code = """if True:
        import cProfile
        from buquet.shield import shielded
        cProfile.run("shielded().clear(); shielded()")
    """

    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert "function calls" in ran.stdout


def test_an_interruption_on_its_way_is_not_let_into_the_shield() -> None:
    passed: list[str] = []
    shield = shielded()
    shield._on_its_way = Interrupted  # sent, and CPython takes its time

    with pytest.raises(Interrupted):  # noqa: PT012 -- where it is raised is the point
        with shield:
            passed.append("within")
        passed.append("after")

    assert passed == ["within"]
    assert shield._on_its_way is None


def test_each_thread_has_a_shield_of_its_own() -> None:
    shields: list[Shield] = [shielded()]
    thread = threading.Thread(target=lambda: shields.append(shielded()))
    thread.start()
    thread.join()

    assert shields[0] is shielded()
    assert shields[1] is not shields[0]


def test_what_is_interrupted_sees_the_error_that_was_sent() -> None:
    with pytest.raises(Interrupted) as caught:  # noqa: PT012 -- where it is raised is the point
        shielded().interrupt(Interrupted)
        while True:
            pass

    assert caught.type.__name__ == "Interrupted"
    with shielded():  # it has come, and does not come again
        pass


@pytest.mark.parametrize("rounds", [300, pytest.param(3000, marks=pytest.mark.long)])
def test_no_interruption_leaves_a_lock_taken_that_is_taken_within_the_shield(rounds: int) -> None:
    condition = threading.Condition()  # its `with` is Python code, and can be broken off
    threads = [Interruptible(condition) for _ in range(4)]
    for thread in threads:
        thread.start()

    for _ in range(rounds):
        for thread in threads:
            thread.shield.interrupt(Interrupted)
        threading.Event().wait(0.0001)
    for thread in threads:
        thread.is_told_to_end = True

    assert condition.acquire(timeout=10)
    condition.release()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
        assert thread.interruptions > 0


class Interruptible(threading.Thread):
    """A thread that does nothing but take a lock, within its shield."""

    def __init__(self, condition: threading.Condition) -> None:
        super().__init__(daemon=True)
        self.condition = condition
        self.interruptions = 0
        self.is_told_to_end = False
        self._is_ready = threading.Event()

    def start(self) -> None:
        super().start()
        assert self._is_ready.wait(10)

    def run(self) -> None:
        self.shield = shielded()
        self._is_ready.set()
        while not self.is_told_to_end:
            try:
                self.take_the_lock()
            except Interrupted:
                self.count()

    def take_the_lock(self) -> None:
        while not self.is_told_to_end:
            with shielded(), self.condition:
                pass

    def count(self) -> None:
        try:
            self.shield.clear()
            self.interruptions += 1
        except Interrupted:
            self.count()
