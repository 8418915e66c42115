"""The connections that a process has to one SQLite file."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import finalize

from buquet.clock import Clock
from buquet.errors import StoreUnsuitable
from buquet.store.filesystem import NETWORK, filesystem_of
from buquet.store.fork import watch_forks
from buquet.store.patience import TIME_LIMIT, Patience, share
from buquet.store.sqlite_errors import is_busy, spoils_connection

logger = logging.getLogger(__name__)

BUSY_TIMEOUT = 10.0
"""Seconds to wait for a lock that another process holds."""

CACHE_KIB = 256
"""How much of the file a connection keeps in memory. There is one for each thread, and SQLite's own
2 MiB for each of them fill up over days; what is read twice, the system keeps too."""

TABLE = """
CREATE TABLE IF NOT EXISTS buquet_objects (
    key TEXT PRIMARY KEY,
    etag TEXT NOT NULL,
    modified INTEGER NOT NULL, -- microseconds since the epoch
    body BLOB NOT NULL
) WITHOUT ROWID -- by key, so that a LIST of small entries does not walk over large bodies
"""


class SqlitePool:
    """Connections, lent to one thread at a time and kept for the next.

    None is open while the process forks: SQLite keeps its locks in the memory of the process, and a
    child that inherited them would take the parent's locks for its own.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        filesystem: Callable[[Path], str | None] = filesystem_of,
        give_up_after: float | None = None,
    ) -> None:
        self._path = path
        self._give_up_after = give_up_after
        self._file: tuple[int, int] | None = None  # which one the idle connections are to
        self._clock = clock
        self._filesystem = filesystem
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._is_forking = False
        self._changed = threading.Condition()
        self._is_prepared = False
        finalize(self, _close_all, self._idle)
        watch_forks(self)

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; the one that was given back last, as its cache is warm."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking)
            self._let_go_of_another_file()
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
            file = self._file
        is_sound = False
        try:
            if connection is None:
                connection = self._open()
                file = file or self._made()
            yield connection
            is_sound = True
        except BaseException as error:
            is_sound = not spoils_connection(error)
            raise
        finally:
            with self._changed:
                self._lent -= 1
                if connection is not None:
                    # One whose user was interrupted would lock everybody out.
                    is_reusable = is_sound and not connection.in_transaction
                    self._take_back(connection, file if is_reusable else None)
                self._changed.notify_all()

    def _made(self) -> tuple[int, int] | None:
        """Note which file it is that was not there before."""
        with self._changed:
            self._file = self._file or _identity(self._path)
            return self._file

    def _take_back(self, connection: sqlite3.Connection, file: tuple[int, int] | None) -> None:
        if file is not None and file == self._file:
            self._idle.append(connection)
        else:
            connection.close()

    def _let_go_of_another_file(self) -> None:
        """Notice that the file was replaced or removed: what is written to it would be lost."""
        file = _identity(self._path)
        if file == self._file:
            return
        if self._file is not None:
            logger.warning(
                "%r was %s while it was in use; it is opened anew.",
                str(self._path),
                "removed" if file is None else "replaced by another file",
            )
        _close_all(self._idle)
        self._is_prepared = False
        self._file = file

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._changed:
            _close_all(self._idle)
            self._is_prepared = False  # the file may be another when it is opened again

    def before_fork(self) -> None:
        """Wait until no connection is in use, and close them all."""
        self._changed.acquire()
        self._is_forking = True
        self._changed.wait_for(lambda: not self._lent)
        _close_all(self._idle)

    def after_fork_in_parent(self) -> None:
        """Let the others go on."""
        self._is_forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Start anew, with a lock that nobody waits for."""
        self._changed = threading.Condition()
        self._is_forking = False

    def _open(self) -> sqlite3.Connection:
        if not self._is_prepared:
            self._refuse_network_file_systems()
        connection = sqlite3.connect(
            self._path,
            timeout=share(self._give_up_after, BUSY_TIMEOUT),
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        mode = self._switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if not self._is_prepared:
            self._warn_without_wal(mode)
            connection.execute(TABLE)
            self._is_prepared = True

    def _switch_to_wal(self, connection: sqlite3.Connection) -> str:
        """Return the journal mode that is in force then."""
        patience = Patience(self._clock, share(self._give_up_after, TIME_LIMIT))
        while True:
            try:
                return _journal_mode(connection)
            except sqlite3.OperationalError as error:
                # SQLite does not wait by itself for others that switch at the same moment.
                if not is_busy(error) or not patience.wait():
                    raise

    def _warn_without_wal(self, mode: str) -> None:
        if mode != "wal":
            logger.warning(
                "%r can't use SQLite's write-ahead log here (its journal mode stays %r): it works, "
                "more slowly, and readers and writers wait for each other. Put it on another disk.",
                str(self._path),
                mode,
            )

    def _refuse_network_file_systems(self) -> None:
        kind = self._filesystem(self._path.parent)
        if kind in NETWORK:
            raise StoreUnsuitable(
                "a local disk",
                f"{str(self._path)!r} is on a network file system ({kind}), on which SQLite loses "
                "data. Put the file on a local disk, or use an S3 bucket for several machines.",
            )


def _journal_mode(connection: sqlite3.Connection) -> str:
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    return mode


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()
