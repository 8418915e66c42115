"""The names in the documents exist: methods, arguments, commands, environment variables."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from attrs import fields
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES
from typer.main import get_command

from buquet import (
    Queue,
    RescheduleError,
    RetryPolicy,
    Sweeper,
    Task,
    TaskContext,
    Worker,
    connect,
)
from buquet.cli.app import app
from buquet.cli.lifeline import VARIABLE as LIFELINE
from buquet.client.submit import SubmitOptions
from buquet.store.location import open_store
from buquet.store.memory import MemoryStore
from buquet.store.s3 import S3Store
from tests.docs.reading import DOCUMENTS, ROOT, blocks, languages, name_of


def keywords(function: Callable[..., object]) -> set[str]:
    """The names of its arguments."""
    return set(inspect.signature(function).parameters)


OURS = {
    "queue": set(dir(Queue)) | {"db"},
    "worker": set(dir(Worker)) | {"settings"},
    "context": set(dir(TaskContext)),
    "task": set(dir(Task)) | {each.name for each in fields(Task)},
}
"""The attributes of the objects that the documents call by these names; `queue.db` is a file."""

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

SUBMIT = {"input", *SubmitOptions.__annotations__}
KEYWORDS = {
    "connect": keywords(connect) | keywords(open_store) | keywords(S3Store) | keywords(MemoryStore),
    "submit": SUBMIT,
    "submit_many": SUBMIT | {"batch_size"},
    "submit_stream": SUBMIT | {"batch_size"},
    "resubmit": SUBMIT,
    "replay": keywords(Queue.replay),
    "cancel": keywords(Queue.cancel),
    "wait": keywords(Queue.wait),
    "list": keywords(Queue.list),
    "Worker": keywords(Worker),
    "task": keywords(Worker.task),
    "run": keywords(Worker.run) | keywords(Sweeper.run),
    "stop": keywords(Worker.stop),
    "RetryPolicy": keywords(RetryPolicy),
    "RescheduleError": keywords(RescheduleError),
}
"""The arguments of the functions that the documents call by these names."""

ATTRIBUTE = re.compile(r"(?<![\w./-])(queue|worker|context|task)\.(\w+)")
CALL = re.compile(r"(?<!\w)(\w+)\(([^()`]*)\)")
KEYWORD = re.compile(r"\b(\w+)=(?!=)")
CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:^|\| |\S=\S+ |exec |CMD |bin/|xargs )buquet ([a-z][^|`\n]*)", re.M)
EXEC_FORM = re.compile(r"^CMD (\[.*\])$", re.MULTILINE)
MAKE = re.compile(r"^make ([a-z]+)", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:AWS|BUQUET)_[A-Z_]+\b")

DATED = ROOT / "CHANGELOG.md"
"""It also names what no longer exists."""

CURRENT = [path for path in DOCUMENTS if path != DATED]


def ours(path: Path) -> str:
    """The part of a document about buquet: in tables of migrating.md, the second column."""
    text = path.read_text("utf-8")
    if path.name != "migrating.md":
        return text
    return re.sub(r"^\| .*? \| ", "| ", text, flags=re.MULTILINE)


def code(path: Path) -> str:
    """The code in a document: each piece between backticks on its own line, then all blocks."""
    text = ours(path)
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join([*CODE.findall(text), *fenced])
    return EXEC_FORM.sub(lambda cmd: f"CMD {shlex.join(json.loads(cmd[1]))}", lines)


@pytest.mark.parametrize("path", CURRENT, ids=name_of)
def test_attributes_that_are_named_exist(path: Path) -> None:
    named = ATTRIBUTE.findall(code(path))

    assert [f"{what}.{name}" for what, name in named if name not in OURS[what]] == []


@pytest.mark.parametrize("path", CURRENT, ids=name_of)
def test_arguments_that_are_named_exist(path: Path) -> None:
    named = [
        (function, keyword)
        for function, arguments in CALL.findall(code(path))
        for keyword in KEYWORD.findall(arguments)
        if function in KEYWORDS
    ]

    assert [each for each in named if each[1] not in KEYWORDS[each[0]]] == []


def commands(path: Path) -> Iterator[list[str]]:
    """The command lines in a document that call buquet, as lists of words."""
    for line in COMMAND.findall(code(path).replace("\\\n", " ")):
        words = shlex.split(line.partition("…")[0], comments=True)
        yield [word for word in words if word not in (">/dev/null", "-")]


def unknown(words: list[str]) -> str | None:
    """The first word of a command line that buquet does not know, or None."""
    command = COMMANDS.get(words[0])
    if command is None:
        return words[0]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    asked = [word for word in words[1:] if word.startswith("-")]
    return next((word for word in asked if word not in known), None)


@pytest.mark.parametrize("path", CURRENT, ids=name_of)
def test_commands_and_options_that_are_named_exist(path: Path) -> None:
    assert [words for words in commands(path) if unknown(words)] == []


@pytest.mark.parametrize("path", CURRENT, ids=name_of)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)

    assert set(MAKE.findall(code(path))) <= set(targets)


@pytest.mark.parametrize("path", CURRENT, ids=name_of)
def test_settings_for_other_programs_can_be_read_by_them(path: Path) -> None:
    for text in blocks(path, "ini"):
        ConfigParser().read_string(text)
    for text in blocks(path, "json"):
        json.loads(text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_no_block_is_in_a_language_that_no_test_reads(path: Path) -> None:
    shown = {"", "sh", "text", "mermaid", "yaml"}
    read = {"python", "ini", "json", "dockerfile", "rooms", "worker"}

    assert languages(path) <= shown | read


def test_environment_variables_that_are_named_are_read() -> None:
    code = [path.read_text("utf-8") for path in (ROOT / "buquet").rglob("*.py")]
    text = "\n".join([*map(ours, CURRENT), *code])
    read = set(re.findall(r"environ(?:\.get\(|\[)\s*\"(BUQUET_\w+)\"", "\n".join(code)))
    of_boto3 = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"}
    for _, variables, *_ in BOTOCORE_DEFAUT_SESSION_VARIABLES.values():
        of_boto3.update([variables] if isinstance(variables, str) else variables or ())

    assert set(VARIABLE.findall(text)) - read - of_boto3 == {LIFELINE}
