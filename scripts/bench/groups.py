"""The groups of benchmarks: a name, and what measures them one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scripts.bench import process, s3, scale, sqlite
from scripts.bench.figures import Figure
from scripts.bench.settings import Settings

Measure = Callable[[Settings], Iterator[Figure]]
"""Yields each figure as soon as it is measured."""

GROUPS: dict[str, Measure] = {
    "sqlite": sqlite.measure,
    "s3": s3.measure,
    "scale": scale.measure,
    "process": process.measure,
}
