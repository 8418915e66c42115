"""No document becomes code: nothing in the package unpickles, evaluates or runs a shell."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from buquet.cli.loading import load_worker
from buquet.errors import ConfigurationError
from tests.docs.reading import ROOT, name_of

SOURCES = sorted((ROOT / "buquet").rglob("*.py"))
MODULES = {"pickle", "cPickle", "shelve", "marshal", "dill", "yaml", "code", "codeop", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "import_module"}
LOADERS = {"buquet/cli/loading.py": {"import_module"}}
"""What imports the module that is named on the command line, and nothing else."""


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_module_of_the_package_turns_data_into_code(path: Path) -> None:
    imported: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                imported |= {each.name.partition(".")[0] for each in names}
            case ast.ImportFrom(module=str(module)):
                imported.add(module.partition(".")[0])
            case ast.Call(func=ast.Name(id=name)):
                called.add(name)
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner))):
                called |= {name} if owner != "re" else set()
                assert not [each for each in node.keywords if each.arg == "shell"]

    assert not imported & MODULES
    assert called & CALLS == LOADERS.get(name_of(path), set())


def test_a_worker_is_loaded_from_the_current_folder_before_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write the folder in which a worker is started decides what it runs."""
    (tmp_path / "planted_here.py").write_text("worker = 'ours'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])

    with pytest.raises(ConfigurationError, match="is of type str, not a Worker"):
        load_worker("planted_here:worker")

    assert sys.path[0] == str(Path.cwd())


@pytest.mark.parametrize("target", ["../x:worker", "/tmp/x:worker", "x/y:worker", ".x:worker"])
def test_a_worker_is_named_by_a_module_and_never_by_a_path(target: str) -> None:
    with pytest.raises(ConfigurationError):
        load_worker(target)
