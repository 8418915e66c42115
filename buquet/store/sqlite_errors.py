"""Turns what sqlite3 raises into errors of our own."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buquet.errors import (
    StoreAccessDenied,
    StoreError,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
    StoreUnsuitable,
)

_LOCKED = (
    "{path} is locked by another transaction: {detail}. Try again later. If it is that of your own "
    "program, give buquet a file of its own."
)

_WORDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, _LOCKED),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, _LOCKED),
    sqlite3.SQLITE_FULL: (
        StoreUnavailable,
        "{path} can't grow: {detail}. Free some space on its disk, and try again.",
    ),
    sqlite3.SQLITE_IOERR: (
        StoreUnavailable,
        "{path} can't be read or written: {detail}. Check its disk, and try again.",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreAccessDenied,
        "{path} can't be written: {detail}. Let this user write the file and its folder.",
    ),
    sqlite3.SQLITE_PERM: (
        StoreAccessDenied,
        "{path} can't be opened: {detail}. Let this user read and write it.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreAccessDenied,
        "{path} can't be opened: {detail}. Let this user write the file and its folder.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreError,
        "{path} is damaged: {detail}. Put a copy of it in its place, or mend it with `.recover`.",
    ),
    sqlite3.SQLITE_TOOBIG: (
        StoreRefused,
        "An object is too large for {path}: {detail}.",
    ),
}

_NOT_OURS = {
    sqlite3.SQLITE_NOTADB: "a SQLite database",
    sqlite3.SQLITE_ERROR: "a table of objects as this version of buquet makes it",
}


def is_busy(error: Exception) -> bool:
    """Return whether others hold the lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def spoils_connection(error: BaseException) -> bool:
    """Return whether a connection may be of no more use after an error.

    One that was opened while the file could not be written stays read-only, for example.
    """
    return isinstance(error, sqlite3.Error) and not is_busy(error)


def is_full(error: Exception) -> bool:
    """Return whether there is no room left for the file to grow."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what sqlite3 raises into errors of ours that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Make the error that the caller sees."""
    if _is_folder(path.parent) is False:
        return StoreNotFound(f"There is no folder {str(path.parent)!r} for {path.name!r}. Make it.")
    if _is_folder(path):
        return StoreNotFound(f"{str(path)!r} is a folder. Name a file in it.")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
    if code in _NOT_OURS:
        detail = f"{str(path)!r} says: {error}. Give buquet another file."
        return StoreUnsuitable(_NOT_OURS[code], detail)
    kind, text = _WORDS.get(code, (StoreError, "{path} refused a request: {detail}."))
    explained = kind(text.format(path=repr(str(path)), detail=error))
    explained.code = getattr(error, "sqlite_errorname", None)
    return explained


def _is_folder(path: Path) -> bool | None:
    """Return whether there is a folder; None if this user may not look."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        return None
    except OSError:
        return False
