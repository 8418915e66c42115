import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from rich.cells import cell_len

from buquet.cli.scenes import SCENES
from tests.cli.terminal import on_terminal, without_colours

Cli = Callable[..., Any]


def test_the_demo_shows_what_it_says_and_leaves_nothing_behind(process: Cli, tmp_path: Any) -> None:
    (tmp_path / "tmp").mkdir()

    result = process("demo", env={"TMPDIR": str(tmp_path / "tmp")})

    assert result.returncode == 0
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    for scene in SCENES:
        assert f"{scene.shows}: " in result.stdout
    assert "$ buquet list --status expired" in result.stdout
    assert "Version 3: expired (expired_at: " in result.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_demo_on_a_terminal_stays_within_80_columns_and_says_the_same_in_json(
    environment: dict[str, str],
) -> None:
    in_json = [sys.executable, "-m", "buquet", "demo", "--json"]
    with subprocess.Popen(in_json, stdout=subprocess.PIPE, env=environment) as other:
        shown = without_colours(on_terminal(environment, "demo"))
        assert other.stdout is not None
        told = json.load(other.stdout)

    assert "500 thumbnail" in shown
    assert max(cell_len(line) for line in shown.splitlines()) <= 80
    assert told["tasks"] == {scene.task_type: {scene.ends: scene.count} for scene in SCENES}
    assert len(told["expired"]) == 3
