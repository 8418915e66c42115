"""The public names are complete, sorted and documented."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest
from attrs import fields

import buquet
import buquet.testing
from buquet import Queue, Task, TaskContext, Worker, errors
from buquet.client.submit import SubmitOptions
from tests.docs.reading import ROOT

API = (ROOT / "docs" / "api.md").read_text("utf-8")
WORDS = set(re.findall(r"\w+", API))


def public(kind: type) -> set[str]:
    """The public names of a class."""
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("module", [buquet, buquet.testing], ids=lambda module: module.__name__)
def test_the_public_names_are_sorted_and_complete(module: ModuleType) -> None:
    there = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert module.__all__ == sorted(module.__all__)
    assert set(module.__all__) == there


def test_every_error_is_public() -> None:
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    ours = {name for name in raised if getattr(errors, name).__module__ == errors.__name__}

    assert ours <= set(buquet.__all__)


@pytest.mark.parametrize("name", [*buquet.__all__, *buquet.testing.__all__])
def test_every_public_name_is_documented(name: str) -> None:
    assert name in WORDS


@pytest.mark.parametrize("kind", [Queue, Worker, TaskContext], ids=lambda kind: kind.__name__)
def test_every_public_method_is_documented(kind: type) -> None:
    documented_elsewhere = {"id", "task_types"}

    assert public(kind) - documented_elsewhere <= WORDS


def test_every_option_and_every_field_is_documented() -> None:
    internal = {"extra", "memo"}

    assert set(SubmitOptions.__annotations__) <= WORDS
    assert {each.name for each in fields(Task)} - internal <= WORDS


def test_the_tree_of_errors_matches_the_code() -> None:
    names = re.compile(r"^[│├└─ ]*((?:[A-Z]\w+(?:, )?)+)", re.MULTILINE)
    assert errors.__doc__ is not None
    trees = [text.partition("BuquetError\n")[2] for text in (errors.__doc__, API)]

    mine, theirs = (names.findall(tree.partition("```")[0]) for tree in trees)

    assert mine == theirs


def test_the_changelog_ends_at_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)

    assert headings[0] == "Unreleased"
    assert headings[1] == buquet.__version__
