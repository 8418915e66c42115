"""Whatever happens in whatever order, G1 to G8 and the rules of the index hold."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation, mutated
from tests.simulation.plan import Plan, make
from tests.simulation.run import Outcome, run, run_seed
from tests.simulation.shrink import shrink

REPO = Path(__file__).parents[2]
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SEEDS = 300
AT_A_TIME = 25
QUICK = 100
"""How many of the seeds are run each time; `make test-long` runs all."""

FOUND_AT: dict[str, int] = json.loads((Path(__file__).parent / "found_at.json").read_text("utf-8"))
"""A seed that has found each planted fault. If it no longer does, the fault is looked for from the
first seed on, which takes longer."""

DIGEST = """
import hashlib, sys
from tests.simulation.run import run_seed
print(hashlib.sha256("\\n".join(run_seed(int(sys.argv[1])).trace).encode()).hexdigest())
"""


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK else pytest.mark.long)
        for first in range(0, SEEDS, AT_A_TIME)
    ],
)
def test_every_guarantee_holds(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        assert run_seed(seed).violation is None, f"python -m tests.simulation --first {seed}"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_broke_a_guarantee_no_longer_does(path: Path) -> None:
    assert run(Plan.from_json(path.read_text())).violation is None


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_gives_the_same_run_in_any_process(seed: int) -> None:
    here = hashlib.sha256("\n".join(run_seed(seed).trace).encode()).hexdigest()

    found = [_run("-c", DIGEST, str(seed), hash_seed=hash_seed) for hash_seed in ("1", "2")]

    assert [each.stdout.strip() for each in found] == [here, here]


def test_a_plan_that_was_written_down_is_the_same_when_it_is_read() -> None:
    assert [Plan.from_json(make(seed).to_json()) for seed in range(9)] == [
        make(seed) for seed in range(9)
    ]


def test_the_seeds_see_trouble_of_every_kind() -> None:
    outcomes = [run_seed(seed) for seed in range(4 * AT_A_TIME)]

    seen = {line.split()[-3] for each in outcomes for line in each.trace if line.endswith(" s")}
    events = {line.split()[3] for each in outcomes for line in each.trace if " task " in line}

    assert seen == {"slow", "refused", "cut", "late", "doubled", "die_before", "die_after"} | {
        "pause_before",
        "pause_after",
    }
    assert events >= {"created", "claimed", "completed", "retried", "rescheduled", "released"}
    assert events >= {"recovered", "expired", "failed", "cancelled", "replayed", "archived"}


def test_what_breaks_a_guarantee_is_shown_with_as_little_as_it_takes() -> None:
    def breaks(plan: Plan) -> Outcome:
        """A run that goes wrong if there are a worker and a sweeper."""
        kinds = {actor.kind for actor in plan.actors}
        is_wrong = kinds >= {"worker", "sweeper"}
        return Outcome(plan, "G2: lost" if is_wrong else None, (), 0, 0)

    seed = next(seed for seed in range(99) if breaks(make(seed)).violation)

    least = shrink(breaks(make(seed)), run=breaks).plan

    assert sorted(actor.kind for actor in least.actors) == ["sweeper", "worker"]
    assert least.fates == ()


def look_for(mutation: Mutation, first: int, seeds: int) -> int | None:
    """Return the first seed that finds a planted fault; None if none does."""
    which = ["--first", str(first), "--seeds", str(seeds)]
    ran = _run("-m", "tests.simulation", "--mutation", mutation.name, *which, "--quick")
    assert ran.returncode in (0, 1), ran.stderr
    found = re.match(rf"seed (\d+): {mutation.breaks}: ", ran.stdout)
    assert (found is None) == (ran.returncode == 0), ran.stdout + ran.stderr
    return int(found[1]) if found else None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_fault_is_found(mutation: Mutation) -> None:
    remembered = FOUND_AT.get(mutation.name)

    is_found = remembered is not None and look_for(mutation, remembered, 1) is not None

    assert is_found or look_for(mutation, 0, mutation.within) is not None


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_fault_is_found_by_who_does_not_know_where(mutation: Mutation) -> None:
    assert look_for(mutation, 0, mutation.within) is not None


def test_a_fault_that_can_not_be_planted_any_more_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("nothing of the kind")

    with pytest.raises(LookupError, match="0 times"):
        mutated(tmp_path / "module.py", MUTATIONS[0])


def _run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=REPO,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=170,
    )
