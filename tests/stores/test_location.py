from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from buquet.errors import ConfigurationError
from buquet.store import MemoryStore, open_store
from buquet.store.location import OPTIONS
from buquet.store.s3 import S3Store
from buquet.store.sqlite import SqliteStore
from buquet.testing.clock import FakeClock
from tests.s3_servers import S3Server


def opened(*args: Any, **kwargs: Any) -> Any:
    return open_store(*args, **kwargs)


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my-bucket/pre", "my-bucket", "pre/"),
        ("s3://my.bucket/pre/fix/", "my.bucket", "pre/fix/"),
    ],
)
def test_an_s3_url_names_bucket_and_prefix(url: str, bucket: str, prefix: str) -> None:
    store = opened(url)

    assert isinstance(store, S3Store)
    assert (store.bucket, store.prefix) == (bucket, prefix)


def test_a_bucket_can_be_given_without_a_url() -> None:
    store = opened(bucket="my-queue", prefix="mail")

    assert (store.bucket, store.prefix) == ("my-queue", "mail/")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///queue.db", "queue.db"),
        ("sqlite:///some/queue.db", "some/queue.db"),
        ("sqlite:////var/lib/queue.db", "/var/lib/queue.db"),
    ],
)
def test_a_sqlite_url_names_a_file(url: str, path: str) -> None:
    store = opened(url)

    assert isinstance(store, SqliteStore)
    assert store.path == Path(path).absolute()


def test_a_path_can_be_given_without_a_url(tmp_path: Path) -> None:
    assert opened(path=tmp_path / "queue.db").path == tmp_path / "queue.db"


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_a_memory_url_makes_a_store_in_memory(url: str) -> None:
    assert isinstance(opened(url), MemoryStore)


@pytest.mark.parametrize("url", ["s3://bucket", "sqlite:///queue.db", "memory:"])
def test_the_clock_that_is_given_is_the_stores(url: str) -> None:
    clock = FakeClock()

    assert opened(url, clock=clock).clock is clock


def test_without_arguments_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUQUET_URL", "s3://from-env/pre")

    store = opened()

    assert (store.bucket, store.prefix) == ("from-env", "pre/")


def test_a_url_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUQUET_URL", "s3://from-env")

    assert opened("s3://given").bucket == "given"


@pytest.mark.parametrize("value", [None, ""])
def test_without_any_the_error_says_what_to_set(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("BUQUET_URL", value)

    with pytest.raises(ConfigurationError, match=r"BUQUET_URL.*s3://my-bucket"):
        open_store()


@pytest.mark.parametrize("name", ["BUQUET_ENDPOINT_URL", "AWS_ENDPOINT_URL"])
def test_the_endpoint_may_come_from_the_environment(
    name: str, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, moto.endpoint)
    store = open_store(moto.url())

    store.put("key", b"")

    assert store.get("key") is not None
    store.close()


def test_an_endpoint_that_is_given_goes_before_the_environment(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUQUET_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_store(moto.url(), endpoint_url=moto.endpoint)

    store.put("key", b"")

    assert store.get("key") is not None
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bucket",
        "queue.db",
        "s3:bucket",
        "s3://",
        "s3:///prefix",
        "s3://no_spaces please/",
        "S3//bucket",
        "redis://localhost",
        "https://bucket.s3.amazonaws.com",
        "sqlite://",
        "sqlite:///",
        "sqlite://queue.db",
        "sqlite:queue.db",
        "sqlite:///:memory:",
        "sqlite:///queue.db?mode=ro",
        "memory:x",
    ],
)
def test_a_url_that_names_no_store_is_quoted_with_an_example(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)

    assert repr(url) in str(caught.value)
    assert "://" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "memory:", "bucket": "bucket"}, "url and bucket"),
        ({"bucket": "bucket", "path": "queue.db"}, "bucket and path"),
        ({"url": "s3://bucket/one", "prefix": "other"}, "'other'"),
        ({"url": "memory:", "prefix": "pre"}, "prefix"),
        ({"path": "queue.db", "prefix": "pre"}, "prefix"),
        ({"path": "queue.db", "region_name": "eu-west-1"}, "region_name"),
        ({"bucket": "no bucket"}, "'no bucket'"),
        ({"bucket": "bucket", "regoin_name": "eu-west-1"}, "regoin_name"),
    ],
)
def test_arguments_that_do_not_fit_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_store(**given)


@pytest.mark.parametrize("name", ["a\ud800", "a\0b", "a" * 256])
def test_a_folder_that_can_not_be_called_so_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(f"sqlite:///folder/{name}/queue.db")

    assert repr(name[:40]) in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket", "sqlite:///queue.db", "memory:"])
@pytest.mark.parametrize(
    ("option", "close"),
    [("endpoint", "endpoint_url"), ("region", "region_name"), ("give_up", "give_up_after")],
)
def test_an_option_that_there_is_not_is_named_with_the_one_that_is_meant(
    url: str, option: str, close: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url, **{option: "x"})

    assert f"There is no option {option!r}. Did you mean {close!r}?" in str(caught.value)
    assert "__init__" not in str(caught.value)


def test_every_option_of_the_s3_store_can_be_given() -> None:
    taken = set(inspect.signature(S3Store).parameters)

    assert taken == set(OPTIONS) - {"path"}


@pytest.mark.parametrize("end", ["\r", "\n", "\t", "\0"])
def test_a_file_name_with_a_control_character_is_refused(end: str) -> None:
    with pytest.raises(ConfigurationError, match="characters that no name can have"):
        open_store(f"sqlite:///queue.db{end}")


@pytest.mark.parametrize("seconds", [0, -1, 1e9])
def test_a_patience_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="give_up_after"):
        open_store("memory:", give_up_after=seconds)
