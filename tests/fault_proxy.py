"""A proxy in front of an S3 server, which fails as networks and servers do.

Whether a request meets with a fault is drawn from a seeded source. What threads ask for comes in an
order of their own, so two runs of a seed are alike, and not the same.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from attrs import evolve, frozen

from tests.s3_servers import S3Server

TIMEOUT = 30

HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@frozen
class Fault:
    """What is done to some of the requests."""

    name: str
    act: Callable[[Exchange], None]
    share: float
    """How many of the requests meet with it, as a fraction."""
    in_a_row: int = 1
    """How many requests meet with it one after another: a burst."""


class FaultProxy:
    """Passes requests on, but for those that meet with a fault.

    Args:
        server: the server behind.
        faults: what may happen, each to its share of the requests.
        seed: for another course of events.
    """

    def __init__(self, server: S3Server, faults: Sequence[Fault], seed: int) -> None:
        self.hits: Counter[str] = Counter()
        """How many requests met with each fault."""
        self.closing = threading.Event()
        self.backend = urlsplit(server.endpoint)
        self._faults = faults
        self._chance = random.Random(seed)
        self._burst: list[Fault] = []
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), type("Handler", (Exchange,), {"proxy": self}))
        self.server = evolve(server, endpoint=f"http://127.0.0.1:{self._http.server_port}")
        self._thread = threading.Thread(target=self._http.serve_forever, name="fault-proxy")
        self._thread.start()

    def draw(self) -> Fault | None:
        """Say what a request meets with."""
        with self._lock:
            if not self._burst:
                self._burst = self._draw_burst()
            fault = self._burst.pop() if self._burst else None
            if fault:
                self.hits[fault.name] += 1
            return fault

    def draw_part(self, data: bytes) -> bytes:
        """Return some of the first bytes, and never all."""
        with self._lock:
            return data[: self._chance.randrange(len(data))] if data else data

    def draw_act(self, acts: Sequence[Callable[[Exchange], None]]) -> Callable[[Exchange], None]:
        """Return one of several."""
        with self._lock:
            return self._chance.choice(acts)

    def _draw_burst(self) -> list[Fault]:
        if self._chance.random() >= sum(each.share / each.in_a_row for each in self._faults):
            return []
        # That which lags most behind its share: so none is left out in a short run.
        fault = min(self._faults, key=lambda each: self.hits[each.name] / each.share)
        return [fault] * fault.in_a_row

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def failing(server: S3Server, *faults: Fault, seed: int) -> Iterator[FaultProxy]:
    """Put a proxy in front of a server."""
    proxy = FaultProxy(server, faults, seed)
    try:
        yield proxy
    finally:
        proxy.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Exchange(BaseHTTPRequestHandler):
    """One request, and what can be done with it."""

    proxy: ClassVar[FaultProxy]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has given up
            self.hang_up()

    def meet(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.draw()
        if fault is None:
            self.connection.sendall(self.serve())
        else:
            fault.act(self)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = meet  # noqa: N815 -- names of http.server

    def serve(self, pieces: Iterable[bytes] | None = None) -> bytes:
        """Have the server behind serve the request; return its answer, as it is to be sent.

        Args:
            pieces: the body, if it is not to be sent at once.
        """
        backend = self.proxy.backend
        connection = HTTPConnection(str(backend.hostname), backend.port, timeout=TIMEOUT)
        try:
            connection.request(self.command, self.path, pieces or self.body, dict(self.headers))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        kept = [f"{k}: {v}" for k, v in answer.getheaders() if k.lower() not in HOP_BY_HOP]
        return _answer(f"{answer.status} {answer.reason}", kept, body)

    def serve_part(self, body: bytes) -> None:
        """Have the server behind get the head and a part of the body, from a sender that then dies.

        A request that has no body arrives whole.
        """
        backend = self.proxy.backend
        address = (str(backend.hostname), int(backend.port or 80))
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode()
        with socket.create_connection(address, TIMEOUT) as connection:
            connection.sendall(head + body)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):  # until the server has done with it
                pass

    def pause(self, seconds: float) -> None:
        """Let time pass, unless the proxy is closed."""
        self.proxy.closing.wait(seconds)

    def hang_up(self) -> None:
        """Close the connection to the client."""
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _answer(status: str, headers: Sequence[str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


# --- what can be done to a request


def cut_before(exchange: Exchange) -> None:
    """Cut the connection, and do nothing."""
    exchange.hang_up()


def cut_behind_head(exchange: Exchange) -> None:
    """Cut both connections when the head of the request has arrived."""
    exchange.serve_part(b"")
    exchange.hang_up()


def cut_within_body(exchange: Exchange) -> None:
    """Cut both connections while the body of the request is on its way."""
    exchange.serve_part(exchange.proxy.draw_part(exchange.body))
    exchange.hang_up()


def cut_within_answer(exchange: Exchange) -> None:
    """Serve the request, and cut the connection when a part of the answer has been sent."""
    exchange.connection.sendall(exchange.proxy.draw_part(exchange.serve()))
    exchange.hang_up()


def cut_after(exchange: Exchange) -> None:
    """Serve the request, and cut the connection instead of answering."""
    exchange.serve()
    exchange.hang_up()


def either(*acts: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """Do one of several things."""
    return lambda exchange: exchange.proxy.draw_act(acts)(exchange)


def delay(seconds: float) -> Callable[[Exchange], None]:
    """Serve the request, but so much later: maybe to a client that has given up."""

    def act(exchange: Exchange) -> None:
        exchange.pause(seconds)
        exchange.connection.sendall(exchange.serve())

    return act


def refuse(status: str, code: str = "") -> Callable[[Exchange], None]:
    """Answer with an error, and do nothing; without a code as a gateway does that is not S3."""
    return lambda exchange: exchange.connection.sendall(_refusal(status, code))


def refuse_after(status: str, code: str = "") -> Callable[[Exchange], None]:
    """Serve the request, and answer with an error all the same."""

    def act(exchange: Exchange) -> None:
        exchange.serve()
        exchange.connection.sendall(_refusal(status, code))

    return act


def _refusal(status: str, code: str) -> bytes:
    if not code:
        return _answer(status, ["Content-Type: text/html"], b"<html><h1>Sorry</h1></html>")
    body = f"<Error><Code>{code}</Code><Message>as agreed</Message></Error>"
    return _answer(status, ["Content-Type: application/xml"], body.encode())


def trickle_request(pieces: int, seconds: float) -> Callable[[Exchange], None]:
    """Pass the body of the request on in pieces, and take so long for it."""

    def act(exchange: Exchange) -> None:
        body = _slowly(exchange, exchange.body, pieces, seconds) if exchange.body else None
        exchange.connection.sendall(exchange.serve(body))

    return act


def trickle_answer(pieces: int, seconds: float) -> Callable[[Exchange], None]:
    """Send the answer in pieces, and take so long for it."""

    def act(exchange: Exchange) -> None:
        for piece in _slowly(exchange, exchange.serve(), pieces, seconds):
            exchange.connection.sendall(piece)

    return act


def _slowly(exchange: Exchange, data: bytes, pieces: int, seconds: float) -> Iterator[bytes]:
    size = -(-len(data) // pieces)
    for begin in range(0, len(data), size):
        exchange.pause(seconds / pieces)
        yield data[begin : begin + size]


def stall(exchange: Exchange) -> None:
    """Send a part of the answer, and nothing more until the client has given up."""
    exchange.connection.sendall(exchange.proxy.draw_part(exchange.serve()))
    exchange.rfile.read(1)
    exchange.hang_up()
