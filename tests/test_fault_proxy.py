"""The faulty network does what its faults say, and counts only those that had their effect."""

from __future__ import annotations

import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import md5
from urllib.parse import urlsplit

import pytest
from attrs import frozen

from buquet.store.s3 import S3Store
from tests import fault_proxy
from tests.fault_proxy import Act, Exchange, Fault, FaultProxy, failing
from tests.integration.processes import await_true
from tests.s3_servers import S3Server

OLD, NEW = b"old" * 1000, b"new" * 1000

ANY_SIGNATURE = (  # moto asks for one, and does not check it
    "AWS4-HMAC-SHA256 Credential=buquet/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@frozen
class Seen:
    """What a client sees of an answer."""

    pieces: list[bytes]
    is_closed: bool
    """Whether the proxy closed the connection; else the client has given up."""
    seconds: float

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def status(self) -> str:
        return self.data.partition(b"\r\n")[0].decode().removeprefix("HTTP/1.1 ")

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]


@frozen
class Client:
    """Asks for one object, and takes what comes over the wire."""

    proxy: FaultProxy
    behind: S3Store
    """The same place, without the proxy in between."""

    def ask(self, method: str, patience: float = 30) -> Seen:
        """Ask, and read until the connection is closed, or nothing has come for so many seconds.

        The proxy closes it when it has done with the request, and has counted the fault.
        """
        body = NEW if method == "PUT" else b""
        address = urlsplit(self.proxy.server.endpoint)
        path = f"/{self.proxy.server.bucket}/{self.behind.prefix}key"
        digest = b64encode(md5(body, usedforsecurity=False).digest()).decode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}", "Connection: close"]
        lines += [f"Authorization: {ANY_SIGNATURE}", f"Content-Length: {len(body)}"]
        lines += [f"Content-MD5: {digest}", "", ""]
        pieces: list[bytes] = []
        begun = time.monotonic()
        with socket.create_connection((address.hostname, address.port), patience) as connection:
            connection.sendall("\r\n".join(lines).encode() + body)
            try:
                while piece := connection.recv(65536):
                    pieces.append(piece)
            except TimeoutError:
                return Seen(pieces, False, time.monotonic() - begun)
        return Seen(pieces, True, time.monotonic() - begun)

    @property
    def stored(self) -> bytes | None:
        """What is behind the proxy."""
        found = self.behind.get("key")
        return found.body if found else None

    @property
    def hits(self) -> int:
        """How many requests the fault had its effect on."""
        return self.proxy.hits["fault"]


ClientOf = Callable[..., Client]


@pytest.fixture
def client_of(moto: S3Server) -> Iterator[ClientOf]:
    """Make a client of a network that does one thing to each request."""
    with ExitStack() as stack:

        def make(act: Act, *, needs_body: bool = False) -> Client:
            behind = moto.store()
            stack.callback(behind.close)
            fault = Fault("fault", act, 1.0, needs_body=needs_body)
            proxy = stack.enter_context(failing(moto, fault, seed=1))
            return Client(proxy, behind)

        yield make


# Cut connections


def test_a_connection_that_is_cut_before_the_request_has_nothing_served(
    client_of: ClientOf,
) -> None:
    client = client_of(fault_proxy.cut_before)

    seen = client.ask("PUT")

    assert (seen.data, seen.is_closed) == (b"", True)
    assert client.stored is None
    assert client.hits == 1


@pytest.mark.parametrize("act", [fault_proxy.cut_behind_head, fault_proxy.cut_within_body])
def test_a_request_of_which_a_part_arrives_leaves_the_object_as_it_was(
    act: Act, client_of: ClientOf
) -> None:
    client = client_of(act)
    client.behind.put("key", OLD)

    seen = client.ask("PUT")

    assert (seen.data, seen.is_closed) == (b"", True)
    assert client.stored == OLD
    assert client.hits == 1


def test_a_connection_that_is_cut_within_the_answer_has_the_request_served(
    client_of: ClientOf,
) -> None:
    client = client_of(fault_proxy.cut_within_answer)

    put, got = client.ask("PUT"), client.ask("GET")

    assert client.stored == NEW
    for seen in (put, got):
        assert seen.data
        assert seen.is_closed
    assert not put.data.endswith(b"\r\n\r\n")
    assert len(got.body) < len(NEW)
    assert client.hits == 2


