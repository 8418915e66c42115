"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
from importlib.metadata import requires, version


def machine() -> dict[str, str]:
    """Return what a reader must know of this machine, and the versions of what is on it."""
    return {
        "Python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "platform": platform.platform(),
        "SQLite": sqlite3.sqlite_version,
        "buquet": version("buquet"),
    } | {name: version(name) for name in _dependencies()}


def _dependencies() -> list[str]:
    found = [re.match(r"[\w.-]+", each) for each in requires("buquet") or []]
    return sorted(match[0] for match in found if match)
