"""Writing to stderr, without waiting for ever where nobody reads it.

A pipe that is full blocks whoever writes to it. That must not stop a worker: a text that can't be
written within two seconds is dropped, and those that follow are dropped at once until there is
room again. Nothing raises either: an exit code must not depend on whether stderr can be written.
"""

from __future__ import annotations

import os
import select
import sys
import threading

PATIENCE_SECONDS = 2.0

_PIECE = 4096
"""A pipe that takes anything takes so many bytes."""

_lock = threading.Lock()
_is_stuck = False


def write(text: str) -> bool:
    """Write a text to stderr; return whether all of it was written."""
    global _is_stuck  # noqa: PLW0603 -- there is one stderr
    if sys.stderr is None:
        return False
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # something else has taken its place
        return _write_to_stream(text)
    data = text.encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    with _lock:
        patience = 0.0 if _is_stuck else PATIENCE_SECONDS
        _is_stuck = not _write_all(descriptor, data, patience)
        return not _is_stuck


def _write_to_stream(text: str) -> bool:
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return False
    return True


def _write_all(descriptor: int, data: bytes, patience: float) -> bool:
    try:
        while data:
            if not _has_room(descriptor, patience):
                return False
            data = data[os.write(descriptor, data[:_PIECE]) :]
    except OSError:
        return False
    return True


def _has_room(descriptor: int, patience: float) -> bool:
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(patience * 1000))
