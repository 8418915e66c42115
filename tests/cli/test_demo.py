import json
from collections.abc import Callable
from typing import Any

from buquet.cli.demo import SCENES

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


def test_the_demo_in_json_tells_how_each_kind_of_task_ended(process: Cli) -> None:
    result = process("demo", "--json")

    told = json.loads(result.stdout)
    assert told["tasks"] == {scene.task_type: {scene.ends: scene.count} for scene in SCENES}
    assert len(told["expired"]) == 3
    assert told["seconds"] < 14
