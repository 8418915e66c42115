import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from buquet import Queue, TaskStatus, Worker
from buquet.cli import show
from buquet.cli.stats import show_stats
from buquet.client.stats import Stats
from buquet.core.index import Backlog
from tests.cli.terminal import on_terminal, without_colours

Cli = Callable[..., Any]
BAD = "\x1b[2J\x07\u202e\x9b"


def rewrite(queue: Queue, task_id: str, old: str, new: str) -> None:
    """Change a batch behind the back of buquet, as somebody else with access could."""
    key = f"tasks/{task_id}.json"
    stored = queue.store.get(key)
    assert stored is not None
    assert old.encode() in stored.body
    queue.store.put(key, stored.body.replace(old.encode(), new.encode()))


# --- JSON


def test_an_empty_list_is_an_empty_json_list(cli: Cli, queue: Queue) -> None:
    queue.cancel(queue.submit("a").id)

    assert json.loads(cli("list", "--status", "failed", "--json").stdout) == []


def test_json_is_all_that_is_on_stdout_whatever_else_there_is_to_say(
    process: Cli, queue: Queue, worker_module: str
) -> None:
    task = queue.submit("good", {"name": "Zoë ✓"})
    queue.store.put("tasks/00000000-0000-4000-8000-000000000000.json", b"damaged")
    commands = [
        ["list"],
        ["status", task.id],
        ["history", task.id],
        ["stats"],
        ["sweep", "--full"],
        ["submit", "-t", "late", "--ttl", "0"],
        ["worker", worker_module, "--burst"],
        ["archive", task.id],
        ["resubmit", task.id],
    ]

    for command in commands:
        result = process(*command, "--json")
        json.loads(result.stdout)
        assert result.stdout.isascii()

    assert "damaged" not in process("list", "--json").stdout
    assert process("list", "--json").stderr != ""


