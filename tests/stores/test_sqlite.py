"""What the SQLite store adds to the rules of every store."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from buquet.errors import (
    StoreAccessDenied,
    StoreError,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
    StoreUnclear,
    StoreUnsuitable,
)
from buquet.store import Change, Conflict
from buquet.store.group_commit import PendingWrite
from buquet.store.sqlite import SqliteStore
from buquet.store.sqlite_errors import explain
from buquet.testing import FakeClock
from buquet.testing.conformance import at_once, body_of
from tests.stores.shut_out import shut_out

DEADLINE = 20


class Watched(sqlite3.Connection):
    """A connection whose statements and whose end can be seen, and answers replaced."""

    statements: list[str]
    answers: dict[str, Any]
    opened: list[sqlite3.Connection]

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        type(self).statements.append(sql)
        if sql in type(self).answers:
            return super().execute("SELECT ?", (type(self).answers[sql],))
        return super().execute(sql, *args)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    kind = type("Watched", (Watched,), {"statements": [], "answers": {}, "opened": []})
    connect = sqlite3.connect

    def connect_watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, factory=kind, **kwargs)
        kind.opened.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_watched)
    return kind


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, as another process might."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def wait_until(condition: Callable[[], bool]) -> None:
    """Let the other threads go on until something is so."""
    pause = threading.Event()
    for _ in range(DEADLINE * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("It did not come about.")


def write_while_locked(store: SqliteStore, acts: list[Callable[[], Any]]) -> list[Any]:
    """Do something in a thread each; all gather behind a lock before the first can go on."""
    outcomes: list[Any] = [None] * len(acts)

    def run(n: int) -> None:
        try:
            outcomes[n] = acts[n]()
        except Exception as error:  # noqa: BLE001 -- looked at by the test
            outcomes[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(acts))]
    with locked(store.path):
        for thread in threads:
            thread.start()
        # One waits for the lock, the others for it.
        wait_until(lambda: len(store._commits._waiting) == len(acts) - 1)
    for thread in threads:
        thread.join(DEADLINE)
    return outcomes


# Settings


def test_commits_are_on_disk_when_they_return(sqlite_store: SqliteStore) -> None:
    with sqlite_store._pool.lend() as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()
        synchronous = connection.execute("PRAGMA synchronous").fetchone()

    assert (mode, synchronous) == (("wal",), (2,))


def test_a_file_that_can_not_have_a_write_ahead_log_works_with_one_warning(
    tmp_path: Path, watched: type[Watched], caplog: pytest.LogCaptureFixture
) -> None:
    watched.answers["PRAGMA journal_mode"] = "delete"
    watched.answers["PRAGMA journal_mode = WAL"] = "delete"
    store = SqliteStore(tmp_path / "queue.db")

    at_once(lambda n: store.put(f"key/{n}", b""))

    assert len(store.list("key/")) == 4
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "queue.db" in record.getMessage()
    assert "'delete'" in record.getMessage()
    store.close()


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_refused_with_advice(tmp_path: Path, kind: str) -> None:
    store = SqliteStore(tmp_path / "queue.db", filesystem=lambda _: kind)

    with pytest.raises(StoreUnsuitable, match=rf"\({kind}\).*S3") as caught:
        store.put("key", b"")

    assert str(tmp_path / "queue.db") in str(caught.value)
    assert not (tmp_path / "queue.db").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "apfs", None])
def test_a_local_file_system_is_fine(tmp_path: Path, kind: str | None) -> None:
    with closing(SqliteStore(tmp_path / "queue.db", filesystem=lambda _: kind)) as store:
        assert isinstance(store.put("key", b""), str)


def test_a_relative_path_stays_what_it_was_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("queue.db")
    monkeypatch.chdir("/")

    store.put("key", b"")
    store.close()

    assert (tmp_path / "queue.db").exists()


# Errors


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "missing" / "queue.db")

    with pytest.raises(StoreNotFound) as caught:
        store.get("key")

    assert repr(str(tmp_path / "missing")) in str(caught.value)


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match="is a folder"):
        SqliteStore(tmp_path).put("key", b"")


def test_a_place_that_this_user_may_not_see_is_denied_and_not_said_to_be_missing(
    tmp_path: Path,
) -> None:
    with shut_out(tmp_path / "theirs") as folder:
        for path in (folder, folder / "queue.db"):
            with pytest.raises(StoreAccessDenied, match="Let this user"):
                SqliteStore(path).get("key")


def test_a_path_that_is_too_long_for_the_system_is_told_in_our_words(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["folder"] * 1000, "queue.db")

    with pytest.raises(StoreNotFound, match=r"no folder .* for 'queue\.db'"):
        SqliteStore(path).get("key")


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("My notes, which are long enough not to be taken for an empty file." * 20)
    before = path.read_bytes()

    with pytest.raises(StoreUnsuitable, match=r"notes\.txt"):
        SqliteStore(path).put("key", b"")

    assert path.read_bytes() == before


def test_a_table_of_the_same_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE buquet_objects (something TEXT)")
    store = SqliteStore(path)

    with pytest.raises(StoreUnsuitable, match="table of objects"):
        store.get("key")

    store.close()


def test_a_database_of_another_program_can_be_shared(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE objects (theirs TEXT)")
    store = SqliteStore(path)

    store.put("key", b"body")

    assert body_of(store, "key") == b"body"
    store.close()


def test_a_lock_that_is_held_too_long_is_told(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buquet.store.sqlite_pool.BUSY_TIMEOUT", 0.05)
    sqlite_store.put("key", b"")
    sqlite_store.close()

    with locked(sqlite_store.path), pytest.raises(StoreUnavailable, match="locked"):
        sqlite_store.put("key", b"2")

    assert isinstance(sqlite_store.put("key", b"2"), str)


def test_reading_does_not_wait_for_who_is_writing(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_store.put("key", b"body")

    with locked(sqlite_store.path):
        assert body_of(sqlite_store, "key") == b"body"


def test_a_full_disk_is_told_and_what_was_there_stays(sqlite_store: SqliteStore) -> None:
    sqlite_store.put("key", b"body")
    with sqlite_store._pool.lend() as connection:
        connection.execute("PRAGMA max_page_count = 1")

    with pytest.raises(StoreUnavailable, match="Free some space"):
        sqlite_store.put("large", b"x" * 1_000_000)

    assert sqlite_store.get("large") is None
    assert body_of(sqlite_store, "key") == b"body"


def test_a_commit_that_breaks_off_on_the_way_to_disk_is_unclear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **kw: connect(*a, factory=Breaking, **kw))
    store = SqliteStore(tmp_path / "queue.db")

    with pytest.raises(StoreUnclear, match="may or may not"):
        store.put("key", b"")

    assert store.get("key") is None
    store.close()


def test_a_disk_that_is_found_full_at_the_commit_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                self.rollback()  # as SQLite does
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return super().execute(sql, *args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **kw: connect(*a, factory=Full, **kw))
    store = SqliteStore(tmp_path / "queue.db")

    with pytest.raises(StoreUnavailable, match="Free some space") as caught:
        store.put("key", b"")

    assert not isinstance(caught.value, StoreUnclear)
    store.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailable),
        (sqlite3.SQLITE_LOCKED, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreAccessDenied),
        (sqlite3.SQLITE_PERM, StoreAccessDenied),
        (sqlite3.SQLITE_CANTOPEN, StoreAccessDenied),
        (sqlite3.SQLITE_NOTADB, StoreUnsuitable),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreError),
        (sqlite3.SQLITE_TOOBIG, StoreRefused),
        (sqlite3.SQLITE_MISUSE, StoreError),
        (None, StoreError),
    ],
)
def test_each_error_of_sqlite_is_told_in_our_words(
    tmp_path: Path, code: int | None, kind: type[StoreError]
) -> None:
    error = sqlite3.OperationalError("so it is")
    if code is not None:
        error.sqlite_errorcode = code

    told = explain(error, tmp_path / "queue.db")

    assert type(told) is kind
    assert "so it is" in str(told)
    assert "queue.db" in str(told)


# Writing together


def test_writes_of_one_moment_share_a_transaction(tmp_path: Path, watched: type[Watched]) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.put("first", b"")
    watched.statements.clear()

    write_while_locked(store, [lambda n=n: store.put(f"key/{n}", b"") for n in range(8)])

    assert watched.statements.count("COMMIT") == 2
    assert len(store.list("key/")) == 8
    store.close()


def test_conditions_hold_among_writes_that_share_a_transaction(sqlite_store: SqliteStore) -> None:
    sqlite_store.put("first", b"")

    outcomes = write_while_locked(
        sqlite_store,
        [lambda n=n: sqlite_store.put("key", str(n).encode(), if_absent=True) for n in range(8)],
    )

    winners = [n for n, outcome in enumerate(outcomes) if outcome != Conflict()]
    assert len(winners) == 1
    assert body_of(sqlite_store, "key") == str(winners[0]).encode()


def test_a_write_that_fails_does_not_take_others_with_it(sqlite_store: SqliteStore) -> None:
    sqlite_store.put("first", b"")
    acts: list[Callable[[], Any]] = [
        lambda n=n: sqlite_store.put(f"key/{n}", b"") for n in range(6)
    ]
    unfit: Any = object()
    acts.append(lambda: sqlite_store.put("unfit", unfit))

    outcomes = write_while_locked(sqlite_store, acts)

    assert isinstance(outcomes[-1], Exception)
    assert [type(outcome) for outcome in outcomes[:-1]] == [str] * 6
    assert len(sqlite_store.list("key/")) == 6


def test_an_interrupt_that_hits_the_leader_leaves_the_others_their_turn(
    sqlite_store: SqliteStore,
) -> None:
    def interrupted(_: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    others = PendingWrite(lambda _: "done")
    sqlite_store._commits._waiting.append(others)
    with pytest.raises(KeyboardInterrupt):
        sqlite_store._commits.write(interrupted)
    assert not others.is_done

    sqlite_store.put("key", b"")

    assert others.value == "done"


def test_a_write_that_is_interrupted_while_it_waits_is_not_done_later(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(timeout: float) -> None:
        raise KeyboardInterrupt

    writers = sqlite_store._commits
    with writers._leading, monkeypatch.context() as patch:
        patch.setattr(writers._moved, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sqlite_store.put("key", b"")

    sqlite_store.put("another", b"")

    assert sqlite_store.get("key") is None


def test_a_change_that_is_too_late_when_its_turn_comes_is_given_up(
    sqlite_store: SqliteStore,
) -> None:
    change = Change("key", b"", None, begun=sqlite_store.clock.monotonic() - 301)

    assert sqlite_store.commit(change) == Conflict()


def test_a_conflict_adds_no_entries(sqlite_store: SqliteStore) -> None:
    sqlite_store.put("batch", b"theirs")
    begun = sqlite_store.clock.monotonic()

    sqlite_store.commit(Change("batch", b"mine", None, add=("entry",), begun=begun))

    assert sqlite_store.get("entry") is None


def test_an_etag_is_never_used_again(sqlite_store: SqliteStore) -> None:
    etags = set()
    for _ in range(20):
        etags.add(sqlite_store.put("key", b"same"))
        sqlite_store.delete(["key"])

    assert len(etags) == 20


# Connections


def test_close_closes_every_connection(tmp_path: Path, watched: type[Watched]) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    at_once(lambda n: [store.get("key"), store.put(f"key/{n}", b"")], threads=8)

    store.close()

    for connection in watched.opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_store_whose_file_was_removed_after_close_makes_a_new_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.put("key", b"body")
    store.close()
    store.path.unlink()

    assert store.get("key") is None
    store.put("key", b"new")
    assert body_of(store, "key") == b"new"
    store.close()


def test_a_store_that_is_let_go_closes_its_connections(
    tmp_path: Path, watched: type[Watched]
) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.put("key", b"")

    del store

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        watched.opened[0].execute("SELECT 1")


def test_threads_that_come_and_go_leave_no_connections_behind(
    tmp_path: Path, watched: type[Watched]
) -> None:
    store = SqliteStore(tmp_path / "queue.db")

    for n in range(10):
        at_once(lambda _, n=n: store.put(f"key/{n}", b""), threads=2)

    assert len(watched.opened) <= 3
    store.close()


COMMITTING = """
import sys
from buquet.store import Change, open_store

