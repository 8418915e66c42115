"""A file whose age shows whether a worker is well: it is touched after each good poll."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)


class HealthFile:
    """The file of one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # a handler may change the working directory
        self._is_told = False

    def touch(self) -> None:
        """Say that all is well; the worker goes on if the file can't be written."""
        try:
            self._path.touch()
            # touch() alone may leave the times of a file that is there as they are.
            os.utime(self._path)
        except OSError as error:
            if not self._is_told:
                logger.warning("The health file can't be touched: %s.", error)
            self._is_told = True


def file_of(path: Path, number: int) -> Path:
    """Return the file of the n-th of several processes."""
    return path.with_name(f"{path.name}.{number}")


def touch_as_oldest(path: Path, others: Iterable[Path]) -> None:
    """Give a file the time of the oldest of others, if all are there."""
    with suppress(OSError):  # one is not there yet, or the disk is full: then it grows old
        oldest = min(other.stat().st_mtime_ns for other in others)
        path.touch()
        os.utime(path, ns=(oldest, oldest))
