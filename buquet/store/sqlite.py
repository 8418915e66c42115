"""A store in a SQLite file: for all the processes of one machine."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

from buquet.clock import EPOCH, Clock, SystemClock
from buquet.errors import StoreUnclear
from buquet.store.base import COMMIT_TIME_LIMIT, PAGE, Change, Conflict, Listed, Stored
from buquet.store.filesystem import filesystem_of
from buquet.store.fork import watch_forks
from buquet.store.sqlite_errors import explain, is_busy, is_full, translated
from buquet.store.sqlite_pool import SqlitePool

MICROSECOND = timedelta(microseconds=1)
LAST_CHARACTER = "\U0010ffff"

Act = Callable[[sqlite3.Connection], Any]


class SqliteStore:
    """Objects in one table of a SQLite file.

    Every call is atomic and on disk when it returns. Writes that threads of this process make at
    the same moment share one transaction, and so one wait for the disk.

    Args:
        path: the file; it is made if it does not exist, its folder is not.
        clock: the clock of this machine.
        filesystem: tells the type of the file system that a folder is on, None if unknown.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        filesystem: Callable[[Path], str | None] = filesystem_of,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.path = Path(path).absolute()
        self._pool = SqlitePool(self.path, self.clock, filesystem)
        self._writers = Writers(self._pool, self.path)

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r}>"

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object; None if there is none, or if its etag is `unless`."""
        query = "SELECT body, etag FROM buquet_objects WHERE key = ? AND etag IS NOT ?"
        with translated(self.path), self._pool.lend() as connection:
            row = connection.execute(query, (key, unless)).fetchone()
        return row and Stored(*row)

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object, on a condition if one is given; return its new etag."""
        return self._write(
            lambda connection: self._put(connection, key, body, if_match, if_absent=if_absent)
        )

    def commit(self, change: Change) -> str | Conflict:
        """Add the entries, put the object on its condition, drop the entries: all or nothing."""
        return self._write(lambda connection: self._commit(connection, change))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects in bulk; missing ones are fine."""
        rows = [(key,) for key in keys]
        if rows:
            self._writers.write(lambda connection: _delete(connection, rows))

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """Return the keys that start with `prefix` and sort after `after`, in order."""
        query = (
            "SELECT key, modified FROM buquet_objects"
            " WHERE key >= ? AND key > ? AND key < ? ORDER BY key LIMIT ?"
        )
        # TEXT sorts as its UTF-8 bytes do. No key of ours holds the last of all characters.
        bounds = (prefix, after, prefix + LAST_CHARACTER, min(limit, PAGE))
        with translated(self.path), self._pool.lend() as connection:
            rows = connection.execute(query, bounds).fetchall()
        return [Listed(key, EPOCH + modified * MICROSECOND) for key, modified in rows]

    def now(self) -> datetime:
        """Return the machine's time."""
        return self.clock.now()

    def latest(self) -> datetime:
        """Return the machine's time: nothing about it is uncertain."""
        return self.now()

    def flush(self) -> None:
        """Do nothing: commits delete at once."""

    def close(self) -> None:
        """Close the connections; the store can be used again."""
        self._pool.close()

    def _write(self, act: Act) -> str | Conflict:
        outcome: str | Conflict = self._writers.write(act)
        return outcome

    def _commit(self, connection: sqlite3.Connection, change: Change) -> str | Conflict:
        if self.clock.monotonic() - change.begun > COMMIT_TIME_LIMIT:
            return Conflict()
        etag = self._put(
            connection, change.key, change.body, change.if_match, if_absent=change.if_match is None
        )
        if isinstance(etag, str):
            for key in change.add:
                self._put(connection, key, b"")
            _delete(connection, [(key,) for key in change.drop])
        return etag

    def _put(
        self,
        connection: sqlite3.Connection,
        key: str,
        body: bytes,
        if_match: str | None = None,
        *,
        if_absent: bool = False,
    ) -> str | Conflict:
        etag = f'"{secrets.token_hex(12)}"'
        modified = (self.clock.now() - EPOCH) // MICROSECOND
        if if_match:
            done = connection.execute(UPDATE, (body, etag, modified, key, if_match))
        else:
            done = connection.execute(CREATE if if_absent else UPSERT, (body, etag, modified, key))
        return etag if done.rowcount else Conflict()


