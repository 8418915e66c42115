"""Contestants, and races between them: each is run as a process of its own, one after another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from scripts.bench.figures import Beside
from scripts.bench.settings import HOME, Settings, folder

PROGRAMS = Path(__file__).parent / "contestants"

PATIENCE_SECONDS = 300
"""How long one run of a contestant may take."""


@frozen(kw_only=True)
class Contestant:
    """One that takes part: a program that prints its times as JSON, and a Python to run it."""

    who: str
    program: str
    """Its file in `contestants`; it is called with a path to write to, and a number of tasks."""
    python: Path
    version: str
    arguments: tuple[str, ...] = ()
    how: str = ""
    """Its settings, where one takes part with several."""
    note: str = ""

    @property
    def name(self) -> str:
        """What it is called among the contestants."""
        return f"{self.who} {self.how}".strip()

    def run(self, tasks: int) -> dict[str, float]:
        """Have it do its work once, on an empty store; return the seconds that each part took.

        Raises:
            RuntimeError: if it breaks off, or has not done all tasks.
        """
        with folder() as where:
            command = [str(self.python), str(PROGRAMS / self.program)]
            try:
                ran = subprocess.run(
                    [*command, str(where / "store"), str(tasks), *self.arguments],
                    cwd=where,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                told = (error.stderr or b"").decode(errors="replace")
                raise RuntimeError(
                    f"{self.name} has not ended after {PATIENCE_SECONDS} seconds:\n{told}"
                ) from error
        if ran.returncode != 0:
            raise RuntimeError(f"{self.name} broke off:\n{ran.stderr}")
        times: dict[str, float] = json.loads(ran.stdout)
        if times["done"] != tasks:
            raise RuntimeError(f"{self.name} has done {times['done']} of {tasks} tasks.")
        return times


Times = dict[str, list[dict[str, float]]]
"""What each contestant took, run by run."""


def race(contestants: Sequence[Contestant], tasks: int, settings: Settings) -> Times:
    """Run each in turn, again and again, so that what disturbs the machine disturbs all."""
    times: Times = {each.name: [] for each in contestants}
    for number in range(settings.runs):
        for each in contestants:
            print(f"run {number + 1} of {settings.runs}: {each.name}", file=sys.stderr)
            times[each.name].append(each.run(tasks))
    return times


def rate(contestant: Contestant, times: Times, tasks: int, parts: Sequence[str]) -> Beside:
    """Return how many tasks a second it did, over all the parts together."""
    return Beside(
        who=contestant.who,
        how=contestant.how,
        version=contestant.version,
        unit="tasks/s",
        runs=tuple(tasks / sum(run[part] for part in parts) for run in times[contestant.name]),
        note=contestant.note,
    )


def install(*packages: str) -> tuple[Path, str]:
    """Install packages in an environment of their own; return its Python and the first's version.

    What is installed is kept; `make clean` removes it.
    """
    name = packages[0]
    environment = HOME / name
    python = environment / "bin" / "python"
    ready = environment / "ready"
    if not ready.exists():
        print(f"installing {' '.join(packages)} in {environment}", file=sys.stderr)
        _run(sys.executable, "-m", "venv", "--clear", str(environment))
        _run(str(python), "-m", "pip", "install", "--quiet", *packages)
        ready.touch()
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    return python, _run(str(python), "-c", ask).strip()


def _run(*command: str) -> str:
    HOME.mkdir(exist_ok=True)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ran.stderr}")
    return ran.stdout
