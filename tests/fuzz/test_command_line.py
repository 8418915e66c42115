"""Whatever is typed: an exit code that is documented, no traceback, and no task is lost."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from buquet import PermanentError, Queue, Worker, connect
from buquet.cli.app import app
from buquet.store.sqlite import SqliteStore
from tests.fuzz.documents import ODD_TEXTS
from tests.fuzz.effort import examples

DOCUMENTED = {0, 1, 2, 3, 4, 5, 6}
NOT_OURS = "Run it with --debug to see where."
"""What ends the line about an error that nobody has thought of."""

ENDLESS = {"demo", "sweeper"}
"""What goes on for a while, if its arguments are right."""

UNTRIED = {"--url", "--help", "-h", "--reload", "--processes"}
"""The first is tried with stores of its own; the last two start processes, and wait."""

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

TYPED = st.sampled_from(
    [
        *("", " ", "-", "--", "---", "-x", "--x=y", "-1", "0", "1", "5m", "-5m", "1e999", "nan"),
        *(
            "9" * 30,
            "9" * 5000,
            "0x10",
            "1_000",
            "\u0665",
            "null",
            "{}",
            '{"a": 1}',
            "[",
            "NaN",
            "@",
        ),
        *("@missing.json", "@.", "@data.json", "@bad.json", "2026-12-24", "2026-12-24T17:00:00Z"),
        *(
            "9999-12-31T23:59:59-14:00",
            "0001-01-01",
            "ok",
            "a/b",
            "a b",
            "good",
            "failed",
            "FAILED",
        ),
        *("lost", "ffff", "fff", "0123", "\x1b[2J", "\u202e", "é", "\U0001f600", "%s", "$(id)"),
        *(os.fsdecode(b"\xff\xfe"), os.fsdecode(b"a\x80b"), "a\nb", "a\tb", "'", '"', "\\"),
    ]
) | ODD_TEXTS.filter(lambda text: "\0" not in text)
"""Words as somebody may type them; the system lets no NUL into an argument."""

PLACES = st.sampled_from(
    [
        *("memory:", "sqlite:///other.db", "sqlite:///.", "sqlite:///missing/x.db", "sqlite:"),
        *("sqlite:///data.json", "sqlite:///:memory:", "s3://", "s3://_", "http://x", "x", ":", ""),
    ]
)


IDS = st.sampled_from([f"{{{number}}}" for number in range(7)])
"""Stand for the ids of the tasks that are there."""


def words(name: str) -> st.SearchStrategy[list[str]]:
    """Draw a command and arguments: its options and others, with right values and odd ones."""
    own = [flag for each in COMMANDS[name].params for flag in each.opts if flag.startswith("-")]
    flags = st.sampled_from([flag for flag in own if flag not in UNTRIED])
    value = TYPED | IDS | IDS.map("{}[:9]".format)
    piece = (
        st.tuples(flags, value)
        | st.tuples(flags)
        | st.tuples(value)
        | st.tuples(flags, value).map(lambda pair: ("=".join(pair),))
        | st.just(("--json",))
        | st.tuples(st.just("--url"), PLACES)
    )
    return st.lists(piece, max_size=6).map(lambda found: [name, *chain.from_iterable(found)])


WORDS = {name: words(name) for name in sorted(COMMANDS.keys() - ENDLESS)}


def fill(queue: Queue) -> None:
    """Submit tasks that come to each of the ends that commands tell apart."""
    worker = Worker(queue, check=False)
    worker.task("good")(lambda given: given)

    @worker.task("bad")
    def bad(given: Any) -> None:
        raise PermanentError("no such customer")

    queue.submit("good", {"a": 1})
    queue.submit("bad", 1)
    worker.drain()
    queue.submit("ok", ttl_seconds=0)
    queue.submit_many([("ok", n) for n in range(3)], delay=timedelta(days=1))
    queue.cancel(queue.submit("ok").id)


@frozen
class Place:
    """A folder to be in, with some files and a queue that each example finds as it was."""

    path: Path
    ids: list[str]

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path / 'queue.db'}"

    def set_up(self) -> None:
        for each in self.path.glob("*.db*"):
            each.unlink()
        shutil.copy(self.path / "template", self.path / "queue.db")
        os.environ["BUQUET_URL"] = self.url  # `worker --url` sets it

    def filled_in(self, word: str) -> str:
        """Put ids in the places of what stands for them."""
        for number, task_id in enumerate(self.ids):
            word = word.replace(f"{{{number}}}[:9]", task_id[:9]).replace(f"{{{number}}}", task_id)
        return word

    def lost(self) -> set[str]:
        """The ids of tasks that are not there any more."""
        with connect(self.url) as queue:
            return set(self.ids) - {task.id for task in queue.list()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("typed")
    file = path / "queue.db"
    (path / "data.json").write_text('{"a": 1}')
    (path / "bad.json").write_bytes(b"\xff\xfe{")
    with Queue(SqliteStore(file), chance=random.Random(1)) as queue:
        fill(queue)
        ids = sorted(task.id for task in queue.list())
    file.rename(path / "template")
    level = logging.getLogger("buquet").level
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        place = Place(path, ids)
        patch.setenv("BUQUET_URL", place.url)
        yield place
    logging.getLogger("buquet").setLevel(level)


def run(args: list[str], given: bytes = b"") -> Any:
    return CliRunner().invoke(app, args, input=given)


def asks_for_json(args: list[str]) -> bool:
    """Tell whether JSON is certainly asked for: the word may be the value of another option."""
    before = args[: args.index("--json")] if "--json" in args else ["--"]
    return "--" not in before and not before[-1].startswith("-")


def check(result: Any, args: list[str]) -> None:
    """Check what holds of every command."""
    assert result.exception is None or isinstance(result.exception, SystemExit), args
    assert result.exit_code in DOCUMENTED, args
    assert NOT_OURS not in result.stderr
    assert "Traceback" not in result.stdout
    assert all(each.isprintable() for line in result.stderr.splitlines() for each in line)
    if result.exit_code >= 2:
        assert result.stderr.startswith("buquet: ") or "\nbuquet: " in result.stderr, args
    if asks_for_json(args) and result.stdout and not result.stdout.startswith("Usage:"):
        json.loads(result.stdout)
        assert result.stdout.isascii()


@given(typed=st.one_of(*WORDS.values()), stdin=st.sampled_from([b"", b"null", b"{", b"\xff"]))
@examples(500)
def test_whatever_is_typed_it_is_done_or_refused_in_words(
    place: Place, typed: list[str], stdin: bytes
) -> None:
    place.set_up()
    args = [place.filled_in(word) for word in typed]

    result = run(args, stdin)

    check(result, args)
    assert not place.lost()


@pytest.mark.parametrize("name", sorted(ENDLESS))
@given(typed=st.lists(TYPED, min_size=1, max_size=3))
@examples(30)
def test_what_goes_on_for_a_while_does_not_begin_with_a_wrong_word(
    place: Place, name: str, typed: list[str]
) -> None:
    args = [name, "--not-an-option", *typed]

    result = run(args)

    check(result, args)
    assert result.exit_code == 2


@given(typed=st.lists(TYPED | st.sampled_from(sorted(WORDS)), max_size=4))
@examples(150)
def test_words_that_are_no_command_are_refused_in_words(place: Place, typed: list[str]) -> None:
    result = run(typed)

    check(result, typed)


@given(typed=TYPED, look=st.sampled_from([["list"], ["stats"], ["workers"], ["status", "0123"]]))
@examples(100)
def test_whatever_is_named_as_the_store_it_is_opened_or_refused(
    place: Place, typed: str, look: list[str]
) -> None:
    args = ["--url", typed.replace("/", ""), *look]

    result = run(args)

    check(result, args)
    assert result.exit_code in (0, 2, 3, 5)
