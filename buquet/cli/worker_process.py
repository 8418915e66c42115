"""One worker process: it loads the worker, runs it, and ends on time."""

from __future__ import annotations

import _thread
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer
from attrs import evolve

from buquet.cli import lifeline, show
from buquet.cli.ending import AT_ONCE_SECONDS, TIDY_SECONDS, last_resort
from buquet.cli.lifeline import Lifeline
from buquet.cli.loading import load_worker
from buquet.cli.logs import enable_our_loggers
from buquet.cli.program import DONE, FAILED, RELOAD, one_line
from buquet.cli.reload import SourceWatcher, culprits
from buquet.cli.stopping import AT_ONCE, IN_ORDER, StopRequests, hearing
from buquet.cli.tally import Tally, counting
from buquet.core.durations import format_duration
from buquet.errors import BuquetError, ConfigurationError
from buquet.worker import Worker

logger = logging.getLogger(__name__)


class WorkerProcess:
    """Runs a worker in this process, alone or as one of several under a supervisor.

    Args:
        target: where the worker is, as `module:name`.
        settings: those of the worker that the command line replaces.
        set_up_logging: called when the module has been imported, which may have done so itself.
        supervisor: the lifeline to it, if there is one.
    """

    def __init__(
        self,
        target: str,
        settings: dict[str, Any],
        set_up_logging: Callable[[], None],
        supervisor: Lifeline | None,
    ) -> None:
        self._target = target
        self._settings = settings
        self._set_up_logging = set_up_logging
        self._supervisor = supervisor
        self._worker: Worker | None = None
        self._tally = Tally()

    def run(self, *, burst: bool, reload: bool) -> None: ...
