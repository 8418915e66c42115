import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest

from buquet.cli.logs import JsonFormatter, LogFormat, TaskFilter, TextFormatter, log_to_stderr
from tests.helpers import World


@contextmanager
def root_logger() -> Iterator[logging.Logger]:
    """The root logger without handlers; afterwards as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    yield root
    root.handlers = before
    root.setLevel(level)
    logging.getLogger("buquet").setLevel(logging.NOTSET)


def told_by_handlers(formatter: logging.Formatter) -> tuple[str, str]:
    """Run a task whose handler logs through a logger of its own; return id and log."""
    world, stream = World(), StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(TaskFilter())
    logger = logging.getLogger("some.library")
    worker = world.worker()

    @worker.task("talk")
    def talk(input: object) -> None:
        try:
            raise KeyError("id")
        except KeyError:
            logger.exception("no\nluck")

    logger.addHandler(handler)
    try:
        task = world.queue().submit("talk")
        worker.drain()
        logger.warning("between tasks")
    finally:
        logger.removeHandler(handler)
    return task.id, stream.getvalue()


def test_what_a_handler_logs_names_its_task() -> None:
    task_id, told = told_by_handlers(TextFormatter(in_colour=False, with_pid=False))

    first, *_, last = told.splitlines()
    assert first.endswith(f"ERROR   no\\nluck (task {task_id}, talk)")
    assert last.endswith("between tasks")


def test_json_logs_are_an_object_on_each_line() -> None:
    task_id, told = told_by_handlers(JsonFormatter())

    inside, outside = (json.loads(line) for line in told.splitlines())
    assert (inside["task_id"], inside["task_type"]) == (task_id, "talk")
    assert (inside["level"], inside["logger"]) == ("ERROR", "some.library")
    assert inside["message"] == "no\nluck"
    assert "KeyError" in inside["exc"]
    assert {"time", "pid", "thread"} <= inside.keys()
    assert not {"task_id", "exc"} & outside.keys()


def test_a_record_that_names_the_task_already_does_so_once() -> None:
    formatter = TextFormatter(in_colour=True, with_pid=True)
    record = logging.LogRecord("a", logging.ERROR, "", 1, "Task %s failed.", ("abc",), None)
    record.task_id, record.task_type = "abc", "email"

    told = formatter.format(record)

    assert told.count("abc") == 1
    assert f"[{record.process}] " in told
    assert told.startswith("\x1b[31m")


def test_logging_that_the_program_has_set_up_is_left_alone_unless_a_format_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := StringIO())
    mine = logging.NullHandler()
    with root_logger() as root:
        root.addHandler(mine)
        log_to_stderr(debug=False)
        before = root.handlers[:]

        log_to_stderr(debug=False, log_format=LogFormat.JSON)
        logging.getLogger("buquet").info("here")
        after = root.handlers[:]

    assert before == [mine]
    assert mine not in after
    assert json.loads(stream.getvalue())["message"] == "here"


def test_what_other_libraries_say_of_answers_that_were_cut_short_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := StringIO())
    with root_logger():
        log_to_stderr(debug=False)
        logging.getLogger("urllib3.connection").warning("Failed to parse headers")

    assert stream.getvalue() == ""
