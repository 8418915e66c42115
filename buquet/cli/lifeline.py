"""What a supervisor and its processes say to each other, and how they notice each other's death.

Each process has a pair of connected sockets with its supervisor. "stop" and "now" go down, as a
channel apart from signals: a platform may send those to all processes by itself. What goes up is
the grace period, the beginning of the end, and the exit code that is meant. When the supervisor
dies, however it dies, the system closes its end.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

VARIABLE = "BUQUET_SUPERVISOR"
"""Tells a process which file descriptor its lifeline is."""

STOP = "stop"
NOW = "now"
GRACE = "grace"
ENDING = "ending"
EXIT = "exit"


class Lifeline:
    """One end of the pair."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._heard = b""
        self._pid = os.getpid()

    def say(self, *words: object) -> None:
        """Say something, unless nobody listens any more. It never blocks."""
        if os.getpid() != self._pid:
            return  # a handler has forked: what becomes of that process is not what is awaited
        with suppress(OSError):
            self.end.send(" ".join(map(str, words)).encode() + b"\n", socket.MSG_DONTWAIT)

    def heard(self) -> Iterator[list[str]]:
        """Give what has been said since the last time, without waiting."""
        with suppress(OSError):
            while piece := self.end.recv(4096, socket.MSG_DONTWAIT):
                self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        yield from (line.decode().split() for line in lines if line)

    def listen(self) -> Iterator[list[str]]:
        """Give what is said as it comes, until the other end is closed."""
        with suppress(OSError), self.end.makefile("r") as lines:
            yield from (line.split() for line in lines)

    def close(self) -> None:
        """Close this end."""
        self.end.close()


def take() -> Lifeline | None:
    """Return the lifeline of this process, if it has a supervisor. It is not inherited."""
    global _mine  # noqa: PLW0603 -- a process has one
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        _mine = Lifeline(socket.socket(fileno=int(descriptor)))
        _mine.end.set_inheritable(False)
    return _mine


def say_exit(code: int) -> None:
    """Tell the supervisor, if there is one, that an exit code is meant: not a crash's."""
    if _mine is not None:
        _mine.say(EXIT, code)


_mine: Lifeline | None = None
