"""Kill, stop and hold workers at random while tasks are submitted, and see that none is lost.

Every task whose submit was acknowledged must end, and end once: its history has one final change.

    python scripts/soak.py --seconds 60 --store seaweedfs
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from buquet import (  # noqa: E402 -- of this very tree, and not another that is installed
    Queue,
    RetryPolicy,
    StoreError,
    SubmitManyError,
    SubmitUnclear,
    Task,
    TaskNotFound,
    WaitTimeout,
    connect,
)
from tests.s3_servers import ACCESS_KEY, REGION, SECRET_KEY, run_seaweedfs  # noqa: E402

ENDINGS = [*16 * ["complete"], "retry", "reschedule", "fail"]
SECONDS = [0.0, 0.0, 0.01, 0.05, 0.1, 0.5]
SIGNALS = {"kills": signal.SIGKILL, "stops": signal.SIGTERM, "holds": signal.SIGSTOP}


@frozen(kw_only=True)
class Settings:
    """What is asked for."""

    seconds: float = 60.0
    store: str = "sqlite"
    seed: int = 0
    lease: float = 2.0
    workers: int = 4
    producers: int = 2
    patience: float = 120.0
    """How long the workers get to end what is left, once nobody disturbs them."""


# --- those who submit


@define
class Producer:
    """Submits tasks, and notes which were acknowledged."""

    queue: Queue
    chance: random.Random
    acknowledged: list[str] = field(factory=list)
    unclear: list[str] = field(factory=list)

    def run(self, stop: threading.Event) -> None:
        """Submit until told to stop: single tasks and batches, some with a deadline."""
        while not stop.wait(self.chance.uniform(0, 0.4)):
            self._submit(self.chance.choice([1, 1, 3, 25]))

    def _submit(self, count: int) -> None:
        try:
            tasks = self.queue.submit_many(
                [("work", self._input(number)) for number in range(count)],
                ttl_seconds=self.chance.choice([None, None, None, self.chance.uniform(0, 4)]),
                max_retries=50,
                retry_policy=RetryPolicy(initial_seconds=0.1, factor=1.2, max_seconds=2),
            )
            self.acknowledged += [task.id for task in tasks]
        except SubmitManyError as error:
            self.acknowledged += [task.id for task in error.stored]
            self.unclear += list(error.unclear)
        except SubmitUnclear as error:
            self.unclear += list(error.task_ids)
        except StoreError as error:
            print(f"refused: {error}", file=sys.stderr)

    def _input(self, number: int) -> dict[str, object]:
        return {
            "number": number,
            "seconds": self.chance.choice(SECONDS),
            "ending": self.chance.choice(ENDINGS),
        }


# --- those who work


@define
class Herd:
    """Worker processes, always the same number of them, whatever is done to them."""

    settings: Settings
    environment: dict[str, str]
    log: Path
    chance: random.Random
    acts: Counter[str] = field(factory=Counter)
    exit_codes: Counter[int] = field(factory=Counter)
    """How many have left with each."""
    _processes: list[subprocess.Popen[bytes]] = field(factory=list)
    _held: dict[subprocess.Popen[bytes], int] = field(factory=dict)

    def fill(self) -> None:
        """Start as many as are missing."""
        self.exit_codes.update(
            code for each in self._processes if (code := each.poll()) is not None
        )
        self._processes = [each for each in self._processes if each.returncode is None]
        while len(self._processes) < self.settings.workers:
            self._processes.append(self._start())

    def disturb(self) -> None:
        """Do something to one of them, and let those go that were held long enough."""
        self._let_go()
        self.fill()
        victim = self.chance.choice(self._processes)
        act = self.chance.choice(["kills", "stops", "holds", "holds"])
        if act == "holds":
            self._held[victim] = self.chance.randint(1, 10)
        self.acts[act] += 1
        victim.send_signal(SIGNALS[act])
        if act == "kills":
            victim.wait()

    def calm(self) -> None:
        """Let all go, and have all there."""
        while self._held:
            self._let_go()
        self.fill()

    def end(self) -> None:
        """Tell all to leave."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        self.exit_codes.update(process.wait(60) for process in self._processes)

    def kill(self) -> None:
        """End them, whatever they are at."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _let_go(self) -> None:
        self._held = {process: rounds - 1 for process, rounds in self._held.items()}
        for process in [each for each, rounds in self._held.items() if rounds <= 0]:
            del self._held[process]
            process.send_signal(signal.SIGCONT)

    def _start(self) -> subprocess.Popen[bytes]:
        options = [f"--lease={self.settings.lease:f}", "--grace=1"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "buquet", "worker", "scripts.soak_app:worker", *options],
                cwd=REPO,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


# --- what came of it


@frozen(kw_only=True)
class Report:
    """What was done, and what became of the tasks."""

    tasks: int
    acts: Counter[str]
    statuses: Counter[str]
    reruns: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    exit_codes: Counter[int]

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, nothing ended twice, and all workers left in order."""
        # One that has only just been started is not ready to take the signal yet.
        in_order = {0, -signal.SIGTERM, -signal.SIGKILL}
        return not (self.lost or self.twice or self.exit_codes.keys() - in_order)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Return the rows of a table."""
        yield "tasks", f"{self.tasks:,}"
        for status, number in sorted(self.statuses.items()):
            yield f"  {status}", f"{number:,}"
        for act in SIGNALS:
            yield act, f"{self.acts[act]:,}"
        yield "reruns", f"{self.reruns:,}"
        yield "ended twice", " ".join([str(len(self.twice)), *self.twice[:5]])
        yield "lost", " ".join([str(len(self.lost)), *self.lost[:5]])
        for code, number in sorted(self.exit_codes.items()):
            yield f"exit code {code}", f"{number:,}"


def soak(settings: Settings, environment: dict[str, str], log: Path) -> Report:
    """Run it all on a store that is empty."""
    herd = Herd(settings, environment, log, random.Random(settings.seed))
    herd.fill()
    try:
        with connect(environment["BUQUET_URL"]) as queue:
            producers = disturb(settings, herd, queue)
            herd.calm()
            acknowledged = [task_id for each in producers for task_id in each.acknowledged]
            unclear = [task_id for each in producers for task_id in each.unclear]
            wanted = acknowledged + [each for each in unclear if find(queue, each)]
            await_end(queue, wanted, settings.patience)
            return report(queue, wanted, herd)
    finally:
        herd.kill()


def disturb(settings: Settings, herd: Herd, queue: Queue) -> list[Producer]:
    """Have tasks submitted and workers disturbed for so long."""
    producers = [
        Producer(queue, random.Random(settings.seed + 1 + number))
        for number in range(settings.producers)
    ]
    stop = threading.Event()
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in producers]
    timer = threading.Timer(settings.seconds, stop.set)
    for thread in (*threads, timer):
        thread.start()
    while not stop.wait(herd.chance.uniform(0.2, 0.8)):
        herd.disturb()
    for thread in (*threads, timer):
        thread.join()
    return producers


def await_end(queue: Queue, task_ids: Sequence[str], patience: float) -> None:
    """Wait until all have ended, or no longer; the report says what has not."""
    try:
        queue.wait(task_ids, timeout=patience)
    except (WaitTimeout, TaskNotFound) as error:
        print(error, file=sys.stderr)


def report(queue: Queue, task_ids: Sequence[str], herd: Herd) -> Report:
    """Look at what became of each task, before the workers leave and again after."""
    before = {task_id: find(queue, task_id) for task_id in task_ids}
    herd.end()
    found = {task_id: find(queue, task_id) for task_id in task_ids}
    tasks = [task for task in found.values() if task is not None]
    events = Counter(revision.event for task in tasks for revision in task.history)
    return Report(
        tasks=len(task_ids),
        acts=herd.acts,
        statuses=Counter(str(task.status) for task in tasks),
        reruns=events["recovered"],
        lost=tuple(each for each, task in found.items() if not has_ended(task)),
        twice=tuple(
            each
            for each, task in found.items()
            if has_ended(task) and (count_ends(task) != 1 or before[each] != task)
        ),
        exit_codes=herd.exit_codes,
    )


def find(queue: Queue, task_id: str) -> Task | None:
    """Return a task, if it is there."""
    try:
        return queue.get(task_id)
    except TaskNotFound:
        return None


def has_ended(task: Task | None) -> bool:
    """Tell whether a task is there and has ended."""
    return task is not None and task.status.is_final


def count_ends(task: Task | None) -> int:
    """Count the changes of a task that made it end."""
    return sum(revision.status.is_final for revision in task.history) if task else 0


# --- the store


@contextmanager
def store(name: str, folder: Path) -> Iterator[dict[str, str]]:
    """Give the environment of a program that is to find an empty store."""
    if name == "sqlite":
        yield dict(os.environ) | {"BUQUET_URL": f"sqlite:///{folder / 'queue.db'}"}
        return
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    os.environ.update(keys, AWS_REGION=REGION, AWS_EC2_METADATA_DISABLED="true")
    with run_seaweedfs(folder) as server:
        os.environ.update(server.env)
        yield dict(os.environ) | {"BUQUET_URL": server.url()}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long to disturb")
    parser.add_argument("--store", choices=("sqlite", "seaweedfs"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0, help="for another course of events")
    parser.add_argument("--lease", type=float, default=2.0, help="the lease in seconds")
    parser.add_argument("--log", type=Path, help="where the workers log; else it is not kept")
    return parser.parse_args()


def main() -> int:
    """Soak as the command line says; return the exit code."""
    given = arguments()
    settings = Settings(
        seconds=given.seconds, store=given.store, seed=given.seed, lease=given.lease
    )
    with tempfile.TemporaryDirectory(prefix="buquet-soak-") as name:
        folder = Path(name)
        with store(settings.store, folder) as environment:
            found = soak(settings, environment, given.log or folder / "workers.log")
    print(f"{settings.seconds:g} s on {settings.store}, seed {settings.seed}")
    for row in found.rows():
        print(f"{row[0]:12} {row[1]:>8}")
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