def test_json_tells_all_of_a_task(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a", {"name": "Zoë"}, ttl_seconds=60)

    told = json.loads(cli("status", task.id, "--json").stdout)

    assert told.pop("progress") is None
    assert told == json.loads(json.dumps(queue.get(task.id).to_dict()))


def test_json_may_stand_before_the_command_or_after_it(cli: Cli, queue: Queue) -> None:
    queue.submit("a")

    assert cli("--json", "list").stdout == cli("list", "--json").stdout
    assert json.loads(cli("--json", "stats").stdout)["running"] == 0


# --- pipes


def test_a_pipe_gets_plain_lines_with_tabs_and_whole_fields(cli: Cli, queue: Queue) -> None:
    long_type = "a" * 128
    task = queue.submit(long_type, expires_at=datetime(2099, 1, 1, tzinfo=UTC))

    (line,) = cli("list").stdout.splitlines()

    created = show.absolute(task.created_at)
    assert line.split("\t") == [
        *(task.id, "pending", long_type, created, created, "2099-01-01T00:00:00Z", "-")
    ]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(
    environment: dict[str, str], queue: Queue, unbuffered: str
) -> None:
    queue.submit_many([("a", n) for n in range(5000)])
    env = environment | {"PYTHONUNBUFFERED": unbuffered}

    with subprocess.Popen(
        [sys.executable, "-m", "buquet", "list", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        told = running.stderr.read()
        code = running.wait(timeout=60)

    assert told == b""
    assert code in (0, 141)


def test_a_closed_stdin_stdout_or_stderr_is_no_surprise(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("a", ttl_seconds=0)
    program = f"{sys.executable} -m buquet"

    def run(line: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    assert run(f"{program} sweep >&-") == (0, "", "")
    assert run(f"{program} cancel {task.id} 2>&-") == (4, "", "")
    code, shown, told = run(f"{program} submit -t a -i - <&-")
    assert (code, shown) == (2, "")
    assert told.startswith("buquet: The input can't be read from stdin, which is closed.")
    # The way of a pipe whose reader has gone before the first byte.
    assert run(f"({program} --help; echo $? >&2) | true") in [(0, "", "0\n"), (0, "", "141\n")]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_lacks_characters_gets_all_rows(
    process: Cli, queue: Queue, encoding: str
) -> None:
    tasks = [queue.submit("a", {"text": "✓ 你好"}) for _ in range(3)]
    env = {"PYTHONIOENCODING": encoding}

    listed = process("list", env=env, encoding=encoding)
    status = process("status", tasks[1].id, env=env, encoding=encoding)

    assert (listed.returncode, status.returncode) == (0, 0)
    assert {line.split("\t")[0] for line in listed.stdout.splitlines()} == {t.id for t in tasks}
    assert "\\u2713" in status.stdout


# --- terminals


def test_nothing_out_of_the_store_can_steer_a_terminal(cli: Cli, queue: Queue) -> None:
    worker = Worker(queue)

    @worker.task("a")
    def fail(input: Any) -> None:
        raise ValueError(BAD)

    task = queue.submit("a", BAD, max_retries=0)
    worker.drain()
    rewrite(queue, task.id, '"by":"', '"by":"\\u001b[31m\\n\\u202e')

    for command in (["list"], ["status", task.id], ["history", task.id], ["cancel", task.id]):
        shown = cli(*command).output
        assert not set(shown) & {"\x1b", "\x07", "\u202e", "\x9b"}
    assert len(cli("list").stdout.splitlines()) == 1
    assert "\\x1b[31m\\n\\u202e" in cli("history", task.id).stdout


def test_what_is_typed_can_not_steer_a_terminal_either(cli: Cli) -> None:
    result = cli("status", BAD)

    assert not set(result.output) & set(BAD) - {"[", "2", "J"}


def test_a_list_fits_into_80_columns_and_is_in_colour(
    environment: dict[str, str], queue: Queue
) -> None:
    queue.submit("a_task_type_that_is_far_too_long_for_a_line", ttl_seconds=86400)
    late = queue.submit("fax")
    queue.mark_expired(late.id)

    shown = on_terminal(environment, "list")

    assert "\x1b[35mexpired" in shown
    lines = without_colours(shown).splitlines()
    assert lines[0].startswith("ID ")
    assert len(lines) == 3
    assert max(cell_len(line) for line in lines) <= 80


def test_types_that_begin_alike_can_be_told_apart_in_80_columns(
    environment: dict[str, str], queue: Queue
) -> None:
    for name in ("email", "letter"):
        queue.submit(f"app.tasks.reminders.send_{name}", priority=1)

    for command in ("list", "stats"):
        lines = without_colours(on_terminal(environment, command)).splitlines()
        assert any(line.rstrip().endswith("email") or "email " in line for line in lines)
        assert any(line.rstrip().endswith("letter") or "letter " in line for line in lines)


def test_a_wide_terminal_shows_deadlines_too(environment: dict[str, str], queue: Queue) -> None:
    queue.submit("a", expires_at=datetime(2099, 12, 24, 17, tzinfo=UTC))

    assert "2099-12-24T17:00:00Z" in on_terminal(environment, "list", width=120)


def test_stats_fit_into_80_columns(environment: dict[str, str], queue: Queue) -> None:
    queue.submit_many([("a_rather_long_task_type_it_is", n) for n in range(12345)])
    queue.mark_expired(queue.submit("fax").id)

    lines = without_colours(on_terminal(environment, "stats")).splitlines()

    assert lines[0] == "0 workers alive, 0 tasks running"
    assert "12,345" in lines[2]
    assert max(cell_len(line) for line in lines) <= 80


@pytest.mark.parametrize(("ready", "width"), [(1_234_567, 80), (1_234_567_890_123_456, 86)])
def test_stats_shorten_types_and_never_numbers(
    ready: int, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    kind = "send_email_reminder"
    found = Stats(
        unfinished={kind: Backlog(kind, ready, 2_500, 12_000, now - timedelta(hours=30))},
        running=8,
        workers=1,
        ended={TaskStatus.EXPIRED: {kind: 30_000}, TaskStatus.FAILED: {kind: 1_204}},
    )

    show_stats(found, now)

    lines = without_colours(capsys.readouterr().out).splitlines()
    assert lines[2].split()[1:] == [f"{ready:,}", "2,500", "12,000", "1d", "30,000", "1,204"]
    assert lines[2].startswith("sen")
    assert ".." in lines[2]
    assert {len(line) for line in lines[1:3]} == {width}


def test_history_on_a_terminal_tells_times_both_ways(
    environment: dict[str, str], queue: Queue
) -> None:
    task = queue.submit("a", ttl_seconds=3600.4)

    shown = without_colours(on_terminal(environment, "history", task.id))

    assert "Version 1: pending (created, expires_at: " in shown
    assert re.search(r"\(in (1h|59m \d+s)\)", shown)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (9000, "in 2h 30m"),
        (-180, "3m ago"),
        (0.4, "now"),
        (-0.4, "now"),
        (3599.7, "in 1h"),
        (100 * 86400, "in 100d"),
        (-86400 - 3600, "1d 1h ago"),
    ],
)
def test_a_time_is_told_by_how_far_away_it_is(seconds: float, told: str) -> None:
    now = datetime(2026, 12, 24, 12, tzinfo=UTC)

    assert show.relative(now + timedelta(seconds=seconds), now) == told
