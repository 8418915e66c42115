"""The threat model and the tests tell of each other."""

from __future__ import annotations

import re

import pytest

from tests.docs.reading import ROOT

TABLE = (ROOT / "docs" / "security.md").read_text("utf-8").partition("## Threats")[2]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_threat_names_tests_and_each_of_them_exists(row: str) -> None:
    named = NAMED.findall(row.rpartition(" | ")[2])

    assert named
    for path, name in named:
        source = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(def {name}\(|{name} = )", source, re.MULTILINE), f"{path}::{name}"


def test_each_test_of_security_is_named_by_a_threat() -> None:
    named = {name for _, name in NAMED.findall(TABLE)}
    there = {
        name
        for path in (ROOT / "tests" / "security").glob("test_*.py")
        if path.name != "test_threat_model.py"
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }

    assert there - named == {"test_what_is_counted_is_never_more_than_the_size"}
