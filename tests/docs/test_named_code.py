"""The pages for readers of the code name what is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import buquet
from tests.docs.reading import ROOT, name_of, prose
from tests.docs.test_names import OURS

WAY = ROOT / "docs" / "way-of-a-task.md"
PAGES = [
    *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "protocol", "way-of-a-task")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
FILE = re.compile(r"`((?!tests/)(?:\w+/)*\w+\.py)`")
IN_CODE = re.compile(r"`([\w./]+)`")
DOTTED = re.compile(r"`(\w+)\.(\w+)(?:\(\w*\))?`")

WORDS = {"expired", "failed", "list", "lost_count", "on_expired", "pending", "running"}
"""What is in code style beside the names of functions: statuses, fields, hooks."""


def named() -> Iterator[tuple[str, str]]:
    """The file and each name before it, for each row of a table whose last cell is a file."""
    for line in WAY.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and FILE.fullmatch(cells[-1]):
            for name in IN_CODE.findall(cells[-2]):
                if name not in WORDS:
                    yield cells[-1].strip("`"), name


def test_every_file_on_the_way_exists() -> None:
    files = FILE.findall(WAY.read_text("utf-8"))

    assert len(files) > 50
    assert [each for each in files if not (ROOT / "buquet" / each).is_file()] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(named())))
def test_every_function_on_the_way_is_in_its_file(file: str, name: str) -> None:
    module = importlib.import_module("buquet." + file.removesuffix(".py").replace("/", "."))

    assert callable(attrgetter(name)(module))


@pytest.fixture(scope="module")
def owners() -> dict[str, list[Any]]:
    """The modules and classes of buquet, by name.

    The modules `queue`, `worker` and `context` are left out: in the documents these words are the
    objects of a program, whose attributes tests/docs/test_names.py checks.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for each in pkgutil.walk_packages(buquet.__path__, "buquet."):
        if each.name != "buquet.__main__":  # it is the program
            module = importlib.import_module(each.name)
            found[each.name.rpartition(".")[2]].append(module)
            for name, kind in inspect.getmembers(module, inspect.isclass):
                found[name].append(kind)
    return {name: kinds for name, kinds in found.items() if name not in OURS}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_method_that_is_named_exists(path: Path, owners: dict[str, list[Any]]) -> None:
    pairs = DOTTED.findall(prose(path))

    unknown = [
        f"{owner}.{name}"
        for owner, name in pairs
        if owner in owners and name != "py" and not any(hasattr(x, name) for x in owners[owner])
    ]

    assert unknown == []
