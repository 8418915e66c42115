"""What a store on S3 makes of refusals, failures and broken connections."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3.exceptions
import botocore.exceptions
import pytest
from botocore.parsers import ResponseParserError

from buquet.errors import (
    ConfigurationError,
    StoreAccessDenied,
    StoreError,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
    StoreUnclear,
    StoreUnsuitable,
)
from buquet.store import Change, Conflict
from buquet.store.s3 import S3Store
from buquet.testing.clock import START
from tests.stores.stub import ENDPOINT, Answer, Stub, error, listing, written

ACTS: dict[str, Callable[[S3Store], Any]] = {
    "get": lambda store: store.get("key"),
    "list": lambda store: store.list("prefix"),
    "delete": lambda store: store.delete(["key"]),
    "put": lambda store: store.put("key", b""),
    "create": lambda store: store.put("key", b"", if_absent=True),
    "update": lambda store: store.put("key", b"", if_match='"1"'),
    "now": lambda store: store.now(),
}

GOOD = {
    "get": Answer(200, b"body", {"ETag": '"1"', "Content-Length": "4"}),
    "list": listing("prefix/key"),
    "delete": Answer(200, b"<DeleteResult></DeleteResult>"),
    "put": written(),
    "create": written(),
    "update": written(),
    "now": error(404, "NoSuchKey"),
}

CONDITIONAL = ["create", "update"]
UNCONDITIONAL = ["get", "list", "delete", "put", "now"]
EVERY = [*UNCONDITIONAL, *CONDITIONAL]


def all_errors_of_boto() -> list[Exception]:
    modules = (botocore.exceptions, boto3.exceptions)
    classes = {each for module in modules for each in vars(module).values() if is_raised(each)}
    return sorted((make_error(each) for each in classes), key=lambda each: type(each).__name__)


def is_raised(candidate: Any) -> bool:
    roots = (botocore.exceptions.BotoCoreError, boto3.exceptions.Boto3Error)
    return inspect.isclass(candidate) and issubclass(candidate, roots)


def make_error(kind: type[Exception]) -> Exception:
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    arguments = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    fields = [name for _, name, _, _ in string.Formatter().parse(getattr(kind, "fmt", "")) if name]
    if issubclass(kind, boto3.exceptions.Boto3Error):
        return kind(*("x" for _ in arguments))
    return kind(**dict.fromkeys([*fields, *arguments], "x"))


@pytest.mark.parametrize("act", EVERY)
def test_no_exception_of_boto_gets_out(act: str) -> None:
    escaped = []

    for raised in [*all_errors_of_boto(), ResponseParserError("not XML")]:
        with pytest.raises((StoreError, ConfigurationError)) as caught:
            ACTS[act](Stub(raised).store())
        if caught.value.__cause__ is None:
            escaped.append(raised)

    assert escaped == []


REFUSALS = [
    (403, "AccessDenied", StoreAccessDenied),
    (403, "InvalidAccessKeyId", StoreAccessDenied),
    (403, "SignatureDoesNotMatch", StoreAccessDenied),
    (400, "InvalidToken", StoreAccessDenied),
    (401, "Unauthorized", StoreAccessDenied),
    (404, "NoSuchBucket", StoreNotFound),
    (404, "404", StoreNotFound),
    (301, "PermanentRedirect", ConfigurationError),
    (307, "TemporaryRedirect", ConfigurationError),
    (400, "AuthorizationHeaderMalformed", ConfigurationError),
    (400, "IllegalLocationConstraintException", ConfigurationError),
    (400, "InvalidBucketName", ConfigurationError),
    (501, "NotImplemented", StoreUnsuitable),
    (405, "MethodNotAllowed", StoreUnsuitable),
    (400, "EntityTooLarge", StoreRefused),
    (413, "413", StoreRefused),
    (400, "InvalidRequest", StoreRefused),
    (418, "Teapot", StoreRefused),
]


@pytest.mark.parametrize("act", EVERY)
@pytest.mark.parametrize(
    ("status", "code", "kind"), REFUSALS, ids=[code for _, code, _ in REFUSALS]
)
def test_a_refusal_is_told_at_once_and_names_the_place(
    act: str, status: int, code: str, kind: type[Exception]
) -> None:
    stub = Stub(error(status, code))

    with pytest.raises(kind) as caught:
        ACTS[act](stub.store(region_name="eu-west-1"))

    assert type(caught.value) is kind
    assert all(name in str(caught.value) for name in ("'bucket'", "'eu-west-1'", ENDPOINT))
    assert len(stub.requests) <= 2
    assert stub.clock.slept == []


@pytest.mark.parametrize("act", EVERY)
def test_a_wrong_region_never_leads_to_another_host(act: str) -> None:
    elsewhere = "<Region>eu-central-1</Region><Endpoint>bucket.s3.amazonaws.com</Endpoint>"
    redirect = error(
        301,
        "PermanentRedirect",
        elsewhere,
        **{"x-amz-bucket-region": "eu-central-1", "Location": "http://bucket.s3.amazonaws.com/"},
    )
    stub = Stub(redirect)

    with pytest.raises(ConfigurationError):
        ACTS[act](stub.store())

    assert all(request.url.startswith(ENDPOINT) for request in stub.requests)


@pytest.mark.parametrize("act", CONDITIONAL)
def test_a_store_without_conditional_writes_is_named_so_at_once(act: str) -> None:
    stub = Stub(error(501, "NotImplemented"))

    with pytest.raises(StoreUnsuitable) as caught:
        ACTS[act](stub.store())

    assert caught.value.feature == "conditional writes"
    assert len(stub.requests) == 1


@pytest.mark.parametrize("act", EVERY)
@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (429, "TooManyRequests"), (429, "")]
)
def test_a_busy_store_is_asked_again_after_growing_waits(act: str, status: int, code: str) -> None:
    stub = Stub(*[error(status, code)] * 5, GOOD[act])

    ACTS[act](stub.store())

    assert len(stub.requests) == 6
    assert stub.clock.slept == sorted(stub.clock.slept)
    assert sum(stub.clock.slept) > 1


def test_waits_are_random() -> None:
    waits = []
    for _ in range(5):
        stub = Stub(error(503, "SlowDown"), GOOD["list"])
        ACTS["list"](stub.store())
        waits += stub.clock.slept

    assert len(set(waits)) == 5


@pytest.mark.parametrize("act", EVERY)
def test_a_store_that_stays_busy_is_unavailable(act: str) -> None:
    stub = Stub(error(503, "SlowDown"))

    with pytest.raises(StoreUnavailable) as caught:
        ACTS[act](stub.store())

    assert type(caught.value) is StoreUnavailable
    assert len(stub.requests) == 7
    assert sum(stub.clock.slept) < 30


@pytest.mark.parametrize("act", UNCONDITIONAL)
@pytest.mark.parametrize(
    "failure",
    [
        error(500, "InternalError"),
        error(503, "503"),
        Answer(502, b"<html>Bad gateway</html>"),
        botocore.exceptions.ReadTimeoutError(endpoint_url=ENDPOINT),
        botocore.exceptions.ConnectionClosedError(endpoint_url=ENDPOINT),
        botocore.exceptions.EndpointConnectionError(endpoint_url=ENDPOINT, error="refused"),
        Answer(200, is_cut=True),
        Answer(404, is_cut=True),
    ],
    ids=[
        "500",
        "503",
        "502",
        "read timeout",
        "connection closed",
        "no connection",
        "half a head",
        "half a head of a 404",
    ],
)
def test_what_can_be_done_twice_is_tried_again(act: str, failure: Answer | Exception) -> None:
    stub = Stub(failure, failure, GOOD[act])

    ACTS[act](stub.store())

    assert len(stub.requests) == 3


@pytest.mark.parametrize("act", CONDITIONAL)
@pytest.mark.parametrize(
    "failure",
    [
        error(500, "InternalError"),
        error(503, "503"),
        Answer(502, b"<html>Bad gateway</html>"),
        botocore.exceptions.ReadTimeoutError(endpoint_url=ENDPOINT),
        botocore.exceptions.ConnectionClosedError(endpoint_url=ENDPOINT),
        Answer(200, b"", {"ETag": '"1'}, is_cut=True),
        Answer(200),
    ],
    ids=["500", "503", "502", "read timeout", "connection closed", "half a head", "no ETag"],
)
def test_a_conditional_write_without_a_clear_answer_is_sent_once(
    act: str, failure: Answer | Exception
) -> None:
    stub = Stub(failure, GOOD[act])

    with pytest.raises(StoreUnclear):
        ACTS[act](stub.store())

    assert len(stub.requests) == 1


@pytest.mark.parametrize("act", CONDITIONAL)
def test_a_conditional_write_that_could_not_be_sent_is_tried_again(act: str) -> None:
    unreached = botocore.exceptions.ConnectTimeoutError(endpoint_url=ENDPOINT)
    stub = Stub(unreached, GOOD[act])

    assert ACTS[act](stub.store()) == '"1"'


@pytest.mark.parametrize("act", CONDITIONAL)
def test_a_race_with_another_write_is_run_again(act: str) -> None:
    stub = Stub(error(409, "ConditionalRequestConflict"), GOOD[act])

    assert ACTS[act](stub.store()) == '"1"'
    assert len(stub.clock.slept) == 1


@pytest.mark.parametrize("act", CONDITIONAL)
def test_a_race_that_does_not_end_is_unclear_and_not_lost(act: str) -> None:
    stub = Stub(error(409, "ConditionalRequestConflict"))

    with pytest.raises(StoreUnclear):
        ACTS[act](stub.store())

    assert len(stub.requests) == 7


@pytest.mark.parametrize(
    ("act", "status", "code"),
    [
        ("create", 412, "PreconditionFailed"),
        ("update", 412, "PreconditionFailed"),
        ("update", 404, "NoSuchKey"),
    ],
)
def test_a_condition_that_does_not_hold_is_a_value(act: str, status: int, code: str) -> None:
    assert ACTS[act](Stub(error(status, code)).store()) == Conflict()


@pytest.mark.parametrize("timeout", [5, 10], ids=["connect", "read"])
def test_a_store_that_swallows_everything_is_given_up_within_half_a_minute(timeout: int) -> None:
    kinds = {
        5: botocore.exceptions.ConnectTimeoutError,
        10: botocore.exceptions.ReadTimeoutError,
    }
    stub = Stub(kinds[timeout](endpoint_url=ENDPOINT))
    stub.seconds_per_answer = timeout
    begun = stub.clock.monotonic()

    with pytest.raises(StoreUnavailable):
        stub.store().commit(Change("batch", b"", None, add=("entry",), begun=begun))

    assert stub.clock.monotonic() - begun < 30


def test_half_a_date_tells_no_time() -> None:
    cut = Answer(200, b"", {"Content-Length": "0", "ETag": '"1"', "Date": "Thu, 01 Jan 2026 23:5"})
    store = Stub(cut, error(404, "NoSuchKey")).store()

    store.put("key", b"")

    assert store.now() - START < timedelta(seconds=1)


def test_an_expired_token_is_renewed_once() -> None:
    stub = Stub(error(400, "ExpiredToken"), GOOD["get"])

    stored = ACTS["get"](stub.store())

    assert stored.body == b"body"
    assert stub.clock.slept == []


def test_a_token_that_stays_expired_is_denied() -> None:
    stub = Stub(error(400, "ExpiredToken"))

    with pytest.raises(StoreAccessDenied, match="have run out"):
        ACTS["get"](stub.store())

    assert len(stub.requests) == 2


def test_a_key_that_could_not_be_deleted_is_told() -> None:
    undeleted = (
        b"<DeleteResult><Error><Key>key</Key><Code>AccessDenied</Code><Message>No.</Message>"
        b"</Error></DeleteResult>"
    )

    with pytest.raises(StoreAccessDenied):
        ACTS["delete"](Stub(Answer(200, undeleted)).store())


def test_a_listing_that_says_there_is_more_and_gives_nothing_is_an_error() -> None:
    stub = Stub(listing(is_truncated=True))

    with pytest.raises(StoreUnsuitable, match="paging"):
        stub.store().list("prefix")

    assert len(stub.requests) == 1


def test_a_listing_that_gives_the_same_page_again_is_an_error() -> None:
    stub = Stub(listing("a", "b", is_truncated=True))

    with pytest.raises(StoreUnsuitable, match="paging"):
        stub.store().list("")

    assert len(stub.requests) == 2


def test_a_listing_goes_on_after_a_page_that_is_short_but_not_the_last() -> None:
    stub = Stub(listing("a", "b", is_truncated=True), listing("c"))

    keys = [listed.key for listed in stub.store().list("")]

    assert keys == ["a", "b", "c"]


def test_a_certificate_that_can_not_be_verified_is_a_matter_of_settings() -> None:
    raised = botocore.exceptions.SSLError(
        endpoint_url=ENDPOINT, error="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"
    )
    stub = Stub(raised)

    with pytest.raises(ConfigurationError, match="AWS_CA_BUNDLE"):
        ACTS["get"](stub.store())

    assert len(stub.requests) == 1


def test_an_endpoint_that_is_no_url_is_a_matter_of_settings() -> None:
    with pytest.raises(ConfigurationError, match="'nonsense'"):
        S3Store("bucket", endpoint_url="nonsense").get("key")


def test_a_region_that_is_none_is_not_told_of_as_an_endpoint() -> None:
    with pytest.raises(ConfigurationError, match=r"'bad region!'.*Mend the settings"):
        S3Store("bucket", region_name="bad region!").get("key")


def test_missing_credentials_are_told_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(StoreAccessDenied, match="AWS_PROFILE"):
        S3Store("bucket", endpoint_url=ENDPOINT).get("key")