store = open_store(sys.argv[1])
for n in range(200):
    key = f"batch/{sys.argv[2]}/{n}"
    begun = store.clock.monotonic()
    etag = store.commit(Change(key, b"{}", None, (f"ready/{sys.argv[2]}/{n}",), (), begun=begun))
    assert isinstance(etag, str)
store.close()
"""


def test_eight_processes_commit_without_lock_errors(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    running = [
        subprocess.Popen([sys.executable, "-c", COMMITTING, url, str(n)], stderr=subprocess.PIPE)
        for n in range(8)
    ]

    errors = [process.communicate()[1] for process in running]

    assert errors == [b""] * 8
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        counted = connection.execute("SELECT count(*) FROM buquet_objects").fetchone()
    assert counted == (8 * 200 * 2,)


FORKING = """
import os, sys, threading
from buquet.store import open_store

store = open_store(sys.argv[1])
done = threading.Event()

def write(name):
    n = 0
    while not done.is_set():
        store.put(f"{name}/{n}", b"")
        n += 1

threads = [threading.Thread(target=write, args=(f"parent/{n}",)) for n in range(3)]
for thread in threads:
    thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for n in range(100):
            store.put(f"child/{child}/{n}", b"", if_absent=True)
        os._exit(0)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
done.set()
for thread in threads:
    thread.join()
