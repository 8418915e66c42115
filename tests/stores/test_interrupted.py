"""Ctrl-C, or the end of an attempt's time, may come at any moment: no other is locked out by it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from buquet.store import sqlite
from buquet.store.base import Change
from buquet.store.sqlite import SqliteStore

TRANSACTION = {sqlite._transact.__code__, sqlite._commit.__code__}


class Interrupted(BaseException):
    """What is raised in the midst of it all."""


class Interruption:
    """Raises `Interrupted` in the calling thread at the n-th line of a transaction."""

    def __init__(self, lines: int) -> None:
        self.left = lines

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._step if frame.f_code in TRANSACTION else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise Interrupted
        return self._step


def commit(store: SqliteStore) -> None:
    begun = store.clock.monotonic()
    store.commit(Change(key="a", body=b"1", if_match=None, add=("b",), begun=begun))


def test_an_interruption_within_a_transaction_locks_nobody_out(tmp_path: Path) -> None:
    was_interrupted = True
    lines = 0
    while was_interrupted:
        lines += 1
        store = SqliteStore(tmp_path / f"{lines}.db")
        store.put("warm", b"up")
        was_interrupted = False
        try:
            with Interruption(lines):
                commit(store)
        except Interrupted:
            was_interrupted = True

        another = sqlite3.connect(store.path, timeout=0, isolation_level=None)
        another.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
        another.close()

    assert lines > 5