UPDATE = "UPDATE buquet_objects SET body = ?, etag = ?, modified = ? WHERE key = ? AND etag = ?"
INSERT = "INSERT INTO buquet_objects (body, etag, modified, key) VALUES (?, ?, ?, ?)"
CREATE = f"{INSERT} ON CONFLICT (key) DO NOTHING"
UPSERT = (
    f"{INSERT} ON CONFLICT (key)"
    " DO UPDATE SET body = excluded.body, etag = excluded.etag, modified = excluded.modified"
)


def _delete(connection: sqlite3.Connection, rows: list[tuple[str]]) -> None:
    connection.executemany("DELETE FROM buquet_objects WHERE key = ?", rows)


class Turn:
    """One write that waits for its turn, and how it went."""

    __slots__ = ("act", "error", "is_done", "value")

    def __init__(self, act: Act) -> None:
        self.act = act
        self.value: Any = None
        self.error: Exception | None = None
        self.is_done = False


class Writers:
    """The threads of this process that write: one leads, and writes for all who wait.

    Waiting for the disk takes much longer than writing; so what gathers while one transaction goes
    to disk shares the next.
    """

    def __init__(self, pool: SqlitePool, path: Path) -> None:
        self._pool = pool
        self._path = path
        self._waiting: list[Turn] = []
        self._moved = threading.Condition(threading.Lock())
        self._leading = threading.Lock()
        watch_forks(self)

    def write(self, act: Act) -> Any:
        """Do one thing within a transaction; return what it returns, once that is on disk."""
        turn = Turn(act)
        if self._await_turn(turn):
            try:
                self._lead(turn)
            finally:
                self._leading.release()
                with self._moved:
                    self._moved.notify_all()
        if isinstance(turn.error, sqlite3.Error):
            raise explain(turn.error, self._path) from turn.error
        if turn.error:
            raise turn.error
        return turn.value

    def _await_turn(self, turn: Turn) -> bool:
        """Return True when it is for this thread to lead, False when its turn is done."""
        with self._moved:
            self._waiting.append(turn)
            try:
                while not turn.is_done:
                    if self._leading.acquire(blocking=False):
                        return True
                    self._moved.wait(1)  # a leader that a signal hit may not have called
            except BaseException:
                if turn in self._waiting:  # nobody is to do it later, by surprise
                    self._waiting.remove(turn)
                raise
        return False

    def _lead(self, own: Turn) -> None:
        with self._moved:
            turns, self._waiting = self._waiting, []
        try:
            self._run(turns)
        except BaseException:  # a signal or the like hit the leader: the others are not to suffer
            with self._moved:
                left = [turn for turn in turns if not (turn is own or turn.is_done)]
                self._waiting[:0] = left
            raise

    def _run(self, turns: list[Turn]) -> None:
        try:
            with self._pool.lend() as connection:
                _transact(connection, turns)
        except Exception as error:  # noqa: BLE001 -- raised again in the threads whose turns they are
            if len(turns) > 1 and not is_busy(error):
                self._run_one_by_one(turns)
                return
            for turn in turns:
                turn.error, turn.is_done = error, True

    def _run_one_by_one(self, turns: list[Turn]) -> None:
        """Find out whose fault it was that nothing was written."""
        for turn in turns:
            self._run([turn])

    def before_fork(self) -> None:
        """Do nothing: the pool waits for who is writing."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Forget the threads of the parent."""
        self._waiting = []
        self._moved = threading.Condition(threading.Lock())
        self._leading = threading.Lock()


def _transact(connection: sqlite3.Connection, turns: list[Turn]) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        values = [turn.act(connection) for turn in turns]
        _commit(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    for turn, value in zip(turns, values, strict=True):
        turn.value, turn.is_done = value, True


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if is_full(error):  # it has undone all of it
            raise
        raise StoreUnclear(
            f"SQLite broke off while a write went to disk, so it may or may not be there: {error}."
        ) from error
