"""Measures buquet against its peers: `python scripts/bench [GROUP ...]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path[0] = str(REPO)  # not this folder: its modules would pass for others of the same name

from scripts.bench.figures import Figure  # noqa: E402 -- of this very tree
from scripts.bench.groups import GROUPS  # noqa: E402
from scripts.bench.machine import machine  # noqa: E402
from scripts.bench.report import as_json, console, show, worth  # noqa: E402
from scripts.bench.settings import Settings  # noqa: E402


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python scripts/bench", description="Measures buquet against its peers."
    )
    parser.add_argument("groups", metavar="GROUP", nargs="*", help=f"{', '.join(GROUPS)}; else all")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    usual = Settings()
    parser.add_argument(
        "--runs", type=int, default=usual.runs, help="how often to measure each; %(default)s"
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=usual.latency_ms,
        metavar="MS",
        help="how much longer each request to S3 takes; %(default)s, and 0 for no longer",
    )
    parser.add_argument(
        "--part",
        type=float,
        default=usual.part,
        help="part of the usual sizes: to try, not to measure",
    )
    given = parser.parse_args()
    strange = set(given.groups) - set(GROUPS)
    if strange:
        parser.error(
            f"there is no group {', '.join(sorted(strange))}; there are {', '.join(GROUPS)}"
        )
    if given.runs < 1 or given.latency < 0 or not 0 < given.part <= 1:
        parser.error("--runs is at least 1, --latency at least 0, --part above 0 and at most 1")
    return given


def measure(names: Sequence[str], settings: Settings, measured: dict[str, list[Figure]]) -> None:
    """Measure groups, and tell of each figure while the others are under way."""
    stderr = console(stderr=True)
    for name in names:
        measured[name] = []
        for figure in GROUPS[name](settings):
            stderr.print(f"{name}: {figure.what}: {worth(figure)}")
            measured[name].append(figure)


def main() -> int:
    """Measure what the command line says; an aim that is missed is no error."""
    given = arguments()
    settings = Settings(runs=given.runs, latency_ms=given.latency, part=given.part)
    measured: dict[str, list[Figure]] = {}
    try:
        measure(given.groups or list(GROUPS), settings, measured)
    finally:  # what was measured before it broke off is shown all the same
        if given.json:
            print(json.dumps(as_json(machine(), measured), indent=2))
        else:
            show(console(), machine(), measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
