"""What the documents say about the modules is true."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.reading import DOCUMENTS, ROOT, blocks, name_of

ARCHITECTURE = ROOT / "docs" / "architecture.md"
PATHS = re.compile(r"`((?:tests|buquet|examples)/[\w/.*]+)`")
INSIDE = re.compile(r"`((?:store|worker|cli|testing)/\w+\.py)`")


def contract(container: str) -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = (
        each["layers"]
        for each in settings["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers" and each["containers"] == [container]
    )
    assert isinstance(layers, list)
    return layers


@pytest.mark.parametrize(("name", "container"), [("rooms", "buquet"), ("worker", "buquet.worker")])
def test_a_picture_has_the_lines_of_its_contract_from_top_to_bottom(
    name: str, container: str
) -> None:
    (picture,) = blocks(ARCHITECTURE, name)
    drawn = [set(re.findall(r"\w+", line)) for line in picture.splitlines()]
    layers = [set(layer.split(" | ")) for layer in contract(container)]

    line_of = {each: number for number, names in enumerate(drawn) for each in names}
    lines = [{line_of[each] for each in layer} for layer in layers]

    assert line_of.keys() == set.union(*layers)
    assert all(max(above) < min(below) for above, below in pairwise(lines))


def modules(room: Path) -> set[str]:
    names = {path.stem for path in room.iterdir() if path.is_dir() or path.suffix == ".py"}
    return {name for name in names if not name.startswith("__")}


def rows(section: str) -> set[str]:
    """The modules that have a row in the table of a section."""
    text = ARCHITECTURE.read_text("utf-8").partition(f"\n{section}\n")[2]
    table = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_every_room_has_its_job_in_the_table() -> None:
    assert rows("## The rooms") == modules(ROOT / "buquet")


@pytest.mark.parametrize("room", ["core", "store", "ledger", "client", "worker", "testing", "cli"])
def test_every_module_of_a_room_has_its_job_in_the_table(room: str) -> None:
    assert rows(f"### `{room}`") == modules(ROOT / "buquet" / room)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    named = PATHS.findall(text) + [f"buquet/{each}" for each in INSIDE.findall(text)]

    assert [each for each in named if not list(ROOT.glob(each))] == []
