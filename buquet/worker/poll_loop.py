"""The loop that polls: at intervals that adapt, until the worker is to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define

from buquet.errors import BuquetError
from buquet.ledger.ledger import Ledger
from buquet.worker.claims import Claims
from buquet.worker.dispatcher import Dispatcher
from buquet.worker.health import HealthFile
from buquet.worker.pacer import Pacer
from buquet.worker.poller import Poller, Scan
from buquet.worker.read_after import ReadAfter
from buquet.worker.registry import Registry

logger = logging.getLogger(__name__)


@define(eq=False)
class PollLoop:
    """Polls, and sees that what waits is written."""

    _ledger: Ledger
    _poller: Poller
    _pacer: Pacer
    _dispatcher: Dispatcher
    _claims: Claims
    _read_after: ReadAfter
    _registry: Registry
    _health_file: HealthFile | None
    """Is touched after each poll that the store has answered."""

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Poll until it is to stop; poll again after an error.

        Args:
            should_stop: is asked before each poll.
        """
        while True:
            self._pacer.begin()  # before the question: a stop wakes it after that
            if should_stop():
                return
            self._claims.write_what_waits()
            try:
                scan = self._poll()
            except BuquetError as error:
                logger.warning("A poll failed; trying again: %s", error)
                scan = Scan()
            self._pause(scan)

    def run_burst(self, should_stop: Callable[[], bool]) -> None:
        """Poll until it is to stop, or until nothing is due and nothing is left to write.

        Raises:
            BuquetError: if the index can't be read, or claims or results can't be written.
        """
        while True:
            self._pacer.begin()
            if should_stop():
                return
            self._claims.write_what_waits()
            was_idle = self._dispatcher.is_idle() and not self._claims.count_unwritten()
            scan = self._poll()
            if problem := self._claims.problem(only_hopeless=not was_idle):
                raise problem
            if was_idle and not (scan.is_new or scan.is_held or scan.held_back):
                return
            self._pause(scan)

    def _poll(self) -> Scan:
        scan = self._poller.poll_once()
        if self._health_file is not None:
            self._health_file.touch()
        return scan

    def _pause(self, scan: Scan) -> None:
        self._pacer.adapt(found_work=scan.is_new, has_enough=not self._dispatcher.is_low())
        now = self._ledger.now()
        moments = (scan.next_due, self._read_after.next(now), self._claims.next_due(now))
        due = min((moment for moment in moments if moment is not None), default=None)
        self._pacer.wait(due, opens_in=self._registry.opens_in())
