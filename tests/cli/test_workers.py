import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import evolve

from buquet import Queue
from buquet.core import transitions
from buquet.core.model import Batch, Progress, WorkerRecord
from buquet.core.transitions import Facts, change_task
from tests.cli.terminal import on_terminal, without_colours

Cli = Callable[..., Any]
TASK = "f4a02db0-bac2-41de-b8d8-2bd6bc620000"


def record(queue: Queue, **changes: Any) -> WorkerRecord:
    """Have a worker be there that gave a sign of life three seconds ago."""
    beat = queue.now() - timedelta(seconds=3)
    made = WorkerRecord(
        id="web-1-4711-3eaf65",
        host="web-1",
        pid=4711,
        threads=8,
        task_types=("email",),
        started_at=beat - timedelta(hours=1),
        heartbeat_at=beat,
        lease_expires_at=beat + timedelta(minutes=1),
        running=(TASK,),
    )
    made = evolve(made, **changes)
    queue.ledger.workers.write(made, None)
    return made


def claim(queue: Queue, task_id: str) -> None:
    """Have that worker claim a task."""

    def edit(batch: Batch, facts: Facts) -> Batch:
        mine = evolve(facts, by="web-1-4711-3eaf65")
        until = facts.now + timedelta(minutes=1)
        return change_task(
            batch,
            task_id,
            mine,
            lambda task: transitions.claim(task, mine, lease_id="l", lease_expires_at=until),
        )

    queue.ledger.change(task_id, edit)


def test_workers_are_lines_in_a_pipe(cli: Cli, queue: Queue) -> None:
    made = record(queue)
    record(queue, id="web-2-1-aaaaaa", host="web-2", lease_expires_at=queue.now(), running=())

    shown = [line.split("\t") for line in cli("workers").stdout.splitlines()]

    beat = made.heartbeat_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert shown == [
        ["web-1-4711-3eaf65", "web-1", "4711", "8", "healthy", beat, TASK],
        ["web-2-1-aaaaaa", "web-2", "4711", "8", "lapsed", beat, "-"],
    ]


def test_workers_in_json_have_all_that_is_known(cli: Cli, queue: Queue) -> None:
    progress = {TASK: Progress(0.4, "rows", queue.now())}
    record(queue, progress=progress, counters={"completed": 3})

    (told,) = json.loads(cli("workers", "--json").stdout)

    assert told["state"] == "healthy"
    assert told["running"] == [TASK]
    assert told["progress"][TASK]["fraction"] == 0.4
    assert told["counters"] == {"completed": 3}


def test_workers_are_a_table_with_their_tasks_on_a_terminal(
    environment: dict[str, str], queue: Queue, tmp_path: Path
) -> None:
    progress = {TASK: Progress(0.4, "rows 400 of 1000 \x1b[2J" + 80 * "x", queue.now())}
    record(queue, progress=progress)
    record(queue, id="w" * 80, running=(TASK,) * 12)
    record(queue, id="gone", lease_expires_at=queue.now())

    shown = without_colours(on_terminal(environment, "workers", folder=tmp_path)).splitlines()

    assert shown[0].startswith("WORKER ")
    assert {"healthy", "lapsed"} <= {line.split()[-1] for line in shown}
    assert any(f"  {TASK}   40%  rows 400 of 1000 \\x1b[2Jxx" in line for line in shown)
    assert "  and 2 more" in shown
    assert max(len(line) for line in shown) <= 80


def test_what_a_lapsed_worker_ran_is_not_shown_as_running(
    cli: Cli, queue: Queue, environment: dict[str, str], tmp_path: Path
) -> None:
    progress = {TASK: Progress(0.07, "rows 7 of 100", queue.now())}
    record(queue, lease_expires_at=queue.now(), progress=progress)

    shown = without_colours(on_terminal(environment, "workers", folder=tmp_path)).splitlines()
    (told,) = json.loads(cli("workers", "--json").stdout)

    assert shown[1].split()[3] == "0"
    assert shown[2:] == ["  had 1 task at its last heartbeat; other workers take over"]
    assert cli("workers").stdout.endswith("\t-\n")
    assert (told["running"], told["progress"], told["last_running"]) == ([], {}, [TASK])


def test_threads_that_were_lost_are_shown(
    queue: Queue, environment: dict[str, str], tmp_path: Path
) -> None:
    record(queue, counters={"lost_threads": 3, "completed": 7})

    shown = without_colours(on_terminal(environment, "workers", folder=tmp_path))

    assert "3 threads are stuck in handlers" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_no_workers_are_no_lines(cli: Cli) -> None:
    assert cli("workers").stdout == ""
    assert json.loads(cli("workers", "--json").stdout) == []


def test_a_progress_that_is_no_fraction_is_shown_as_the_nearest_that_is(
    cli: Cli, queue: Queue
) -> None:
    task = queue.submit("email")
    claim(queue, task.id)
    record(queue, running=(task.id,), progress={task.id: Progress(1e308, "rows", queue.now())})

    assert f"{task.id}=100%" in cli("workers").stdout
    assert "progress: 100 % rows" in cli("status", task.id).stdout


def test_only_a_task_that_is_done_is_shown_at_100_percent(
    cli: Cli, queue: Queue, environment: dict[str, str], tmp_path: Path
) -> None:
    record(queue, progress={TASK: Progress(0.999, "rows", queue.now())})

    assert f"{TASK}=99%" in cli("workers").stdout
    assert f"{TASK}   99%  rows" in on_terminal(environment, "workers", folder=tmp_path)
