"""A log tells of one event on one line, whatever is in its words."""

from __future__ import annotations

import json
import logging
from io import StringIO

import pytest

from buquet.cli.logs import JsonFormatter, TaskFilter, TextFormatter
from tests.helpers import World

FORGED = "2026-12-24 17:00:00 INFO    All is well."
HOSTILE = f"broken\n{FORGED}\r{FORGED}\x1b[2J\x1b]0;title\x07\x85\u2028\u202e\x9b2J"


def logged(formatter: logging.Formatter) -> list[str]:
    """Run a task whose handler fails with hostile words and logs them; return the lines."""
    world, stream = World(), StringIO()
    worker = world.worker()

    @worker.task("hostile")
    def fail(input: object) -> None:
        logging.getLogger("some.library").warning("%s", HOSTILE)
        raise ValueError(HOSTILE)

    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(TaskFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        world.queue().submit("hostile", HOSTILE, max_retries=0)
        worker.drain()
    finally:
        root.removeHandler(handler)
    return stream.getvalue().split("\n")


@pytest.mark.parametrize("in_colour", [False, True])
def test_no_words_of_others_pass_for_a_record_of_a_text_log(in_colour: bool) -> None:
    lines = logged(TextFormatter(in_colour=in_colour, with_pid=True))

    assert not [line for line in lines if line.startswith(FORGED[:4]) and "[" not in line]
    assert any(line.startswith("    ") and FORGED in line for line in lines)
    assert [line for line in lines if "WARNING" in line and "broken\\n" in line]


def test_no_words_of_others_steer_the_terminal_that_shows_a_text_log() -> None:
    told = "\n".join(logged(TextFormatter(in_colour=False, with_pid=False)))

    assert not [each for each in told if not (each.isprintable() or each == "\n")]
    assert "\\x1b]0;title\\x07" in told


def test_a_json_log_has_one_object_for_each_event_and_its_words_as_they_were() -> None:
    lines = logged(JsonFormatter())

    records = [json.loads(line) for line in lines if line]
    assert [each["message"] for each in records if each["logger"] == "some.library"] == [HOSTILE]
    assert any(HOSTILE.splitlines()[1] in each.get("exc", "") for each in records)
    assert "".join(lines).isprintable()


def test_our_own_records_name_types_and_ids_and_never_an_input_or_an_output() -> None:
    world, stream = World(), StringIO()
    worker = world.worker()
    worker.task("secret")(lambda input: {"answer": "output-secret"})
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("buquet")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        queue = world.queue()
        queue.submit("secret", {"password": "input-secret"})
        queue.submit("late", {"password": "input-secret"}, ttl_seconds=0)
        worker.drain()
        world.sweeper().sweep_once(full=True)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

    assert "is at work" in stream.getvalue()
    assert "secret" not in stream.getvalue().replace("'secret'", "").replace("(secret)", "")
