"""The benchmarks run, and tell what they have measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.figures import Aim, Beside, Figure, at_least, at_most
from scripts.bench.report import console, show
from scripts.bench.settings import FAR_AWAY_MS

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a user does."""
    return subprocess.run(
        [sys.executable, "scripts/bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_group_is_measured_and_stdout_holds_json_alone() -> None:
    ran = bench("scale", "--json", "--runs=2", "--part=0.0001")

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {"Python", "cores", "platform", "SQLite", "buquet", "boto3"} <= found["machine"].keys()
    figures = {figure["what"]: figure for figure in found["groups"]["scale"]}
    poll = figures["a poll, 100 due, SQLite: requests"]
    assert (poll["value"], poll["runs"], poll["aim"], poll["is_met"]) == (1, [1, 1], "≤ 1.2", True)
    time = figures["a poll, 100 due, SQLite: time"]
    assert [each["how"] for each in time["beside"]] == ["among 100", "among many"]


def test_a_table_tells_what_is_met_and_fits_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rival = Beside(who="rival", how="at its best", version="2.1", unit="tasks/s", runs=(100, 300))
    fast = Figure(what="submit", unit="x", runs=(3, 4), aim=at_least(2), beside=(rival,))
    slow = Figure(what="drain of a great many tasks", unit="x", runs=(1,), aim=at_least(2))

    show(console(), {"Python": "3.13"}, {"sqlite": [fast, slow]})

    lines = capsys.readouterr().out.splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert "submit 3.5 x 3 to 4 ≥ 2 met" in rows
    assert "rival, at its best 200 tasks/s 100 to 300" in rows
    assert "drain of a great many tasks 1 x 1 to 1 ≥ 2 missed" in rows
    assert rows[-1] == "Measured with Python 3.13, rival 2.1."
    assert max(map(len, lines)) <= 80


def test_an_s3_server_is_as_far_away_as_the_aims_are_for_unless_told_otherwise() -> None:
    ran = bench("--help")

    assert f"each request to S3 takes; {FAR_AWAY_MS}," in " ".join(ran.stdout.split())


def test_a_group_that_is_not_there_is_refused() -> None:
    ran = bench("nonsense")

    assert ran.returncode == 2
    assert "there is no group nonsense" in ran.stderr


@pytest.mark.parametrize(
    ("aim", "is_met"), [(at_least(2), True), (at_least(3), False), (at_most(2), True)]
)
def test_the_median_decides_whether_an_aim_is_met(aim: Aim, is_met: bool) -> None:
    figure = Figure(what="submit", unit="x", runs=(1, 9, 2), aim=aim)

    assert (figure.value, figure.is_met) == (2, is_met)


def test_a_figure_without_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="a run at least"):
        Figure(what="submit", unit="x", runs=())
