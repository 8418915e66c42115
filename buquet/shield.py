"""Code in which a thread must not be interrupted: it holds locks that others wait for.

A `TaskTimeout` is raised in a thread wherever it happens to be, and a handler that uses its queue
is within our own code then. An exception that comes just after a lock was taken would leave it
locked for ever. So such code is shielded: an interruption waits until the thread has left it.

CPython may deliver an exception long after it was sent: where several threads are sent one at the
same time, the first to get its own takes the notice down for all. So one that is still on its way
when its thread enters the shield is called back, and raised when the thread leaves it.

The lock in here is a bare one, taken by `with`: CPython looks for exceptions at calls and at jumps
back, and there is neither between the taking of such a lock and the body.
"""

from __future__ import annotations

import ctypes
import threading


class Shield:
    """The shield of one thread; it can be entered again from within."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._depth = 0
        self._waiting: type[BaseException] | None = None
        self._on_its_way: type[BaseException] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._on_its_way is not None:
                self._waiting = self._on_its_way
                self._call_back()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            waiting = self._waiting if self._depth == 0 else None
            if waiting is not None:
                self._waiting = None
        if waiting is not None:
            raise waiting

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise an exception in the thread: before long, or when it leaves the shield."""
        with self._lock:
            if self._depth:
                self._waiting = error
            else:
                self._on_its_way = error
                _raise_in(self._thread, self._marked(error))

    def clear(self) -> None:
        """Call back an interruption that has not come yet; in the thread itself, unshielded."""
        with self._lock:
            self._depth = 0
            self._waiting = None
            # Calling back what was never sent would hang CPython 3.11 under a profiler or debugger.
            if self._on_its_way is not None:
                self._call_back()

    def _call_back(self) -> None:
        _raise_in(self._thread, None)
        self._on_its_way = None

    def _marked(self, error: type[BaseException]) -> type[BaseException]:
        """Return a kind of the error that notes when it has arrived."""

        def arrive(_: BaseException, *__: object) -> None:
            self._on_its_way = self._waiting = None

        return type(error.__name__, (error,), {"__init__": arrive, "__module__": error.__module__})


def shielded() -> Shield:
    """Return the shield of the calling thread, to be entered by `with`."""
    shield: Shield | None = getattr(_local, "shield", None)
    if shield is None:
        shield = _local.shield = Shield()
    return shield


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


_local = threading.local()