assert codes == [0, 0, 0, 0], codes
assert len(store.list("child/")) == 400
store.close()
"""


def test_children_forked_while_the_parent_writes_write_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, f"sqlite:///{tmp_path / 'queue.db'}"],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},  # of threads and fork, which is the point
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


OUTLIVING = """
import os, sys
from buquet.store import open_store

store = open_store(sys.argv[1])
store.put("parent", b"")
reads, writes = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(reads, 1)
    store.put("child", b"")
    os._exit(0)
store.put("parent/after", b"")
store.close()
os.write(writes, b"x")
assert os.waitpid(pid, 0)[1] == 0
assert [listed.key for listed in store.list("")] == ["child", "parent", "parent/after"]
store.close()
"""


def test_a_child_writes_to_disk_what_it_writes_after_its_parent_has_closed(tmp_path: Path) -> None:
    # SQLite deletes the log with the last connection; a child with the parent's would write there.
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVING, f"sqlite:///{tmp_path / 'queue.db'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


FORKING_AT_ONCE = """
import multiprocessing, sys, threading
from buquet.store import open_store

store = open_store(sys.argv[1])
store.put("parent", b"")
forking = multiprocessing.get_context("fork")

def fork_again_and_again(name):
    for n in range(30):
        child = forking.Process(target=store.put, args=(f"child/{name}/{n}", b""))
        child.start()
        child.join()
        store.put(f"parent/{name}/{n}", b"")

