"""Processes: how long they take to start, what a worker needs, and how one takes over."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from subprocess import run
from threading import Event
from time import perf_counter

from attrs import frozen

from buquet import Queue, connect
from scripts.bench.figures import Beside, Figure, at_most
from scripts.bench.processes import NOTES, await_true, worker
from scripts.bench.settings import Settings, folder

TASKS = 100_000
LOTS = 10
LEASE_SECONDS = 10


def measure(settings: Settings) -> Iterator[Figure]:
    """Start programs, watch the memory of a worker, and kill one in the midst of a task."""
    yield from starts(settings)
    yield from memory(settings)
    yield from takeover(settings)


# --- starting


def starts(settings: Settings) -> Iterator[Figure]:
    """Start Python with `import buquet`, the command line, and Python alone."""
    programs = {
        "import buquet": ("-c", "import buquet"),
        "buquet --help": ("-m", "buquet", "--help"),
        "Python alone": ("-c", "pass"),
    }
    for program in programs.values():
        _seconds(program)  # compiles, and fills the caches
    runs: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(settings.runs):
        for name, program in programs.items():
            runs[name].append(_seconds(program))
    alone = Beside(
        who="Python alone",
        version=sys.version.split()[0],
        unit="s",
        runs=tuple(runs.pop("Python alone")),
    )
    for (name, seconds), most in zip(runs.items(), (0.25, 0.6), strict=True):
        yield Figure(
            what=f"{name}, from start to end",
            unit="s",
            runs=tuple(seconds),
            aim=at_most(most),
            beside=(alone,),
        )


def _seconds(program: tuple[str, ...]) -> float:
    begun = perf_counter()
    run([sys.executable, *program], capture_output=True, check=True)
    return perf_counter() - begun


# --- memory


@frozen
class Memory:
    """What a worker has in memory, in MB, as it goes on."""

    idle: float
    warm: float
    """After the first lot of tasks."""
    end: float
    peak: float


def memory(settings: Settings) -> Iterator[Figure]:
    """Watch the memory of a worker with nothing to do, and over many tasks."""
    tasks = settings.sized(TASKS)
    seen = []
    for _ in range(settings.runs):
        with folder() as where:
            seen.append(_memory(where, tasks))
    for what, runs, most in (
        ("memory of an idle worker", [each.idle for each in seen], 90),
        (f"the most over {tasks:,} tasks", [each.peak for each in seen], 90),
        ("growth from idle to the most", [each.peak - each.idle for each in seen], 5),
    ):
        yield Figure(what=what, unit="MB", runs=tuple(runs), aim=at_most(most))
    first = tasks // LOTS
    places = {
        f"after {first:,}": tuple(each.warm for each in seen),
        f"after {tasks:,}": tuple(each.end for each in seen),
    }
    yield Figure(
        what=f"growth from the first {first:,} tasks to {tasks:,}",
        unit="MB",
        runs=tuple(each.end - each.warm for each in seen),
        aim=at_most(5),
        beside=tuple(
            Beside(who="buquet", how=how, version=version("buquet"), unit="MB", runs=runs)
            for how, runs in places.items()
        ),
    )


def _memory(where: Path, tasks: int) -> Memory:
    url = f"sqlite:///{where / 'queue.db'}"
    health = where / "health"
    environment = os.environ | {"BUQUET_URL": url}
    with connect(url) as queue, worker(environment, f"--health-file={health}") as process:
        _await_polls(health, 3)
        idle = _resident(process.pid, "VmRSS")
        residents = []
        for _ in range(LOTS):
            queue.submit_many([("noop", number) for number in range(tasks // LOTS)])
            await_true(lambda: not queue.stats().unfinished, "The tasks are done")
            residents.append(_resident(process.pid, "VmRSS"))
        return Memory(idle, residents[0], residents[-1], _resident(process.pid, "VmHWM"))


def _await_polls(health: Path, count: int) -> None:
    """Wait until the file has been touched so often."""
    touched: set[int] = set()

    def is_often_enough() -> bool:
        if health.exists():
            touched.add(health.stat().st_mtime_ns)
        return len(touched) >= count

    await_true(is_often_enough, "The worker polls")


def _resident(pid: int, kind: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0]) / 1024
    raise RuntimeError(f"/proc/{pid}/status does not tell {kind}.")


# --- taking over


@frozen
class Takeover:
    """How a worker took over from one that was killed."""

    seconds: float
    """From the kill to the new start of the handler."""
    requests: int
    """Of the worker that took over, from the kill until the task was done."""


def takeover(settings: Settings) -> Iterator[Figure]:
    """Kill a worker in the midst of a task, at various times after its last sign of life."""
    found = []
    for number in range(settings.runs):
        with folder() as where:
            found.append(_takeover(where, number / settings.runs * LEASE_SECONDS / 3))
    yield Figure(
        what=f"kill -9 to restart elsewhere, SQLite, lease {LEASE_SECONDS} s",
        unit="s",
        runs=tuple(each.seconds for each in found),
        aim=at_most(12),
    )
    yield Figure(
        what="the same: requests of the worker that takes over",
        unit="requests",
        runs=tuple(float(each.requests) for each in found),
        aim=at_most(40),
        note="from the kill until the task is done, polls included",
    )


def _takeover(where: Path, pause: float) -> Takeover:
    url = f"sqlite:///{where / 'queue.db'}"
    victim_notes, heir_notes = where / "victim", where / "heir"
    lease = f"--lease={LEASE_SECONDS}s"
    with connect(url) as queue, worker(_noting(url, victim_notes), lease) as victim:
        task = queue.submit("hold")
        await_true(lambda: _begun(victim_notes) is not None, "The task begins")
        with worker(_noting(url, heir_notes), lease):
            _await_workers(queue, 2)
            Event().wait(pause)
            victim.kill()
            killed_at = perf_counter()
            queue.wait(task.id, timeout=60)
    begun_at = _begun(heir_notes)
    if begun_at is None:
        raise RuntimeError("The task has ended and was not begun again.")
    return Takeover(begun_at - killed_at, _requests(heir_notes, killed_at))


def _noting(url: str, notes: Path) -> Mapping[str, str]:
    return os.environ | {"BUQUET_URL": url, NOTES: str(notes)}


def _await_workers(queue: Queue, count: int) -> None:
    await_true(lambda: len(queue.workers()) == count, f"There are {count} workers")


def _read(notes: Path) -> list[tuple[float, str, str]]:
    """Return when what happened."""
    if not notes.exists():
        return []
    lines = (line.split() for line in notes.read_text("utf-8").splitlines(keepends=False))
    return [(float(at), kind, what) for at, kind, what in lines]


def _begun(notes: Path) -> float | None:
    return next((at for at, kind, _ in _read(notes) if kind == "begun"), None)


def _requests(notes: Path, since: float) -> int:
    """Count the requests until the task's result was written."""
    count = 0
    has_begun = False
    for at, kind, what in _read(notes):
        has_begun = has_begun or kind == "begun"
        count += at >= since and kind != "begun"
        if has_begun and kind == "put" and what.startswith("tasks/"):
            break
    return count
