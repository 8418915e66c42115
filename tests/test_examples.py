"""Every example runs, and prints what it says it prints."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says_and_leaves_stderr_alone(path: Path) -> None:
    _, _, expected = path.read_text().partition("\n# Output:\n")

    run = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, timeout=60
    )

    assert expected != ""
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == expected.replace("# ", "", 1).replace("\n# ", "\n")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
