"""The demo: a queue in a temporary file, a worker, and tasks that end in every way there is."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from attrs import define, field
from rich.live import Live
from rich.table import Table
from rich.text import Text

from buquet.cli import show, tables
from buquet.cli.program import FAILED
from buquet.cli.scenes import SCENES, Scene, make_worker, submit_all
from buquet.cli.session import Session
from buquet.client.queue import Queue, connect
from buquet.core.model import Task, TaskStatus

LONGEST = 14.0
LOOK_EVERY = 0.2


@define
class Stage:
    """What is seen of the demo at one time."""

    queue: Queue
    task_ids: dict[str, list[str]]
    begun: float
    tasks: dict[str, list[Task]] = field(factory=dict)

    def look(self) -> None:
        """Look at all tasks."""
        found: dict[str, list[Task]] = {}
        for task in self.queue.list():
            found.setdefault(task.task_type, []).append(task)
        self.tasks = found

    @property
    def seconds(self) -> float:
        """How long it has been going."""
        return self.queue.store.clock.monotonic() - self.begun

    @property
    def is_over(self) -> bool:
        """Whether all has ended."""
        return all(task.status.is_final for tasks in self.tasks.values() for task in tasks)

    def statuses(self, scene: Scene) -> Counter[TaskStatus]:
        """Count the tasks of a scene by status."""
        return Counter(task.status for task in self.tasks.get(scene.task_type, []))

    def went_as_told(self) -> bool:
        """Whether each scene ended as it says."""
        return all(self.statuses(scene) == {scene.ends: scene.count} for scene in SCENES)


def demo(session: Session) -> None:
    """Show what buquet does, in a few seconds and without a server."""
    with tempfile.TemporaryDirectory(prefix="buquet-demo-") as folder:
        url = f"sqlite:///{Path(folder) / 'queue.db'}"
        with _silence(), connect(url) as queue:
            stage = _play(queue, quietly=session.as_json)
            if session.as_json:
                show.say_json(_as_json(stage))
            else:
                _look_back(stage)
    if not stage.went_as_told():
        show.note("buquet: Not all tasks of the demo ended as they should.")
        raise typer.Exit(FAILED)


# --- the play


def _play(queue: Queue, *, quietly: bool) -> Stage:
    """Start a worker, submit the tasks, and show them until all have ended."""
    worker = make_worker(queue)
    thread = threading.Thread(target=worker.run, name="buquet-demo-worker")
    if not quietly:
        _introduce()
    stage = Stage(queue, submit_all(queue), queue.store.clock.monotonic())
    thread.start()
    try:
        if quietly:
            _watch(stage, lambda: None)
        elif console := show.terminal():
            with Live(_table(stage), console=console, auto_refresh=False) as live:
                _watch(stage, lambda: live.update(_table(stage), refresh=True))
        else:
            _watch(stage, _Lines(stage).tell)
    finally:
        worker.stop()
        thread.join()
    return stage


def _watch(stage: Stage, tell: Callable[[], None]) -> None:
    pause = stage.queue.store.clock.event()
    while True:
        stage.look()
        tell()
        if stage.is_over or stage.seconds > LONGEST:
            return
        pause.wait(LOOK_EVERY)


# --- how it looks


def _introduce() -> None:
    total = sum(scene.count for scene in SCENES)
    show.say(
        Text.assemble(
            ("buquet demo", "bold"), ": a queue in one SQLite file, and a worker with 8 threads."
        )
    )
    show.say(f"It gets {total} tasks. Some come too late: they expire, and that is no failure.")
    show.say()


def _table(stage: Stage) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("TASKS", no_wrap=True, min_width=14)
    table.add_column("WHAT THEY SHOW", no_wrap=True, min_width=38)
    table.add_column(f"AFTER {stage.seconds:.1f} s", no_wrap=True)
    for scene in SCENES:
        table.add_row(_title(scene), scene.shows, _state(stage, scene))
    return table


def _title(scene: Scene) -> str:
    return f"{scene.count:>3} {scene.task_type}"


def _state(stage: Stage, scene: Scene) -> Text:
    statuses = stage.statuses(scene)
    if scene.count == 1 and statuses[TaskStatus.PENDING]:
        return _waiting(stage, stage.tasks[scene.task_type][0])
    if scene.count > 1 and any(not status.is_final for status in statuses):
        return Text(f"{statuses[scene.ends]} of {scene.count} {scene.ends}", "cyan")
    told = [
        Text(f"{number} {status}" if scene.count > 1 else str(status), show.STYLES[status])
        for status, number in sorted(statuses.items())
    ]
    return Text(", ").join(told)


def _waiting(stage: Stage, task: Task) -> Text:
    now = stage.queue.now()
    text = show.status(task.status)
    if task.available_at > now:
        what = f"retry {task.retry_count}" if task.retry_count else "due"
        text.append(f", {what} {show.relative(task.available_at, now)}")
    elif task.expires_at is not None:
        text.append(f", expires {show.relative(task.expires_at, now)}")
    return text


class _Lines:
    """The demo in a pipe: a line whenever a scene has changed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._told: dict[str, Counter[TaskStatus]] = {}

    def tell(self) -> None:
        """Tell what has changed since the last time."""
        for scene in SCENES:
            statuses = self._stage.statuses(scene)
            if self._told.get(scene.task_type) == statuses:
                continue
            self._told[scene.task_type] = statuses
            state = _state(self._stage, scene).plain
            show.say(f"{self._stage.seconds:4.1f} s  {_title(scene):<14}  {scene.shows}: {state}")


def _look_back(stage: Stage) -> None:
    """Show what the commands say of what has been played."""
    now = stage.queue.now()
    show.say()
    _prompt("buquet list --status expired")
    tables.show_tasks(stage.queue.list(TaskStatus.EXPIRED), now)
    task_id = stage.task_ids["upload"][0]
    show.say()
    _prompt(f"buquet history {task_id}")
    tables.show_history(stage.queue.get(task_id), now)
    show.say()
    show.say("Your turn: export BUQUET_URL=sqlite:///queue.db (or s3://bucket/prefix), then")
    show.say("buquet submit, buquet list, buquet worker; buquet --help tells of all commands.")


def _prompt(command: str) -> None:
    show.say(Text(f"$ {command}", "bold"))


def _as_json(stage: Stage) -> dict[str, object]:
    return {
        "seconds": round(stage.seconds, 3),
        "tasks": {
            scene.task_type: {str(status): n for status, n in stage.statuses(scene).items()}
            for scene in SCENES
        },
        "expired": [task.id for task in stage.queue.list(TaskStatus.EXPIRED)],
    }


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the log of the worker out of the picture: the failures are part of the play."""
    logger = logging.getLogger("buquet")
    before = logger.propagate
    nowhere = logging.NullHandler()
    logger.addHandler(nowhere)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(nowhere)
