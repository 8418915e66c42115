"""Credentials are in no error, no log and no repr."""

from __future__ import annotations

import logging
import traceback

import boto3
import pytest

from buquet import BuquetError, Queue, connect
from buquet.store.s3 import S3Store
from tests.s3_servers import S3Server

KEY = "AKIAXXXXXXXXXXXXXXXX"
SECRET = "hush/hush+hush"
TOKEN = "token-of-a-role"


def said_by(error: BaseException) -> str:
    """All that is shown of an error, with those that led to it."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{KEY}:{SECRET}@my-bucket/prefix",
        f"https://{KEY}:{SECRET}@my-bucket.s3.amazonaws.com/prefix",
        f"postgres://{KEY}:{SECRET}@host/queue",
        f"sqlite://{KEY}:{SECRET}@host/queue.db",
        f"{KEY}:{SECRET}@host",
    ],
)
def test_a_url_with_a_password_is_refused_and_its_password_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in ({"url": url}, {"bucket": url}, {}):
        monkeypatch.setenv("BUQUET_URL", url)
        with pytest.raises(BuquetError) as refused:
            connect(**way)

        assert not {each for each in (KEY, SECRET) if each in str(refused.value)}
        assert "…@" in str(refused.value)


@pytest.mark.parametrize("given", ["endpoint_url", "BUQUET_ENDPOINT_URL", "AWS_ENDPOINT_URL"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no host"])
def test_an_endpoint_with_a_password_is_refused_and_its_password_not_shown(
    given: str, host: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"http://{KEY}:hush-hush@{host}"
    options = {"endpoint_url": endpoint} if given == "endpoint_url" else {}
    if not options:
        monkeypatch.setenv(given, endpoint)

    with pytest.raises(BuquetError) as refused, connect("s3://my-bucket/x", **options) as queue:
        queue.submit("a")

    assert "hush-hush" not in str(refused.value) + caplog.text
    assert KEY not in str(refused.value)


def test_a_refusal_of_the_store_shows_no_credentials(
    moto: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session = boto3.Session(KEY, SECRET, TOKEN, region_name="us-east-1")
    store = S3Store("no-such-bucket", session=session, endpoint_url=moto.endpoint)
    queue = Queue(store)

    with pytest.raises(BuquetError) as refused:
        queue.submit("a", {"n": 1})
    shown = said_by(refused.value) + caplog.text + repr(queue) + repr(store) + str(vars(queue))
    store.close()

    assert not {each for each in (SECRET, TOKEN) if each in shown}
