"""The threads of a worker beside its pool. One that dies ends the run, with its error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen

from buquet.worker.pacer import Pacer


@frozen
class Service:
    """A loop in a thread of its own."""

    name: str
    run: Callable[[], None]
    """Returns once it has been stopped, and not before."""
    stop: Callable[[], None]
    """Makes `run` return; any thread may call it."""


class Vitals:
    """Whether all threads of a run are alive.

    Args:
        pacer: is woken when one has died, since the poll loop ends the run.
    """

    def __init__(self, pacer: Pacer) -> None:
        self.error: BaseException | None = None
        """What the first thread died of."""
        self._pacer = pacer

    def guard(self, target: Callable[[], None]) -> None:
        """Run what a thread is for; if that raises, the run ends with its error."""
        try:
            target()
        except BaseException as error:  # noqa: BLE001 -- it is raised again by the run
            self.error = self.error or error
            self._pacer.wake()


class Services:
    """Services that start and stop together.

    Args:
        services: in the order in which they start.
        vitals: hears of those that die.
    """

    def __init__(self, services: Sequence[Service], vitals: Vitals) -> None:
        self._services = services
        self._vitals = vitals
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start a thread for each. They are daemons: they do not keep the process alive."""
        for service in self._services:
            thread = threading.Thread(
                target=partial(self._vitals.guard, service.run),
                name=f"buquet-{service.name}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def stop(self, within: float) -> None:
        """Stop all of them, and wait for each for at most so many seconds."""
        for service in self._services:
            service.stop()
        for thread in self._threads:
            thread.join(within)
