"""Group commit: what threads of this process write at the same moment shares one transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from buquet.errors import StoreUnclear
from buquet.store.fork import watch_forks
from buquet.store.sqlite_errors import explain, is_busy, is_full
from buquet.store.sqlite_pool import SqlitePool

Act = Callable[[sqlite3.Connection], Any]


class PendingWrite:
    """One write that waits to be committed, and how it went."""

    __slots__ = ("act", "error", "is_done", "value")

    def __init__(self, act: Act) -> None:
        self.act = act
        self.value: Any = None
        self.error: Exception | None = None
        self.is_done = False


class GroupCommit:
    """The threads of this process that write: one leads, and writes for all that wait.

    Waiting for the disk takes much longer than writing; so what gathers while one transaction goes
    to disk shares the next.
    """

    def __init__(self, pool: SqlitePool, path: Path) -> None:
        self._pool = pool
        self._path = path
        self._waiting: list[PendingWrite] = []
        self._moved = threading.Condition(threading.Lock())
        self._leading = threading.Lock()
        watch_forks(self)

    def write(self, act: Act) -> Any:
        """Do one thing within a transaction; return what it returns, once that is on disk."""
        write = PendingWrite(act)
        if self._wait(write):
            try:
                self._lead(write)
            finally:
                self._leading.release()
                with self._moved:
                    self._moved.notify_all()
        if isinstance(write.error, sqlite3.Error):
            raise explain(write.error, self._path) from write.error
        if write.error:
            raise write.error
        return write.value

    def _wait(self, write: PendingWrite) -> bool:
        """Return True when this thread is to lead, False when another has written for it."""
        with self._moved:
            self._waiting.append(write)
            try:
                while not write.is_done:
                    if self._leading.acquire(blocking=False):
                        return True
                    self._moved.wait(1)  # a leader that a signal hit may not have called
            except BaseException:
                if write in self._waiting:  # nobody is to do it later, by surprise
                    self._waiting.remove(write)
                raise
        return False

    def _lead(self, own: PendingWrite) -> None:
        with self._moved:
            writes, self._waiting = self._waiting, []
        try:
            self._run(writes)
        except BaseException:  # a signal or the like hit the leader: the others are not to suffer
            with self._moved:
                left = [write for write in writes if not (write is own or write.is_done)]
                self._waiting[:0] = left
            raise

    def _run(self, writes: list[PendingWrite]) -> None:
        try:
            with self._pool.lend() as connection:
                _transact(connection, writes)
        except Exception as error:  # noqa: BLE001 -- raised again in the threads whose writes they are
            if len(writes) > 1 and not is_busy(error):
                self._run_one_by_one(writes)
                return
            for write in writes:
                write.error, write.is_done = error, True

    def _run_one_by_one(self, writes: list[PendingWrite]) -> None:
        """Find out whose fault it was that nothing was written."""
        for write in writes:
            self._run([write])

    def before_fork(self) -> None:
        """Do nothing: the pool waits for the thread that is writing."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Forget the threads of the parent."""
        self._waiting = []
        self._moved = threading.Condition(threading.Lock())
        self._leading = threading.Lock()


def _transact(connection: sqlite3.Connection, writes: list[PendingWrite]) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        values = [write.act(connection) for write in writes]
        _commit(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    for write, value in zip(writes, values, strict=True):
        write.value, write.is_done = value, True


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if is_full(error):  # it has undone all of it
            raise
        raise StoreUnclear(
            f"SQLite broke off while a write went to disk, so it may or may not be there: {error}."
        ) from error
