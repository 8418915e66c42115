"""What a store on S3 sends, what it learns from the answers, and how it shares its client."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import botocore.auth
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from buquet.errors import StoreAccessDenied, StoreNotFound, StoreUnavailable, StoreUnclear
from buquet.store import Change, Conflict
from buquet.store.s3 import S3Store
from buquet.store.s3_client import _parse_timestamp
from buquet.testing.clock import START
from buquet.testing.conformance import at_once, body_of
from tests.proxy import Proxy
from tests.s3_servers import S3Server
from tests.stores.stub import ENDPOINT, Answer, Stub, error, listing, written

DELETED = Answer(200, b"<DeleteResult></DeleteResult>")
READ = Answer(200, b"body", {"ETag": '"1"', "Content-Length": "4"})


def change(store: S3Store, *, key: str = "batch", drop: tuple[str, ...] = ()) -> Change:
    return Change(key, b"{}", None, drop=drop, begun=store.clock.monotonic())


# What is sent


def test_a_write_expects_no_go_ahead_and_carries_no_checksum() -> None:
    stub = Stub(written())

    stub.store().put("key", b"body", if_absent=True)

    [request] = stub.requests
    names = {name.lower() for name in request.headers}
    assert "expect" not in names
    assert not any(name.startswith("x-amz-checksum") for name in names)
    assert request.headers["If-None-Match"] in ("*", b"*")


@pytest.mark.parametrize("etag", ['"abc"', 'W/"a-1"', "unquoted", '"d41d8cd98f00b204-17"'])
def test_etags_are_sent_back_exactly_as_they_came(etag: str) -> None:
    stub = Stub(written(etag))
    store = stub.store()

    got = store.put("key", b"1", if_absent=True)
    store.put("key", b"2", if_match=str(got))

    assert got == etag
    assert stub.sent("If-Match")[1] == etag


def test_each_request_that_is_sent_is_counted() -> None:
    seen: list[str] = []
    stub = Stub(
        error(503, "SlowDown"), listing(), READ, DELETED, error(409, "OperationAborted"), written()
    )
    store = stub.store(on_request=seen.append)

    store.list("")
    store.get("key")
    store.delete(["key"])
    store.put("key", b"", if_absent=True)
    store.now()

    assert seen == ["list", "list", "get", "delete", "put", "put"]


def test_asking_for_the_time_needs_no_right_but_to_read() -> None:
    seen: list[str] = []

    Stub(error(404, "NoSuchKey")).store(on_request=seen.append).now()

    assert seen == ["get"]


def test_keys_are_under_the_prefix_in_the_bucket_and_not_outside_it(moto: S3Server) -> None:
    store = moto.store("queues/mail")

    store.put("tasks/1", b"")

    assert [listed.key for listed in store.list("tasks/", after="tasks/0")] == ["tasks/1"]
    assert store.delete(["tasks/1"]) is None
    assert moto.store("queues/mail").list("") == []


def test_two_prefixes_in_one_bucket_are_strangers(moto: S3Server) -> None:
    one, other = moto.store(), moto.store()

    one.put("key", b"one")
    other.put("key", b"other")

    assert body_of(one, "key") == b"one"
    assert [listed.key for listed in other.list("")] == ["key"]


def test_a_missing_bucket_is_named_with_its_region_and_endpoint(moto: S3Server) -> None:
    store = S3Store("no-such-bucket", endpoint_url=moto.endpoint, region_name="eu-west-1")

    with pytest.raises(StoreNotFound) as caught:
        store.list("")

    assert all(each in str(caught.value) for each in ("no-such-bucket", "eu-west-1", moto.endpoint))


def test_the_right_region_of_aws_is_found() -> None:
    elsewhere = error(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-central-1"})
    stub = Stub(elsewhere, listing())

    stub.store(endpoint_url=None).list("")

    assert "eu-central-1" in stub.requests[-1].url


# Answers that do not come


@pytest.mark.parametrize("server", ["moto", "seaweed"])
def test_a_write_whose_answer_is_dropped_is_unclear_and_stored(
    server: str, request: pytest.FixtureRequest, proxy_for: Callable[[S3Server], Proxy]
) -> None:
    proxy = proxy_for(request.getfixturevalue(server))
    store = proxy.server.store()
    proxy.drop_answer("PUT")

    with pytest.raises(StoreUnclear):
        store.put("key", b"mine", if_absent=True)

    assert len(proxy.requests) == 1
    assert body_of(store, "key") == b"mine"
    store.close()


def test_a_write_that_is_dropped_on_the_way_is_unclear_and_not_stored(
    moto: S3Server, proxy_for: Callable[[S3Server], Proxy]
) -> None:
    proxy = proxy_for(moto)
    store = proxy.server.store()
    proxy.drop_request("PUT")

    with pytest.raises(StoreUnclear):
        store.put("key", b"mine", if_absent=True)

    assert store.get("key") is None
    store.close()


def test_a_write_whose_sender_died_behind_the_head_leaves_the_object_as_it_was(
    seaweed: S3Server, proxy_for: Callable[[S3Server], Proxy]
) -> None:
    proxy = proxy_for(seaweed)
    store = proxy.server.store()
    etag = store.put("key", b"old" * 1000)
    assert isinstance(etag, str)
    proxy.drop_body("PUT")

    with pytest.raises(StoreUnclear):
        store.put("key", b"new" * 1000, if_match=etag)

    stored = store.get("key")
    assert stored is not None
    assert (stored.body, stored.etag) == (b"old" * 1000, etag)
    store.close()


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_what_can_be_done_twice_survives_a_dropped_answer(
    method: str, moto: S3Server, proxy_for: Callable[[S3Server], Proxy]
) -> None:
    proxy = proxy_for(moto)
    store = proxy.server.store()
    proxy.drop_answer(method)

    store.put("key", b"body")
    stored = store.get("key")
    store.delete(["key"])

    assert stored is not None
    assert stored.body == b"body"
    assert store.get("key") is None
    store.close()


# Dropped entries


def test_what_commits_drop_is_deleted_in_bulk_within_a_second() -> None:
    stub = Stub(written(), written(), written(), DELETED)
    store = stub.store()

    store.commit(change(store, drop=("entry/1",)))
    stub.clock.advance(0.9)
    store.commit(change(store, drop=("entry/2",)))
    assert stub.operations == ["PutObject"] * 2

    stub.clock.advance(0.1)
    store.commit(change(store, drop=("entry/3",)))

    assert stub.operations == ["PutObject"] * 3 + ["DeleteObjects"]
    assert stub.requests[-1].body.count(b"<Key>") == 3


def test_a_listing_has_what_is_due_deleted_first() -> None:
    stub = Stub(written(), DELETED, listing())
    store = stub.store()

    store.commit(change(store, drop=("entry",)))
    stub.clock.advance(1)
    store.list("")

    assert stub.operations == ["PutObject", "DeleteObjects", "ListObjectsV2"]


def test_a_thousand_dropped_entries_are_deleted_without_waiting() -> None:
    stub = Stub(written(), DELETED)
    store = stub.store()

    store.commit(change(store, drop=tuple(f"entry/{n}" for n in range(1000))))

    assert stub.operations == ["PutObject", "DeleteObjects"]


def test_more_than_a_thousand_keys_are_deleted_with_several_requests() -> None:
    stub = Stub(DELETED)

    stub.store().delete(f"key/{n}" for n in range(2001))

    assert stub.operations == ["DeleteObjects"] * 3


@pytest.mark.parametrize("act", ["flush", "close"])
def test_flush_and_close_delete_what_was_dropped(act: str) -> None:
    stub = Stub(written(), DELETED)
    store = stub.store()
    store.commit(change(store, drop=("entry",)))

    getattr(store, act)()
    getattr(store, act)()

    assert stub.operations == ["PutObject", "DeleteObjects"]


def test_entries_that_can_not_be_deleted_are_forgotten_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub = Stub(written(), error(403, "AccessDenied"))
    store = stub.store()

    store.commit(change(store, drop=("entry/1", "entry/2")))
    stub.clock.advance(1)
    store.flush()

    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("2 entries")
    store.flush()
    assert len(stub.requests) == 2


def test_a_commit_does_not_fail_because_its_drops_can_not_be_deleted() -> None:
    stub = Stub(written(), written(), error(403, "AccessDenied"))
    store = stub.store()
    store.commit(change(store, drop=("entry/1",)))
    stub.clock.advance(1)

    outcome = store.commit(change(store, drop=("entry/2",)))

    assert outcome == '"1"'
    assert stub.operations[-1] == "DeleteObjects"


def test_a_commit_that_is_lost_drops_nothing() -> None:
    stub = Stub(error(412, "PreconditionFailed"))
    store = stub.store()

    outcome = store.commit(change(store, drop=("entry",)))
    store.flush()

    assert outcome == Conflict()
    assert stub.operations == ["PutObject"]


# Time


def dated(when: datetime, status: int = 200, code: str = "") -> Answer:
    answer = error(status, code) if code else written()
    return Answer(
        status, answer.body, answer.headers | {"Date": format_datetime(when, usegmt=True)}
    )


def test_the_time_is_that_of_the_answers_and_costs_no_request() -> None:
    ahead = START + timedelta(days=3)
    stub = Stub(dated(ahead))
    store = stub.store()
    store.put("key", b"")

    now = store.now()

    assert abs(now - ahead) <= timedelta(seconds=1)
    assert len(stub.requests) == 1


def test_before_any_answer_the_store_is_asked_once_for_the_time() -> None:
    ahead = START + timedelta(days=3)
    stub = Stub(dated(ahead, 404, "NoSuchKey"))
    store = stub.store()

    times = [store.now() for _ in range(3)]

    assert abs(times[0] - ahead) <= timedelta(seconds=1)
    assert stub.operations == ["GetObject"]


def test_threads_that_ask_for_the_time_at_once_send_one_request(moto: S3Server) -> None:
    seen: list[str] = []
    store = moto.store(on_request=seen.append)

    at_once(lambda _: store.now(), threads=8)

    assert seen == ["get"]
    store.close()


def test_errors_tell_the_time_too() -> None:
    ahead = START + timedelta(days=3)
    stub = Stub(dated(ahead, 412, "PreconditionFailed"))
    store = stub.store()
    store.put("key", b"", if_absent=True)

    assert abs(store.now() - ahead) <= timedelta(seconds=1)
    assert len(stub.requests) == 1


def test_an_answer_with_an_odd_date_is_taken_all_the_same() -> None:
    odd = Answer(200, b"", {"ETag": '"1"', "Date": "tomorrow"})

    assert Stub(odd).store().put("key", b"") == '"1"'


def signed_at(stub: Stub) -> list[datetime]:
    texts = [text or "" for text in stub.sent("X-Amz-Date")]
    return [datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for text in texts]


def test_requests_are_signed_by_the_stores_clock_once_the_machines_is_refused() -> None:
    machines = datetime.now(UTC)
    ahead = machines + timedelta(hours=1)
    stub = Stub(dated(ahead, 403, "RequestTimeTooSkewed"), dated(ahead))
    store = stub.store()

    store.put("first", b"", if_absent=True)
    store.put("second", b"", if_absent=True)

    refused, *taken = signed_at(stub)
    assert abs(refused - machines) < timedelta(minutes=1)
    assert [abs(each - ahead) < timedelta(minutes=1) for each in taken] == [True, True]


def test_a_store_that_refuses_the_right_time_too_is_not_asked_for_ever() -> None:
    stub = Stub(dated(datetime.now(UTC), 403, "RequestTimeTooSkewed"))

    with pytest.raises(StoreAccessDenied, match="Set the clock"):
        stub.store().get("key")

    assert len(stub.requests) == 2


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_machine_whose_clock_is_hours_off_can_use_a_real_store(
    hours: int, seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = botocore.auth.get_current_datetime
    wrong = timedelta(hours=hours)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *a: right(*a) + wrong)
    seen: list[str] = []
    store = seaweed.store(on_request=seen.append)

    store.put("key", b"body", if_absent=True)

    assert body_of(store, "key") == b"body"
    assert seen == ["put", "put", "get"]
    store.close()


# The client


def test_timeouts_are_shorter_than_a_lease_can_bear() -> None:
    stub = Stub(written())
    store = stub.store()
    store.put("key", b"")

    config = store.client.meta.config
    assert config.connect_timeout <= 5
    assert config.read_timeout <= 10
    assert config.retries["total_max_attempts"] == 1


def test_a_client_that_is_handed_in_is_the_one_that_is_used(moto: S3Server) -> None:
    mine = moto.client(config=Config(user_agent_extra="mine"))
    agents: list[str] = []
    mine.meta.events.register(
        "before-send.s3", lambda request, **_: agents.append(str(request.headers["User-Agent"]))
    )
    store = S3Store(moto.bucket, "mine", client=mine)

    store.put("key", b"body")
    store.list("")
    store.delete(["key"])

    assert store.client is mine
    assert len(agents) == 3
    mine.close()


def test_what_the_caller_does_with_its_own_client_is_not_counted(moto: S3Server) -> None:
    mine = moto.client()
    seen: list[str] = []
    store = S3Store(moto.bucket, "mine", client=mine, on_request=seen.append)
    store.put("key", b"body")

    mine.get_object(Bucket=moto.bucket, Key="mine/key")
    store.close()
    mine.get_object(Bucket=moto.bucket, Key="mine/key")

    assert seen == ["put"]
    mine.close()


def test_a_store_that_is_let_go_leaves_nothing_on_the_client_of_the_caller(moto: S3Server) -> None:
    mine = moto.client()
    store = S3Store(moto.bucket, "mine", client=mine)
    store.put("key", b"body")
    hooked = weakref.ref(store._wire)

    del store
    gc.collect()

    assert hooked() is None
    mine.close()


def test_a_client_of_the_caller_is_hooked_again_after_close(moto: S3Server) -> None:
    mine = moto.client()
    seen: list[str] = []
    store = S3Store(moto.bucket, "mine", client=mine, on_request=seen.append)
    store.put("key", b"body")
    store.close()

    store.get("key")
    store.close()

    assert seen == ["put", "get"]
    mine.close()


def test_proxies_of_a_config_reach_the_client(moto: S3Server) -> None:
    config = Config(proxies={"http": "http://127.0.0.1:1"})
    store = moto.store(config=config)

    with pytest.raises(StoreUnavailable, match="proxy"):
        store.get("key")


def test_fifty_threads_may_use_a_new_store_at_the_same_moment(moto: S3Server) -> None:
    store = moto.store()

    at_once(lambda n: store.put(f"key/{n}", b""), threads=50)

    assert len(store.list("key/")) == 50
    store.close()


def test_the_pool_has_a_connection_for_every_thread(
    moto: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = moto.store(threads=32)

    at_once(lambda n: [store.put(f"key/{n}/{m}", b"") for m in range(5)], threads=32)

    assert [record for record in caplog.records if "pool" in record.getMessage()] == []
    store.close()


def test_a_client_is_made_anew_after_close(moto: S3Server) -> None:
    store = moto.store()
    store.put("key", b"body")
    first = store.client

    store.close()

    assert body_of(store, "key") == b"body"
    assert store.client is not first
    store.close()


FORKING = """
import os, sys
from buquet.store import open_store

