"""From a URL to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

from attrs import frozen

from buquet.clock import Clock
from buquet.errors import ConfigurationError
from buquet.store.base import Store
from buquet.store.memory import MemoryStore

LONGEST_PREFIX = 700
"""In bytes; S3 takes keys of 1,024, and what stands behind a prefix is at most 300 long."""

LONGEST_NAME = 255
"""In bytes: of a file, nearly everywhere."""

LONGEST_PATIENCE = 3600.0

S3_OPTIONS = ("client", "config", "endpoint_url", "region_name", "session", "threads")
OPTIONS = ("bucket", "clock", "give_up_after", "on_request", "path", "prefix", *S3_OPTIONS)

EXAMPLES = "s3://my-bucket/prefix, sqlite:///queue.db, sqlite:////var/lib/queue.db or memory:"
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")  # what botocore lets pass, but for ARNs


@frozen
class Location:
    """Which store is meant."""

    scheme: str
    """`s3`, `sqlite` or `memory`."""
    name: str = ""
    """The bucket, or the path of the file."""
    prefix: str = ""


def open_store(
    url: str | None = None,
    *,
    bucket: str | None = None,
    prefix: str = "",
    path: str | PathLike[str] | None = None,
    give_up_after: float | None = None,
    clock: Clock | None = None,
    on_request: Callable[[str], None] | None = None,
    **s3_options: Any,
) -> Store:
    """Make the store that a URL, a bucket or a path names; without any, that of BUQUET_URL.

    Nothing is sent or opened before the store is used.

    Args:
        url: `s3://bucket/prefix`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory:`.
        bucket: the name of an S3 bucket, instead of a URL.
        prefix: what all keys in the bucket begin with.
        path: of a SQLite file, instead of a URL.
        give_up_after: how many seconds an act, such as a submit, waits for a store that does not
            answer, or whose file is locked; then `StoreUnavailable` is raised.
        clock: the local clock.
        on_request: called with the name of each request that goes to S3.
        s3_options: passed on to `S3Store`, such as `endpoint_url`, `region_name` or `client`.

    Raises:
        ConfigurationError: if that names no store, or more than one, or says what does not fit it.
    """
    location = _locate(url, bucket, prefix, path)
    _check_options(s3_options)
    if give_up_after is not None and not 0 < give_up_after <= LONGEST_PATIENCE:
        raise ConfigurationError(
            f"give_up_after is a number of seconds from above 0 to {LONGEST_PATIENCE:g}, "
            f"not {give_up_after!r}."
        )
    if location.scheme == "s3":
        return _open_s3(location, clock, on_request, {"give_up_after": give_up_after} | s3_options)
    if location.prefix or s3_options:
        what = ", ".join(["prefix"] * bool(location.prefix) + sorted(s3_options))
        raise ConfigurationError(
            f"A {location.scheme} store takes no {what}: that is for S3. Leave it out."
        )
    if location.scheme == "memory":
        return MemoryStore(clock)
    return _open_sqlite(location, clock, give_up_after)


def parse_url(url: str) -> Location:
    """Read the URL of a store.

    Raises:
        ConfigurationError: if it is none.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "s3" and rest.startswith("//"):
        bucket, _, prefix = rest[2:].partition("/")
        return Location("s3", _checked_bucket(bucket, url), prefix)
    if scheme == "sqlite":
        return Location("sqlite", _sqlite_path(rest, url))
    if scheme == "memory" and rest in ("", "//"):
        return Location("memory")
    raise ConfigurationError(f"{_shown(url)} is not the URL of a store. Write one like {EXAMPLES}.")


def _locate(
    url: str | None, bucket: str | None, prefix: str, path: str | PathLike[str] | None
) -> Location:
    given = {"url": url, "bucket": bucket, "path": path}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigurationError(f"{' and '.join(named)} each name a store. Give one of them.")
    if bucket is not None:
        return Location("s3", _checked_bucket(bucket, bucket), prefix)
    if path is not None:
        return Location("sqlite", os.fspath(path), prefix)
    location = parse_url(_url_of_environment() if url is None else url)
    if location.prefix and prefix:
        raise ConfigurationError(
            f"{url!r} has a prefix, and prefix={prefix!r} is another. Give one of them."
        )
    return Location(location.scheme, location.name, location.prefix or prefix)


def _url_of_environment() -> str:
    url = os.environ.get("BUQUET_URL")
    if not url:
        raise ConfigurationError(
            "No store is named. Set the environment variable BUQUET_URL, or pass a URL, "
            f"for example {EXAMPLES}."
        )
    return url


def _checked_bucket(bucket: str, given: str) -> str:
    if not BUCKET.fullmatch(bucket) and not bucket.startswith("arn:"):
        raise ConfigurationError(
            f"{_shown(given)} names a bucket, and no bucket can be called that. "
            "Write 's3://my-bucket/prefix', or bucket='my-bucket'."
        )
    return bucket


def _shown(text: str) -> str:
    """Write a URL for an error, without the user and the password that it may have."""
    return repr(re.sub(r"^(\w+://)?.*@", r"\1…@", text))


def _sqlite_path(rest: str, url: str) -> str:
    """Return the path: three slashes before a relative one, four before an absolute one."""
    path = rest.removeprefix("///")
    if path == rest or path in ("", ":memory:") or "?" in path:
        raise ConfigurationError(
            f"{_shown(url)} does not name a file. Write 'sqlite:///queue.db' for one in this "
            "folder, 'sqlite:////var/lib/queue.db' for one elsewhere; 'memory:' is kept in no file."
        )
    return path


def _check_prefix(prefix: str) -> None:
    """Refuse what can't be part of a key everywhere; SeaweedFS 4.48 makes one slash of two."""
    if not prefix.isprintable():
        raise ConfigurationError(
            f"The prefix {prefix!r} has characters that don't print. Leave them out."
        )
    if prefix.strip("/") and {"", ".", ".."} & set(prefix.strip("/").split("/")):
        raise ConfigurationError(
            f"The prefix {prefix!r} has nothing, '.' or '..' between slashes, which not all stores "
            "keep as it is. Write it without."
        )
    if len(prefix.encode()) > LONGEST_PREFIX:
        raise ConfigurationError(
            f"The prefix {prefix[:40]!r}… has more than {LONGEST_PREFIX} bytes. Take a shorter one."
        )


def _check_path(path: str) -> None:
    for name in Path(path).parts:
        if not _can_be_a_name(name):
            raise ConfigurationError(
                f"No file can be called {name[:40]!r}: the name is longer than "
                f"{LONGEST_NAME} bytes, or has characters that no name can have. Take another."
            )


def _can_be_a_name(name: str) -> bool:
    if any(ord(each) < ord(" ") for each in name):  # the end of a line in a file with variables
        return False
    try:
        return len(os.fsencode(name)) <= LONGEST_NAME
    except UnicodeEncodeError:  # half a character
        return False


def _open_s3(
    location: Location,
    clock: Clock | None,
    on_request: Callable[[str], None] | None,
    options: dict[str, Any],
) -> Store:
    from buquet.store.s3 import S3Store  # noqa: PLC0415 -- not needed for SQLite

    _check_prefix(location.prefix)
    endpoint_url = os.environ.get("BUQUET_ENDPOINT_URL") or None
    return S3Store(
        location.name,
        location.prefix,
        clock=clock,
        on_request=on_request,
        **{"endpoint_url": endpoint_url} | options,
    )


def _check_options(options: Collection[str]) -> None:
    """Refuse options that no store takes."""
    for name in options:
        if name not in S3_OPTIONS:
            close = get_close_matches(name, OPTIONS, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise ConfigurationError(
                f"There is no option {name!r}. {hint}There are: {', '.join(OPTIONS)}."
            )


def _open_sqlite(location: Location, clock: Clock | None, give_up_after: float | None) -> Store:
    from buquet.store.sqlite import SqliteStore  # noqa: PLC0415 -- not needed for S3

    _check_path(location.name)
    return SqliteStore(location.name, clock=clock, give_up_after=give_up_after)
