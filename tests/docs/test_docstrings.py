"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import buquet

MODULES = [
    each.name
    for each in pkgutil.walk_packages(buquet.__path__, "buquet.")
    if each.name != "buquet.__main__"  # it is the program
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))

    assert failed == 0


def test_there_are_examples() -> None:
    found = (doctest.DocTestFinder().find(importlib.import_module(name)) for name in MODULES)

    assert sum(len(each.examples) for tests in found for each in tests) > 10
