"""How the benchmarks are to be run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

REPO = Path(__file__).resolve().parents[2]

HOME = REPO / ".bench"
"""Where the peers are installed, and where all that is measured writes: so on one disk."""

FAR_AWAY_MS = 20.0
"""The aims for speed on S3 are for a store as far away as this at least."""


@frozen(kw_only=True)
class Settings:
    """What is asked for."""

    runs: int = 5
    """How often each figure is measured."""
    latency_ms: float = FAR_AWAY_MS
    """What is added to the round trip of each request to an S3 server."""
    part: float = 1.0
    """Which part of the usual sizes to measure."""

    def sized(self, usual: int) -> int:
        """Return how many of the usual number to take."""
        return max(1, round(usual * self.part))


@contextmanager
def folder() -> Iterator[Path]:
    """Give an empty folder that is gone afterwards, on the disk of everything else."""
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=HOME) as name:
        yield Path(name)