def test_a_connection_that_is_cut_after_the_request_has_it_served(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.cut_after)

    seen = client.ask("PUT")

    assert (seen.data, seen.is_closed) == (b"", True)
    assert client.stored == NEW
    assert client.hits == 1


def test_of_several_acts_each_has_its_turn(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.either(fault_proxy.cut_before, fault_proxy.refuse("500 No")))

    seen = [client.ask("PUT") for _ in range(20)]

    assert {each.status for each in seen} == {"", "500 No"}
    assert client.hits == 20


# Errors


@pytest.mark.parametrize(
    ("code", "told"),
    [("SlowDown", b"<Code>SlowDown</Code>"), ("", b"<html><h1>Sorry</h1></html>")],
    ids=["by S3", "by a gateway"],
)
def test_a_refused_request_is_answered_with_an_error_and_not_served(
    code: str, told: bytes, client_of: ClientOf
) -> None:
    client = client_of(fault_proxy.refuse("503 Slow Down", code))

    seen = client.ask("PUT")

    assert seen.status == "503 Slow Down"
    assert told in seen.body
    assert client.stored is None
    assert client.hits == 1


def test_a_request_that_is_refused_after_it_was_served_is_answered_with_an_error_all_the_same(
    client_of: ClientOf,
) -> None:
    client = client_of(fault_proxy.refuse_after("500 Internal Server Error", "InternalError"))

    seen = client.ask("PUT")

    assert seen.status == "500 Internal Server Error"
    assert b"<Code>InternalError</Code>" in seen.body
    assert client.stored == NEW
    assert client.hits == 1


# Slow answers and bodies


def test_a_delayed_request_is_served_and_answered_later(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.delay(0.3))

    seen = client.ask("PUT")

    assert seen.status == "200 OK"
    assert seen.seconds >= 0.3
    assert client.stored == NEW
    assert client.hits == 1


def test_a_body_that_trickles_in_is_stored_whole_and_answered_later(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.trickle_request(5, 0.3))

    seen = client.ask("PUT")

    assert seen.status == "200 OK"
    assert seen.seconds >= 0.3
    assert client.stored == NEW
    assert client.hits == 1


def test_an_answer_that_trickles_in_is_whole_and_comes_in_pieces(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.trickle_answer(5, 1.0))
    client.behind.put("key", OLD)

    seen = client.ask("GET")

    assert seen.status == "200 OK"
    assert seen.body == OLD
    assert len(seen.pieces) > 1
    assert client.hits == 1


@pytest.mark.parametrize(
    "act",
    [fault_proxy.delay(0.5), fault_proxy.trickle_request(5, 0.5)],
    ids=["delay", "trickle_request"],
)
def test_what_outlasts_the_client_is_served_when_it_has_given_up(
    act: Act, client_of: ClientOf
) -> None:
    client = client_of(fault_proxy.outlast(act))

    seen = client.ask("PUT", patience=0.1)
    await_true(lambda: client.hits)

    assert (seen.data, seen.is_closed) == (b"", False)
    assert client.stored == NEW
    assert client.hits == 1


def test_what_was_to_outlast_the_client_and_did_not_is_not_counted(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.outlast(fault_proxy.delay(0)))

    seen = client.ask("PUT")

    assert seen.status == "200 OK"
    assert client.hits == 0


def test_a_stalled_answer_is_left_off_until_the_client_has_given_up(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.stall)
    client.behind.put("key", OLD)

    seen = client.ask("GET", patience=0.3)
    await_true(lambda: client.hits)

    assert seen.data
    assert not seen.is_closed
    assert len(seen.body) < len(OLD)
    assert client.hits == 1


# What meets with what


def test_a_fault_that_needs_a_body_waits_for_a_request_that_has_one(client_of: ClientOf) -> None:
    client = client_of(fault_proxy.cut_within_body, needs_body=True)
    client.behind.put("key", OLD)

    got, put = client.ask("GET"), client.ask("PUT")

    assert got.body == OLD
    assert put.data == b""
    assert client.hits == 1


def test_an_act_without_an_effect_is_not_counted(client_of: ClientOf) -> None:
    def pass_on(exchange: Exchange) -> bool:
        exchange.connection.sendall(exchange.serve())
        return False

    client = client_of(pass_on)

    seen = client.ask("PUT")

    assert seen.status == "200 OK"
    assert client.hits == 0
