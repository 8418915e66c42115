"""What stores must do when their process forks: a connection is not to be shared with the child."""

from __future__ import annotations

import os
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


_forkables: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []  # keeps alive what has been made ready


def watch_forks(forkable: Forkable) -> None:
    """Have its three methods called around each fork of this process, for as long as it lives."""
    _forkables.add(forkable)


def _before() -> None:
    _forking.extend(_forkables)
    for forkable in _forking:
        forkable.before_fork()


def _after_in_parent() -> None:
    for forkable in _forking:
        forkable.after_fork_in_parent()
    _forking.clear()


def _after_in_child() -> None:
    for forkable in _forking:
        forkable.after_fork_in_child()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
