"""For development: notices when the source of what is imported has changed."""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from buquet.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at the files: there are some hundred of them at most."""

_INSTALLED = tuple(
    f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib", "purelib")
)


class SourceWatcher:
    """Calls a function, once, when a file has changed that an imported module is from.

    Args:
        on_change: is called in the watching thread.
        more: files to look at besides, such as those of a module that can't be imported.
        clock: the time.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        more: Iterable[Path] = (),
        clock: Clock | None = None,
    ) -> None:
        self.changed: Path | None = None
        self._on_change = on_change
        self._more = tuple(more)
        self._seen = {path: _stamp(path) for path in self._files()}
        self._stop = (clock or SystemClock()).event()
        self._thread = threading.Thread(target=self._run, name="buquet-reload", daemon=True)

    def __enter__(self) -> SourceWatcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def wait(self) -> None:
        """Wait until something has changed."""
        self._thread.join()

    def look(self) -> Path | None:
        """Return a file that has changed since it was first seen."""
        for path in self._files():
            stamp = _stamp(path)
            if self._seen.setdefault(path, stamp) != stamp:
                return path
        return None

    def _run(self) -> None:
        while self.changed is None and not self._stop.wait(LOOK_EVERY):
            self.changed = self.look()
        if self.changed is not None:
            logger.info("%s has changed.", self.changed.name)
            self._on_change()

    def _files(self) -> set[Path]:
        return sources() | set(self._more)


def sources() -> set[Path]:
    """Return the files of the imported modules, but for those that are installed."""
    names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {Path(name) for name in names if name and not name.startswith(_INSTALLED)}


def culprits(error: BaseException) -> set[Path]:
    """Return the files that had a part in an error: what went wrong may be in any of them."""
    found: set[Path] = set()
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SyntaxError) and cause.filename:
            found.add(Path(cause.filename))
        frames = traceback.extract_tb(cause.__traceback__)
        found |= {Path(frame.filename) for frame in frames}
        cause = cause.__cause__ or cause.__context__
    return {path for path in found if path.is_file() and not str(path).startswith(_INSTALLED)}


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
