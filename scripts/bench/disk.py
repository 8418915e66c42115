"""What the disk takes to keep a little: without that, no figure of a durable queue can be read."""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter

from scripts.bench.figures import Figure
from scripts.bench.settings import Settings, folder

WRITES = 200
PAGE = b"\0" * 4096


def sync(settings: Settings) -> Figure:
    """Measure how long a page takes to be on disk, when nothing else is done."""
    return Figure(
        what="a page appended and on disk (fdatasync)",
        unit="ms",
        runs=tuple(_sync_once(settings.sized(WRITES)) for _ in range(settings.runs)),
    )


def _sync_once(writes: int) -> float:
    with folder() as where, (where / "page").open("wb", buffering=0) as file:
        return median(_append(file.fileno()) for _ in range(writes))


def _append(file: int) -> float:
    begun = perf_counter()
    os.write(file, PAGE)
    os.fdatasync(file)
    return 1000 * (perf_counter() - begun)
