"""Ctrl-C may come at any moment: no other process is locked out by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AT_EACH_LINE = """
import sqlite3, sys
from buquet.store import group_commit, sqlite
from buquet.store.base import Change

TRANSACTION = {group_commit._transact.__code__, group_commit._commit.__code__}

class Interrupted(BaseException):
    pass

def interrupting(line):
    left = [line]

    def step(frame, event, argument):
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise Interrupted
        return step

    return lambda frame, event, argument: step if frame.f_code in TRANSACTION else None

for line in range(1, 200):
    store = sqlite.SqliteStore(f"{line}.db")
    store.put("warm", b"up")
    change = Change("a", b"1", None, add=("b",), begun=store.clock.monotonic())
    sys.settrace(interrupting(line))
    try:
        store.commit(change)
        was_interrupted = False
    except Interrupted:
        was_interrupted = True
    finally:
        sys.settrace(None)
    another = sqlite3.connect(store.path, timeout=0, isolation_level=None)
    another.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
    another.close()
    if not was_interrupted:
        break
print("interrupted at", line - 1, "lines")
"""


def test_an_interruption_within_a_transaction_locks_nobody_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EACH_LINE],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stderr == ""
    lines = int(done.stdout.split()[2])
    assert 5 < lines < 199