threads = [threading.Thread(target=fork_again_and_again, args=(n,), daemon=True) for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(50)
    assert not thread.is_alive(), "It is locked up."
assert len(store.list("child/")) == len(store.list("parent/")) == 90
store.close()
"""


def test_threads_that_fork_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING_AT_ONCE, f"sqlite:///{tmp_path / 'queue.db'}"],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


FORKING_WITH_TROUBLE = """
import os, sys, threading
from buquet.store import open_store
from buquet.store.fork import watch_forks

calls = []

class Trouble:
    def fail(self):
        calls.append(self)
        raise OSError("trouble")

    before_fork = after_fork_in_parent = after_fork_in_child = fail

store = open_store(sys.argv[1])
troubles = [Trouble() for _ in range(20)]
for trouble in troubles:
    watch_forks(trouble)
for n in range(3):
    pid = os.fork()
    writing = threading.Thread(target=store.put, args=(f"{n}/{pid == 0}", b""), daemon=True)
    writing.start()
    writing.join(20)
    if pid == 0:
        os._exit(writing.is_alive())
    assert not writing.is_alive() and os.waitpid(pid, 0)[1] == 0, "It is locked up."
assert len(store.list("")) == 6
assert len(calls) == 3 * 2 * 20, len(calls)
store.close()
"""


def test_a_store_that_fails_around_a_fork_keeps_no_other_from_its_part(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING_WITH_TROUBLE, f"sqlite:///{tmp_path / 'queue.db'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert "OSError: trouble" in done.stderr


# --- a file that changes under its users


def test_a_file_that_is_replaced_is_opened_anew_and_nothing_goes_into_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = SqliteStore(tmp_path / "queue.db"), SqliteStore(tmp_path / "other.db")
    store.put("old", b"")
    other.put("new", b"")
    other.close()
    for path in tmp_path.glob("queue.db-*"):
        path.unlink()
    (tmp_path / "other.db").replace(tmp_path / "queue.db")

    store.put("added", b"")

    assert [each.key for each in store.list("")] == ["added", "new"]
    assert [each.key for each in SqliteStore(tmp_path / "queue.db").list("")] == ["added", "new"]
    assert "was replaced by another file while it was in use" in caplog.text


def test_what_is_written_after_a_file_was_removed_is_in_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.put("old", b"")
    for path in tmp_path.iterdir():
        path.unlink()

    store.put("new", b"")

    assert [each.key for each in SqliteStore(tmp_path / "queue.db").list("")] == ["new"]
    assert "was removed while it was in use" in caplog.text


def test_a_connection_is_not_lent_again_after_an_error_of_its_own(
    tmp_path: Path, watched: type[Watched]
) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.put("key", b"")

    spoilt = store._pool._idle[0]
    spoilt.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreAccessDenied):
        store.put("key", b"")

    with store._pool.lend() as other:
        assert other is not spoilt
    store.put("key", b"")


def test_a_lock_that_is_held_too_long_hints_at_a_transaction_of_the_same_program(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "queue.db", give_up_after=0.2)
    store.put("key", b"")
    mine = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    mine.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="give buquet a file of its own") as caught:
        store.put("key", b"")

    mine.close()
    assert caught.value.code == "SQLITE_BUSY"


def test_a_clock_that_is_set_back_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    store = SqliteStore("queue.db", clock=clock)
    store.now()

    clock.advance(hours=-2)
    for _ in range(3):
        store.now()

    assert [each for each in caplog.messages if "set back by 7200 seconds" in each] != []
    assert len(caplog.messages) == 1
