"""Acting on many things, several at a time. When it breaks off, nothing new is begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from buquet.shield import shielded

T = TypeVar("T")
R = TypeVar("R")


class FanOut:
    """Threads that act. What is raised while they are at it cancels what has not begun."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._is_broken = False

    def begin(self, act: Callable[[], R]) -> Future[R]:
        """Have a thread act before long, unless another breaks off before it begins.

        Raises:
            RuntimeError: if the system has no more threads.
        """

        def guarded() -> R:
            if self._is_broken:
                raise CancelledError
            try:
                return act()
            except BaseException:
                self._is_broken = True
                raise

        with shielded():
            return self._pool.submit(guarded)

    def stop(self) -> None:
        """Wait for all that was begun."""
        self._pool.shutdown()


@contextmanager
def fan_out(threads: int, name: str) -> Iterator[FanOut]:
    """Give threads to act with, and wait for what they have begun.

    If anything is raised, Ctrl-C included, what they have not begun is never done.
    """
    pool = ThreadPoolExecutor(threads, f"buquet-{name}")
    try:
        yield FanOut(pool)
    except BaseException:
        with shielded():
            pool.shutdown(cancel_futures=True)
        raise
    with shielded():
        pool.shutdown()


def act_on_each(
    act: Callable[[T], R], items: Sequence[T], done: list[R], *, threads: int, name: str
) -> None:
    """Act on items, several at a time, and collect what comes of it, in order.

    Args:
        act: what to do to each.
        items: to what.
        done: is filled, also if something is raised: with what was done by then.
        threads: how many items at a time.
        name: of the threads.
    """
    if threads == 1 or len(items) <= 1:
        done.extend(map(act, items))
        return
    futures: list[Future[R]] = []
    try:
        with fan_out(threads, name) as out:
            futures += [out.begin(lambda item=item: act(item)) for item in items]  # type: ignore[misc]
            for future in futures:
                future.result()
    finally:
        ended = [each for each in futures if each.done() and not each.cancelled()]
        done += [each.result() for each in ended if each.exception() is None]
