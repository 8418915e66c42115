"""No name leads out of its place: prefixes, files, task types, ids."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from buquet import ConfigurationError, InvalidOptions, Queue, TaskNotFound, connect
from buquet.core.keys import parse_entry
from buquet.worker.health import HealthFile, touch_as_oldest
from tests.helpers import World

TRICKS = [
    "../../x",
    "a/b",
    "..%2f..%2fx",
    "%2e%2e",
    "a\0",
    "a\n",
    "\na",
    "a\r\nb",
    "a b",
    "\x1b[2J",
    "\u202ea",
    "\uff21",
    "\u0430dmin",
    "a\ud800",
    "a" * 129,
    "\\",
    "",
]


@pytest.fixture
def queue() -> Queue:
    return World().queue()


@pytest.mark.parametrize("name", TRICKS)
def test_a_task_type_that_plays_tricks_is_refused_before_anything_is_written(
    queue: Queue, name: str
) -> None:
    with pytest.raises(InvalidOptions, match="is not a task type"):
        queue.submit(name)

    assert queue.store.list("") == []


@pytest.mark.parametrize("name", [".", "..", "a..b", "-", ":", "a" * 128])
def test_a_task_type_of_dots_stays_within_its_entry(name: str) -> None:
    world = World()
    world.queue().submit(name)

    (key,) = world.ready()
    entry = parse_entry(key)

    assert entry is not None
    assert entry.task_type == name


@pytest.mark.parametrize("name", [*TRICKS, "locks/sweep", "../workers/w"])
def test_an_id_that_plays_tricks_leads_to_no_task_and_to_no_read(queue: Queue, name: str) -> None:
    for act in (queue.get, queue.cancel, queue.history, queue.archive):
        with pytest.raises(TaskNotFound):
            act(name)


@pytest.mark.parametrize(
    "prefix",
    ["../x", "a/../b", "..", "a/./b", "a//b", "a\nb", "a\0b", "a\ud800", "\x1b[2J", "x" * 701],
)
def test_a_prefix_that_plays_tricks_is_refused(prefix: str) -> None:
    for given in ({"url": f"s3://my-bucket/{prefix}"}, {"bucket": "my-bucket", "prefix": prefix}):
        with pytest.raises(ConfigurationError, match="prefix") as refused:
            connect(**given)

        assert str(refused.value).isprintable()


def test_a_prefix_is_taken_as_it_is_written_with_percent_signs_and_all() -> None:
    assert repr(connect("s3://my-bucket/a%2fb/...").store) == "<S3Store s3://my-bucket/a%2fb/.../>"


@pytest.mark.parametrize("name", ["a\0b.db", "a\ud800.db", "a" * 256])
def test_a_file_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    for given in ({"url": f"sqlite:///{tmp_path}/{name}"}, {"path": tmp_path / name}):
        with pytest.raises(ConfigurationError, match="No file can be called"):
            connect(**given)


def test_options_of_sqlite_can_not_be_slipped_into_its_url(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        connect(f"sqlite:///{tmp_path}/queue.db?mode=memory")
    with connect(path=tmp_path / "queue.db?mode=memory") as queue:
        queue.submit("a")

    assert (tmp_path / "queue.db?mode=memory").exists()


def test_a_health_file_that_is_a_link_changes_no_content_of_what_it_leads_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "precious").write_text("content")
    (tmp_path / "health").symlink_to(tmp_path / "precious")

    HealthFile(tmp_path / "health").touch()
    touch_as_oldest(tmp_path / "health", [tmp_path / "precious"])

    assert (tmp_path / "precious").read_text() == "content"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Any:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_a_sqlite_file_and_those_beside_it_have_the_mode_that_the_umask_leaves(
    tmp_path: Path, umask: int
) -> None:
    with connect(path=tmp_path / "queue.db") as queue:
        queue.submit("a")
        modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}

    assert set(modes) >= {"queue.db", "queue.db-wal"}
    assert set(modes.values()) == {0o644 & ~umask}
