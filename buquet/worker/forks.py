"""A handler may fork. The child is a copy of the worker, and must not go on as one."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def end_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process at once if it is not the worker's, without exit handlers or results.

    Args:
        pid: the process of the worker.
        error: what the user's code has raised, if anything.
    """
    if os.getpid() == pid:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or full
            stream.flush()
    os._exit(_exit_code(error))


def _exit_code(error: BaseException | None) -> int:
    """Return the code with which Python itself would have ended."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
