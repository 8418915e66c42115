"""What long-running commands log: to stderr, readably, in colours on a terminal."""

from __future__ import annotations

import logging
import sys

from buquet.cli.show import clean

_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31;1"}


class Formatter(logging.Formatter):
    """Writes a record; what came from elsewhere can't move the cursor of who reads it."""

    def __init__(self, *, in_colour: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")
        self._in_colour = in_colour

    def format(self, record: logging.LogRecord) -> str:
        """Write a record, the lines of a traceback included."""
        first, *more = [
            clean(line.replace("\t", "    ")) for line in super().format(record).split("\n")
        ]
        colour = _COLOURS.get(record.levelno)
        if self._in_colour and colour:
            first = f"\x1b[{colour}m{first}\x1b[0m"
        return "\n".join([first, *more])


def log_to_stderr(*, debug: bool, level: int = logging.INFO) -> None:
    """Set logging up, unless the program of the user has."""
    root = logging.getLogger()
    logging.getLogger("buquet").setLevel(logging.DEBUG if debug else level)
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(in_colour=sys.stderr is not None and sys.stderr.isatty()))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for chatty in ("boto3", "botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
