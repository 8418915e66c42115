"""A store in a SQLite file: for all the processes of one machine."""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path

from buquet.clock import EPOCH, LARGEST_CORRECTION, Clock, SystemClock
from buquet.store.base import COMMIT_TIME_LIMIT, PAGE, Change, Conflict, Listed, Stored
from buquet.store.filesystem import filesystem_of
from buquet.store.group_commit import Act, GroupCommit
from buquet.store.sqlite_errors import translated
from buquet.store.sqlite_pool import SqlitePool

logger = logging.getLogger(__name__)

MICROSECOND = timedelta(microseconds=1)
LAST_CHARACTER = "\U0010ffff"


class SqliteStore:
    """Objects in one table of a SQLite file.

    Every call is atomic and on disk when it returns. Writes that threads of this process make at
    the same moment share one transaction, and so one wait for the disk.

    Args:
        path: the file; it is made if it does not exist, its folder is not.
        clock: the clock of this machine.
        give_up_after: how many seconds an act waits for a file that others have locked.
        filesystem: returns the type of the file system that a folder is on, None if unknown.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        give_up_after: float | None = None,
        filesystem: Callable[[Path], str | None] = filesystem_of,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.path = Path(path).absolute()
        self._latest = EPOCH
        self._pool = SqlitePool(self.path, self.clock, filesystem, give_up_after)
        self._commits = GroupCommit(self._pool, self.path)

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
            self._commits.write(lambda connection: _delete(connection, rows))

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
        """Return the machine's time. If that was set back, the log says so."""
        now = self.clock.now()
        back = self._latest - now
        self._latest = now if back > LARGEST_CORRECTION else max(self._latest, now)
        if back > LARGEST_CORRECTION:
            logger.warning(
                "This machine's clock was set back by %.0f seconds. Tasks that were submitted or "
                "put off before become due that much later.",
                back.total_seconds(),
            )
        return now

    def latest(self) -> datetime:
        """Return the machine's time: nothing about it is uncertain."""
        return self.now()

    def flush(self) -> None:
        """Do nothing: commits delete at once."""

    def close(self) -> None:
        """Close the connections; the store can be used again."""
        self._pool.close()

    def _write(self, act: Act) -> str | Conflict:
        outcome: str | Conflict = self._commits.write(act)
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
