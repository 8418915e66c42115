"""What the documents say about the modules is true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.reading import DOCUMENTS, ROOT, blocks, name_of

ARCHITECTURE = ROOT / "docs" / "architecture.md"
PATHS = re.compile(r"`((?:tests|buquet|examples)/[\w/.*]+)`")
INSIDE = re.compile(r"`((?:store|worker|cli|testing)/\w+\.py)`")


def contract() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = (
        each["layers"]
        for each in settings["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers" and each["containers"] == ["buquet"]
    )
    assert isinstance(layers, list)
    return layers


def test_the_picture_of_the_layers_is_the_contract() -> None:
    (picture,) = blocks(ARCHITECTURE, "layers")

    assert picture.splitlines() == contract()


def test_every_module_has_its_job_in_the_table() -> None:
    rows = re.findall(r"^\| (`[\w`, ]+`) \|", ARCHITECTURE.read_text("utf-8"), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    packages = {path.stem for path in (ROOT / "buquet").iterdir()} - {"__pycache__", "py"}

    assert told == {name for name in packages if not name.startswith("__")}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    named = PATHS.findall(text) + [f"buquet/{each}" for each in INSIDE.findall(text)]

    assert [each for each in named if not list(ROOT.glob(each))] == []
