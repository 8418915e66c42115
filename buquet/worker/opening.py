"""The opening of a worker: it waits for a store that is away for a moment."""

from __future__ import annotations

import logging
from collections.abc import Callable

from buquet.clock import Clock, Event
from buquet.errors import StoreUnavailable

logger = logging.getLogger(__name__)

TIME_LIMIT = 30.0
"""Seconds after which a store that is still away is an error: a server restarts within them, and
who mistyped an endpoint need not wait for long."""

PAUSE = 1.0
"""Seconds between two tries. Each try has a patience of its own, that of a call."""


def once_there(act: Callable[[], None], clock: Clock, stop: Event) -> bool:
    """Do what needs the store, again and again while that is unavailable.

    Returns:
        Whether it was done; it was not if `stop` was set first.

    Raises:
        StoreUnavailable: if the store is away for too long.
        StoreError: at once, if waiting would not mend it.
    """
    end = clock.monotonic() + TIME_LIMIT
    while not stop.is_set():
        try:
            act()
        except StoreUnavailable as error:
            if clock.monotonic() >= end:
                raise
            logger.warning("The worker can't start yet, and tries again: %s", error)
            stop.wait(PAUSE)
        else:
            return True
    return False
