"""What stores must do when their process forks: a connection is not to be shared with the child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """A store with connections."""

    def before_fork(self) -> None:
        """Get ready, in the parent."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Start anew."""


class Forks:
    """The forks of this process, one after another, and what takes part in them.

    A thread may come to fork while another still waits for connections to be given back. It is kept
    at the gate: two that got the same stores ready would let them go on twice.
    """

    def __init__(self) -> None:
        self._forkables: WeakSet[Forkable] = WeakSet()
        self._forking: list[Forkable] = []  # keeps alive what has been made ready
        self._gate = threading.RLock()  # a signal may come at any time, and its handler fork

    def watch(self, forkable: Forkable) -> None:
        """Have the three methods of a store called around each fork."""
        with self._gate:
            self._forkables.add(forkable)

    def before(self) -> None:
        """Get all ready, and let no other thread fork meanwhile."""
        self._gate.acquire()
        self._forking.extend(self._forkables)
        _do_each(forkable.before_fork for forkable in self._forking)

    def after_in_parent(self) -> None:
        """Have all go on."""
        try:
            _do_each(forkable.after_fork_in_parent for forkable in self._forking)
        finally:
            self._forking.clear()
            self._gate.release()

    def after_in_child(self) -> None:
        """Have all start anew."""
        try:
            _do_each(forkable.after_fork_in_child for forkable in self._forking)
        finally:
            self._forking.clear()
            self._gate = threading.RLock()


def _do_each(acts: Iterable[Callable[[], None]]) -> None:
    """Do one thing after another, also when one raises; that comes out in the end."""
    with ExitStack() as left:
        for act in acts:
            left.callback(act)


_forks = Forks()


def watch_forks(forkable: Forkable) -> None:
    """Have its three methods called around each fork of this process, for as long as it lives."""
    _forks.watch(forkable)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.after_in_parent,
        after_in_child=_forks.after_in_child,
    )
