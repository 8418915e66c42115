"""Run many seeds; the first that breaks a guarantee is shrunk and shown.

python -m tests.simulation --seeds 20000
python -m tests.simulation --keep tests/simulation/kept --seed 1234
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.mutations import MUTATIONS, plant

STUCK_AFTER = 4.0
"""Real seconds after which a thread is reported that goes round without end, as some faults have
it."""


def main() -> int:
    """Do what the command line asks for; 1 if a guarantee was broken."""
    asked = _parser().parse_args()
    if asked.mutation is not None:
        _plant(asked.mutation)
    begun = time.perf_counter()
    calls = tasks = count = 0
    for outcome in _outcomes(range(asked.first, asked.first + asked.seeds), asked.processes):
        count, calls, tasks = count + 1, calls + outcome.calls, tasks + outcome.tasks
        if outcome.violation is not None:
            print(f"seed {outcome.plan.seed}: {outcome.violation}", flush=True)
            if not asked.quick:
                _show(outcome, asked.keep)
            return 1
    seconds = time.perf_counter() - begun
    print(
        f"{count:,} seeds, {tasks:,} tasks, {calls:,} calls to the store in {seconds:.0f} s: "
        "every guarantee held."
    )
    return 0


def _plant(name: str) -> None:
    plant(next(each for each in MUTATIONS if each.name == name))
    from tests.simulation import engine  # which imports what the fault is in

    engine.STUCK_AFTER = STUCK_AFTER


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutation", help="plant this fault first")
    parser.add_argument("--quick", action="store_true", help="do not look for a smaller plan")
    parser.add_argument("--keep", type=Path, help="write the smaller plan into this folder")
    return parser


def _outcomes(seeds: range, processes: int) -> Iterator:
    from tests.simulation.run import run_seed

    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from pool.map(run_seed, seeds, chunksize=5)
        finally:
            pool.shutdown(cancel_futures=True)


def _show(outcome, keep: Path | None) -> None:
    from tests.simulation.shrink import shrink

    print("Looking for a smaller plan …", file=sys.stderr)
    least = shrink(outcome)
    print(least.violation, "", *least.trace, sep="\n")
    print(least.plan.to_json())
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        path = keep / f"seed-{least.plan.seed}.json"
        path.write_text(least.plan.to_json())
        print(f"Kept as {path}.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
