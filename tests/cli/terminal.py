"""Running a command on a terminal, as far as it can tell."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path


def on_terminal(
    environment: dict[str, str], *args: str, width: int = 80, folder: Path | None = None
) -> str:
    """Run a command with a terminal as its stdout; return what appears on it."""
    main, side = pty.openpty()
    env = environment | {"COLUMNS": str(width), "TERM": "xterm-256color"}
    env = {name: value for name, value in env.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "buquet", *args], stdout=side, stderr=side, env=env, cwd=folder
    ) as running:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # how Linux tells that the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(main)
    assert running.returncode == 0
    return shown.decode()


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
