"""Portals, proxies and gateways that stand between buquet and an S3 server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from buquet import StoreError, StoreRefused, StoreUnavailable, StoreUnclear
from buquet.store import Change
from buquet.store.s3 import S3Store
from tests.integration.processes import await_true
from tests.stores.stub import ENDPOINT, Answer, Stub, error, listing, written

Act = Callable[[S3Store], Any]

ACTS: dict[str, Act] = {
    "get": lambda store: store.get("key"),
    "list": lambda store: store.list("ready/"),
    "put": lambda store: store.put("key", b"body"),
    "create": lambda store: store.put("key", b"body", if_absent=True),
    "delete": lambda store: store.delete(["key"]),
    "commit": lambda store: store.commit(Change("key", b"", None, ("entry",), begun=0.0)),
}
READS = ["get", "list", "delete", "put"]
PAGE = Answer(200, b"<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html"})
OTHER_XML = Answer(200, b"<?xml version='1.0'?><portal/>", {"Content-Type": "text/xml"})


@pytest.mark.parametrize("page", [PAGE, OTHER_XML, Answer(200)], ids=["html", "xml", "nothing"])
@pytest.mark.parametrize("act", ACTS)
def test_a_page_in_the_place_of_an_answer_is_an_error_that_says_what_came(
    act: str, page: Answer
) -> None:
    stub = Stub(page)

    with pytest.raises(StoreUnavailable, match="is not S3, it sent") as caught:
        ACTS[act](stub.store())

    assert page.headers.get("Content-Type", "no Content-Type") in str(caught.value)


@pytest.mark.parametrize("act", [*READS, "create"])
@pytest.mark.parametrize("code", ["BucketAlreadyExists", "InvalidBucketState", "Conflict"])
def test_a_409_that_is_no_race_is_refused_at_once(act: str, code: str) -> None:
    stub = Stub(error(409, code))

    with pytest.raises(StoreRefused) as caught:
        ACTS[act](stub.store())

    assert caught.value.code == code
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(507, "507"), (403, "QuotaExceeded"), (507, "XMinioStorageFull"), (400, "QuotaExceededError")],
)
def test_a_store_that_is_full_is_not_about_credentials(status: int, code: str) -> None:
    stub = Stub(error(status, code))

    with pytest.raises(StoreUnavailable, match="takes no more") as caught:
        stub.store().put("key", b"body", if_absent=True)

    assert not isinstance(caught.value, StoreUnclear)
    assert "redentials" not in str(caught.value)
    assert caught.value.code == code


@pytest.mark.parametrize("act", ACTS)
def test_an_error_has_the_code_of_the_store(act: str) -> None:
    with pytest.raises(StoreError) as caught:
        ACTS[act](Stub(error(500, "InternalError")).store())

    assert caught.value.code == "InternalError"


def test_an_object_in_an_archive_is_refused_by_itself() -> None:
    with pytest.raises(StoreRefused) as caught:
        Stub(error(403, "InvalidObjectState")).store().get("key")

    assert caught.value.code == "InvalidObjectState"


@pytest.mark.parametrize(("asked", "waited"), [("3", 3.0), ("0.1", 0.1), ("Tue, 1 Dec 2026", 0.1)])
def test_a_store_that_asks_to_be_left_alone_for_a_while_is(asked: str, waited: float) -> None:
    busy = error(503, "SlowDown", **{"Retry-After": asked})
    stub = Stub(busy, listing())

    stub.store().list("")

    (slept,) = stub.clock.slept
    assert waited <= slept < waited + 0.2


def test_nobody_waits_for_a_store_that_asks_to_be_left_alone_for_an_hour() -> None:
    stub = Stub(error(503, "SlowDown", **{"Retry-After": "3600"}))

    with pytest.raises(StoreUnavailable):
        stub.store().list("")

    assert stub.clock.slept == []


def test_a_bulk_delete_has_a_checksum_that_every_store_knows() -> None:
    stub = Stub(Answer(200, b"<DeleteResult></DeleteResult>"))

    stub.store().delete(["one", "two"])

    (digest,) = stub.sent("Content-MD5")
    assert digest is not None
    assert len(digest) == 24


# --- the time


def undated(answer: Answer) -> Answer:
    return Answer(answer.status, answer.body, {"Date": ""} | answer.headers)


def test_a_store_whose_answers_have_no_date_is_asked_for_it_three_times_and_never_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub = Stub(undated(error(404, "NoSuchKey")))
    store = stub.store()

    for _ in range(50):
        assert store.now() <= store.latest()

    assert len(stub.requests) == 3
    assert sum("no Date header" in each for each in caplog.messages) == 1


def test_a_date_that_comes_late_is_used() -> None:
    stub = Stub(*[undated(error(404, "NoSuchKey"))] * 3, error(404, "NoSuchKey"))
    store = stub.store()
    stub.clock.advance(hours=1)
    store.now()

    store.get("key")

    assert store.now() < stub.clock.now()


@pytest.mark.parametrize("seconds", [0.0, 4.0], ids=["quick answers", "slow answers"])
def test_once_an_answer_has_told_the_time_nothing_asks_or_raises(seconds: float) -> None:
    stub = Stub(listing(), ConnectTimeoutError(endpoint_url=ENDPOINT))
    stub.seconds_per_answer = seconds
    store = stub.store()
    store.list("")
    store.now()  # after a slow answer it may ask once more, for a better one
    sent = len(stub.requests)

    for _ in range(9):
        assert store.now() <= store.latest()

    assert len(stub.requests) == sent


class Hanging(Stub):
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__(ConnectTimeoutError(endpoint_url=ENDPOINT))
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()

    def answer(self, *given: Any, **more: Any) -> Any:
        self.begun.release()
        assert self.go_on.wait(20)
        return super().answer(*given, **more)


def test_threads_that_ask_for_the_time_of_a_store_that_hangs_wait_for_one_answer() -> None:
    stub = Hanging()
    store = stub.store()
    raised: list[Exception] = []

    def ask() -> None:
        try:
            store.now()
        except StoreUnavailable as unavailable:
            raised.append(unavailable)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert stub.begun.acquire(timeout=20)
    await_true(store._asking_time.locked)
    stub.go_on.set()
    for thread in threads:
        thread.join(20)

    assert len(raised) == 8


# --- giving up


def test_a_store_that_hangs_is_given_up_in_time() -> None:
    stub = Stub(written())
    store = stub.store(give_up_after=2.0)

    assert store.client.meta.config.connect_timeout == 0.5
    assert store.client.meta.config.read_timeout == 0.5


def test_a_store_that_stays_busy_is_given_up_in_time() -> None:
    stub = Stub(error(503, "SlowDown"))
    store = stub.store(give_up_after=2.0)
    begun = stub.clock.monotonic()

    with pytest.raises(StoreUnavailable):
        store.list("")

    assert stub.clock.monotonic() - begun <= 1.0
