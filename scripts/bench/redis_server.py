"""A Redis server of this machine, for the peers that need one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.bench.settings import folder

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""Every write is on disk before it is answered, as on SQLite."""

QUICK = ("--appendonly", "no")
"""Nothing is written to disk: what it holds is lost with the server."""

PATIENCE_SECONDS = 10
TICK = 0.02


def version() -> str | None:
    """Return the version of the server on PATH, None if there is none."""
    if shutil.which("redis-server") is None:
        return None
    command = ["redis-server", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return told.partition("v=")[2].split()[0]


@contextmanager
def server(settings: tuple[str, ...]) -> Iterator[Path]:
    """Run a server that can be reached by a socket in the file system alone; give that socket."""
    with folder() as where:
        path = where / "socket"
        command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(where)]
        process = subprocess.Popen(
            [*command, "--save", "", *settings], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            _await(path, process)
            yield path
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def _await(path: Path, process: subprocess.Popen[bytes]) -> None:
    watch = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / TICK)):
        if process.poll() is None and _answers(path):
            return
        watch.wait(TICK)
    raise RuntimeError(f"redis-server does not answer on {path}.")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
