import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buquet.cli.app import COMMANDS, app

Cli = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def options_of(command: str) -> set[str]:
    import typer

    found = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    return {name for each in found for name in each.opts if name.startswith("--")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help_and_a_place_in_the_docs(cli: Cli, command: str) -> None:
    result = cli(command, "--help")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 3
    assert f"\n## buquet {command}\n" in DOCS.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_the_docs(command: str) -> None:
    _, _, section = DOCS.read_text().partition(f"\n## buquet {command}\n")
    section = section.partition("\n## ")[0]
    common = {"--url", "--json", "--debug", "--help"}

    assert {each for each in options_of(command) - common if f"`{each}" not in section} == set()


def test_help_names_each_command_with_a_whole_sentence(cli: Cli) -> None:
    shown = cli("--help").stdout

    assert [name for name in COMMANDS if f"\n  {name} " not in shown] == []
    assert "..." not in shown.partition("Commands:")[2]
    assert cli().stdout == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_arguments_without_braces_and_types_of_python(cli: Cli, command: str) -> None:
    shown = cli(command, "--help").stdout

    assert [each for each in ("{", "}", " <", "list[") if each in shown] == []


def test_the_help_of_worker_names_the_defaults_of_its_settings(cli: Cli) -> None:
    shown = " ".join(cli("worker", "--help").stdout.split())

    for default in ("8", "30s", "1m", "100ms", "5s"):
        assert f"[default: the Worker's, else {default}]" in shown


def test_help_does_not_load_boto3() -> None:
    code = (
        "import sys; from buquet.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'boto3', 'botocore'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
