import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue
from buquet.errors import BuquetError
from tests.stores.shut_out import shut_out

Cli = Callable[..., Any]


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path) -> Cli:
    """Run buquet with the rest of a shell's line."""

    def run(line: str) -> Any:
        return subprocess.run(
            ["/bin/sh", "-c", f"{sys.executable} -m buquet {line}"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("command", ["status", "history", "cancel", "replay", "archive"])
def test_an_unknown_task_is_not_found(cli: Cli, queue: Queue, command: str) -> None:
    queue.submit("a")

    for task_id in (NOBODY, "c0ffee", "not an id"):
        result = cli(command, task_id)

        assert result.exit_code == 3
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["replay", "resubmit", "archive"])
def test_what_the_status_does_not_allow_is_refused(cli: Cli, queue: Queue, command: str) -> None:
    task = queue.submit("a")

    result = cli(command, task.id)

    assert result.exit_code == 4
    assert result.stderr.startswith(f"buquet: Task '{task.id}' is pending, so it cannot be ")


def test_an_expired_task_can_not_be_cancelled(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a")
    queue.mark_expired(task.id)

    assert cli("cancel", task.id).exit_code == 4


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", 2),
        ("nonsense", 2),
        ("sqlite://queue.db", 2),
        ("sqlite:////no/such/folder/queue.db", 5),
    ],
)
def test_a_store_that_can_not_be_used_is_told_of_in_a_line(
    process: Cli, url: str, code: int
) -> None:
    result = process("list", env={"BUQUET_URL": url})

    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("buquet: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_path_that_is_too_long_for_the_system_is_told_of_in_a_line(cli: Cli) -> None:
    result = cli("list", "--url", f"sqlite:///{'folder/' * 1000}queue.db")

    assert result.exit_code == 5
    assert result.stderr.startswith("buquet: There is no folder ")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_this_user_may_not_see_is_not_taken_for_a_new_one(
    cli: Cli, queue: Queue, tmp_path: Path
) -> None:
    with shut_out(tmp_path / "theirs") as path:
        result = cli("list", "--url", f"sqlite:///{path}")

    assert result.exit_code == 5
    assert result.stderr.startswith(f"buquet: {str(path)!r} can't be opened: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_no_queue_is_unsuitable(process: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are notes, and no database\n" * 100)

    result = process("list", "--url", "sqlite:///notes.txt")

    assert result.returncode == 5
    assert len(result.stderr.splitlines()) == 1


def test_a_server_that_is_not_there_is_unreachable(process: Cli) -> None:
    result = process(
        "list", "--url", "s3://bucket", env={"BUQUET_ENDPOINT_URL": "http://127.0.0.1:9"}
    )

    assert result.returncode == 5
    assert len(result.stderr.splitlines()) == 1


def test_debug_shows_where_an_error_comes_from(process: Cli) -> None:
    result = process("status", NOBODY, "--debug")

    assert result.returncode == 3
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("buquet: There is no task")


def test_an_unknown_command_is_a_matter_of_usage(cli: Cli) -> None:
    result = cli("expedite")

    assert result.exit_code == 2
    assert result.stderr == "buquet: No such command 'expedite'. See 'buquet --help'.\n"


def test_a_likely_command_is_suggested(cli: Cli) -> None:
    told = cli("lst").stderr

    assert told == "buquet: No such command 'lst'. Did you mean 'list'? See 'buquet --help'.\n"


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("status nonsense", 3),
        ("cancel {expired}", 4),
        ("cancel nonsense {expired}", 1),
        ("list --limit many", 2),
        ("list --url nonsense", 2),
        ("list --url sqlite:////no/such/folder/queue.db", 5),
        ("submit -t a --ttl 0", 0),
        ("worker nowhere:worker", 2),
        ("sweep", 0),
    ],
)
def test_an_exit_code_does_not_depend_on_stderr(
    shell: Cli, queue: Queue, line: str, code: int, stderr: str
) -> None:
    expired = queue.submit("a")
    queue.mark_expired(expired.id)

    assert shell(f"{line.format(expired=expired.id)} {stderr}").returncode == code


def test_a_task_whose_id_can_not_be_printed_is_named_on_stderr(shell: Cli, queue: Queue) -> None:
    result = shell("submit -t a >/dev/full")

    (task,) = queue.list()
    assert result.returncode == 1
    assert result.stderr == (
        "buquet: stdout can't be written (No space left on device), "
        f"but 1 task was stored: {task.id}\n"
    )


@pytest.mark.parametrize("command", ["cancel", "archive", "resubmit", "archive --json"])
def test_what_was_done_is_said_though_stdout_is_full(
    shell: Cli, queue: Queue, command: str
) -> None:
    task = queue.submit("a")
    if command != "cancel":
        queue.cancel(task.id)

    result = shell(f"{command} {task.id} >/dev/full")

    done = "stored" if command == "resubmit" else "changed"
    assert result.returncode == 1
    assert f"but 1 task was {done}: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "line", ["list", "list --json", "stats", "--help", "--version", "history {id}"]
)
def test_a_full_stdout_is_reported_in_a_line(shell: Cli, queue: Queue, line: str) -> None:
    task = queue.submit("a")

    result = shell(f"{line.format(id=task.id)} >/dev/full")

    assert result.returncode == 1
    assert result.stderr == "buquet: stdout can't be written: No space left on device.\n"


def test_the_url_may_stand_before_the_command_or_after_it(cli: Cli, tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "second"))
    task_id = cli("--url", first, "submit", "-t", "a").stdout.strip()

    assert cli("status", task_id, "--url", first).exit_code == 0
    assert cli("--url", first, "status", task_id, "--url", second).exit_code == 3


def test_an_empty_url_is_refused_wherever_it_stands(cli: Cli, queue: Queue) -> None:
    for args in (("--url", "", "list"), ("list", "--url", "")):
        result = cli(*args)

        assert result.exit_code == 2
        assert "'' is not the URL of a store" in result.stderr


def test_a_queue_that_was_not_there_is_told_of(cli: Cli, tmp_path: Path) -> None:
    result = cli("list", "--json", "--url", f"sqlite:///{tmp_path / 'typo.db'}")

    assert (result.exit_code, result.stdout) == (0, "[]\n")
    assert "'typo.db'" in result.stderr


def test_every_error_has_a_code() -> None:
    from buquet.cli.program import code_of

    pending = [BuquetError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        assert code_of(kind.__new__(kind)) in {1, 2, 3, 4, 5, 6}


def test_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("buquet ")


def test_python_m_buquet_is_the_same_program() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "buquet", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ,
    )

    assert run.stdout.startswith("Usage: buquet ")
