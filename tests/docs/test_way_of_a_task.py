"""The page that follows a task through the code names what is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from operator import attrgetter

import pytest

from tests.docs.reading import ROOT

TEXT = (ROOT / "docs" / "way-of-a-task.md").read_text("utf-8")
FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
IN_CODE = re.compile(r"`([\w./]+)`")


def named() -> Iterator[tuple[str, str]]:
    """The file and the name in it of each row of a table whose last cell is a file."""
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and FILE.fullmatch(cells[-1]):
            for name in IN_CODE.findall(cells[-2]):
                if name not in WORDS:
                    yield cells[-1].strip("`"), name


WORDS = {"expired", "failed", "list", "lost_count", "on_expired", "pending", "running"}
"""What is in code style beside the names of functions: statuses, fields, hooks."""


def test_every_file_that_is_named_exists() -> None:
    files = FILE.findall(TEXT)

    assert len(files) > 50
    assert [each for each in files if not (ROOT / "buquet" / each).is_file()] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(named())))
def test_every_function_that_is_named_exists(file: str, name: str) -> None:
    module = importlib.import_module("buquet." + file.removesuffix(".py").replace("/", "."))

    found = attrgetter(name)(module)

    assert callable(found)
