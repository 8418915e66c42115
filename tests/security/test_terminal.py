"""What others have written is shown as it is, and steers no terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from buquet import Queue, connect
from buquet.cli.app import app
from buquet.core.keys import batch_key, worker_key
from tests.cli.terminal import on_terminal, without_colours

TRICKS = {
    "a colour": ("\x1b[31m", "\\x1b[31m"),
    "a title": ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
    "a link": ("\x1b]8;;http://x\x1b\\", "\\x1b]8;;http://x\\x1b\\"),
    "an old control character": ("\x9b2J", "\\x9b2J"),
    "a line back": ("\rdone", "\\rdone"),
    "a new line": ("\ndone", "\\ndone"),
    "a bell": ("\x07\x08", "\\x07\\x08"),
    "a line of Unicode": ("\u2028\x85", "\\u2028\\x85"),
    "a turn of direction": ("\u202eexe", "\\u202eexe"),
    "an isolate": ("\u2066\u2069", "\\u2066\\u2069"),
    "nothing to see": ("\u200b\ufeff", "\\u200b\\ufeff"),
    "half a character": ("\ud800", "\\ud800"),
    "markup": ("[red]x[/red][link=http://x]", "[red]x[/red][link=http://x]"),
    "an emoji code": (":warning:", ":warning:"),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queue.db'}"


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with connect(url) as queue:
        yield queue


def poison(queue: Queue, trick: str) -> str:
    """Store a task and a worker with the trick in every text there is; return the task's id."""
    task = queue.submit("a", {trick if trick != "\ud800" else "k": "v"})
    stored = queue.store.get(batch_key(task.batch_id))
    assert stored is not None
    document = json.loads(stored.body)
    spoilt = document["tasks"][0]
    spoilt |= {"status": "failed", "last_error": trick, "cancelled_by": trick, "output": trick}
    spoilt |= {"completed_at": spoilt["created_at"], "worker_id": trick}
    spoilt["history"][0] |= {"by": trick, "event": trick, "details": {trick: trick}}
    queue.store.put(batch_key(task.batch_id), json.dumps(document).encode())
    now = spoilt["created_at"]
    record = {"id": "w1", "host": trick, "pid": 1, "threads": 1, "task_types": [trick]}
    alive = "2999-01-01T00:00:00Z"  # of one that has died no progress is shown
    record |= {"started_at": now, "heartbeat_at": now, "lease_expires_at": alive}
    record["running"] = [task.id]
    record["progress"] = {task.id: {"fraction": 0.5, "text": trick, "at": now}}
    queue.store.put(worker_key("w1"), json.dumps(record).encode())
    return task.id


def commands(task_id: str) -> list[list[str]]:
    return [["status", task_id], ["history", task_id], ["workers"], ["list"], ["stats"]]


@pytest.fixture
def run(url: str) -> Callable[..., str]:
    """Run a command in this process and return its stdout."""

    def run(*args: str, **env: str) -> str:
        result = CliRunner().invoke(app, list(args), env={"BUQUET_URL": url, **env})
        assert result.exit_code == 0
        return result.stdout

    return run


def is_harmless(shown: str, but: str) -> bool:
    return all(each.isprintable() or each in but for each in shown)


@pytest.mark.parametrize("what", TRICKS)
def test_on_a_terminal_a_trick_is_shown_and_not_played(
    what: str, queue: Queue, run: Callable[..., str]
) -> None:
    trick, written = TRICKS[what]
    task_id = poison(queue, trick)

    for command in commands(task_id):
        if command == ["stats"]:
            queue.submit("ok")  # so that there is something to count
        raw = run(*command, FORCE_COLOR="1", COLUMNS="200", TERM="xterm-256color")
        shown = without_colours(raw)
        assert shown != raw
        assert is_harmless(shown, but="\n")
        if command[0] in ("status", "history", "workers"):
            assert written in shown.replace("\n", "")
        lines = {"list": 2, "history": 2, "workers": 3}.get(command[0])
        assert lines in (None, len(shown.splitlines()))


@pytest.mark.parametrize("what", TRICKS)
def test_in_a_pipe_a_trick_is_shown_and_json_has_it_exactly(
    what: str, queue: Queue, run: Callable[..., str]
) -> None:
    trick, written = TRICKS[what]
    task_id = poison(queue, trick)

    for command in commands(task_id):
        assert is_harmless(run(*command), but="\t\n")
    told: Any = json.loads(run("status", task_id, "--json"))

    assert written in run("status", task_id)
    assert told["last_error"] == told["worker_id"] == told["output"] == trick
    assert told["history"][0]["by"] == trick
    assert len(run("list").splitlines()) == len(run("workers").splitlines()) == 1


def test_a_real_terminal_gets_no_colour_that_is_not_ours(queue: Queue, url: str) -> None:
    task_id = poison(queue, "\x1b[5;41m")

    shown = on_terminal({**os.environ, "BUQUET_URL": url}, "status", task_id)

    assert "\x1b[5;41m" not in shown
    assert "\\x1b[5;41m" in shown