store = open_store(sys.argv[1])
store.put("parent/before", b"")
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for n in range(50):
            store.put(f"child/{child}/{n}", b"", if_absent=True)
        os._exit(0)
    children.append(pid)
for n in range(50):
    store.put(f"parent/{n}", b"", if_absent=True)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
assert len(store.list("child/")) == 200
assert len(store.list("parent/")) == 51
store.close()
"""


def test_parent_and_forked_children_each_have_their_own_client(
    seaweed: S3Server,  # it keeps connections open, as moto does not
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORKING, seaweed.url()],
        env=seaweed.env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_boto3_is_imported_on_first_use_and_pytest_never() -> None:
    script = (
        "import sys, buquet.store, buquet.store.s3, buquet.testing.faults;"
        "store = buquet.store.open_store('s3://bucket');"
        "print([name for name in ('boto3', 'botocore', 'pytest') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_an_unreachable_store_is_told_with_its_endpoint() -> None:
    stub = Stub(EndpointConnectionError(endpoint_url=ENDPOINT, error="refused"))

    with pytest.raises(StoreUnavailable, match="can't be reached"):
        stub.store().get("key")


def test_times_in_listings_are_read_whatever_their_format(moto: S3Server) -> None:
    store = moto.store()
    store.put("key", b"")

    [listed] = store.list("")

    assert listed.modified.utcoffset() == timedelta(0)
    assert abs(listed.modified - store.now()) < timedelta(minutes=1)
    assert _parse_timestamp("Thu, 01 Jan 2026 12:00:00 GMT") == START
    assert _parse_timestamp(START.timestamp()) == START
    store.close()
