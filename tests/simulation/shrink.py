"""From a plan that breaks a guarantee to the smallest plan found that breaks it too."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.plan import Plan
from tests.simulation.run import Outcome
from tests.simulation.run import run as run_plan

MOST_RUNS = 400


def shrink(outcome: Outcome, run: Callable[[Plan], Outcome] = run_plan) -> Outcome:
    """Leave out more and more, as long as the same guarantee is broken."""
    best, runs, found = outcome, 0, True
    while found and runs < MOST_RUNS:
        found = False
        for plan in best.plan.smaller():
            runs += 1
            tried = run(plan)
            if tried.guarantee == best.guarantee:
                best, found = tried, True
                break
    return best
