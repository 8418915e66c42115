"""A folder into which the user who runs the tests may not look, also where that is root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def shut_out(folder: Path) -> Iterator[Path]:
    """Give a folder in a new one of another user; it can't be seen whether it is there."""
    is_root = os.geteuid() == 0
    folder.mkdir(mode=0)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield folder / "inner"
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)
