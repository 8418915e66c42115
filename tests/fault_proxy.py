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
from functools import partial
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
    act: Act
    share: float
    """How many of the requests meet with it, as a fraction."""
    in_a_row: int = 1
    """How many requests meet with it one after another: a burst."""
    needs_body: bool = False
    """Whether it waits for a request with a body that can be parted: two bytes or more."""


class FaultProxy:
    """Passes requests on, but for those that meet with a fault.

    Args:
        server: the server behind.
        faults: what may happen, each to its share of the requests.
        seed: for another course of events.
    """

    def __init__(self, server: S3Server, faults: Sequence[Fault], seed: int) -> None:
        self.hits: Counter[str] = Counter()
        """How many requests each fault had its effect on."""
        self.closing = threading.Event()
        self.backend = urlsplit(server.endpoint)
        self._faults = faults
        self._chance = random.Random(seed)
        self._drawn: Counter[str] = Counter()
        self._burst: list[Fault] = []
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), type("Handler", (Exchange,), {"proxy": self}))
        self.server = evolve(server, endpoint=f"http://127.0.0.1:{self._http.server_port}")
        serve = partial(self._http.serve_forever, poll_interval=0.02)  # so that it ends soon
        self._thread = threading.Thread(target=serve, name="fault-proxy")
        self._thread.start()

    def draw(self, has_body: bool) -> Fault | None:
        """Say what a request meets with."""
        with self._lock:
            if not self._burst:
                self._burst = self._draw_burst()
            if not self._burst or (self._burst[-1].needs_body and not has_body):
                return None
            fault = self._burst.pop()
            self._drawn[fault.name] += 1
            return fault

    def note_effect(self, fault: Fault) -> None:
        """Count a fault that had its effect."""
        with self._lock:
            self.hits[fault.name] += 1

    def draw_part(self, data: bytes) -> bytes:
        """Return some of the first bytes, never all and never none."""
        with self._lock:
            return data[: self._chance.randrange(1, len(data))]

    def draw_act(self, acts: Sequence[Act]) -> Act:
        """Return one of several."""
        with self._lock:
            return self._chance.choice(acts)

    def _draw_burst(self) -> list[Fault]:
        if self._chance.random() >= sum(each.share / each.in_a_row for each in self._faults):
            return []
        # That which lags most behind its share: so none is left out in a short run.
        fault = min(self._faults, key=lambda each: self._drawn[each.name] / each.share)
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
        fault = self.proxy.draw(has_body=len(self.body) > 1)
        if fault is None:
            self.connection.sendall(self.serve())
        elif fault.act(self):
            self.proxy.note_effect(fault)

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
        """Send the server behind the head and a part of the body, and die as one that is killed."""
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
        """Let time pass.

        Raises:
            ConnectionAbortedError: the proxy is closed.
        """
        if self.proxy.closing.wait(seconds):
            raise ConnectionAbortedError("The proxy is closed: end the traffic before.")

    def is_given_up(self) -> bool:
        """Tell whether the client has closed the connection."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:  # it waits, and sends nothing
            return False
        except ConnectionError:
            return True

    def hang_up(self) -> None:
        """Close the connection to the client."""
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _answer(status: str, headers: Sequence[str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


# --- what can be done to a request; each tells whether it had its effect

Act = Callable[[Exchange], bool]


def cut_before(exchange: Exchange) -> bool:
    """Cut the connection, and do nothing."""
    exchange.hang_up()
    return True


def cut_behind_head(exchange: Exchange) -> bool:
    """Cut both connections when the head of the request has arrived; needs a body."""
    exchange.serve_part(b"")
    exchange.hang_up()
    return True


def cut_within_body(exchange: Exchange) -> bool:
    """Cut both connections while the body of the request is on its way; needs a body."""
    exchange.serve_part(exchange.proxy.draw_part(exchange.body))
    exchange.hang_up()
    return True


def cut_within_answer(exchange: Exchange) -> bool:
    """Serve the request, and cut the connection when a part of the answer has been sent."""
    exchange.connection.sendall(exchange.proxy.draw_part(exchange.serve()))
    exchange.hang_up()
    return True


def cut_after(exchange: Exchange) -> bool:
    """Serve the request, and cut the connection instead of answering."""
    exchange.serve()
    exchange.hang_up()
    return True


def either(*acts: Act) -> Act:
    """Do one of several things."""
    return lambda exchange: exchange.proxy.draw_act(acts)(exchange)


def outlast(act: Act) -> Act:
    """Do something for longer than the client waits, or else to no effect."""
    return lambda exchange: act(exchange) and exchange.is_given_up()


def delay(seconds: float) -> Act:
    """Serve the request, but so much later."""

    def act(exchange: Exchange) -> bool:
        exchange.pause(seconds)
        exchange.connection.sendall(exchange.serve())
        return True

    return act


def refuse(status: str, code: str = "") -> Act:
    """Answer with an error, and do nothing; without a code as a gateway does that is not S3."""

    def act(exchange: Exchange) -> bool:
        exchange.connection.sendall(_refusal(status, code))
        return True

    return act


def refuse_after(status: str, code: str = "") -> Act:
    """Serve the request, and answer with an error all the same."""

    def act(exchange: Exchange) -> bool:
        exchange.serve()
        exchange.connection.sendall(_refusal(status, code))
        return True

    return act


def _refusal(status: str, code: str) -> bytes:
    if not code:
        return _answer(status, ["Content-Type: text/html"], b"<html><h1>Sorry</h1></html>")
    body = f"<Error><Code>{code}</Code><Message>as agreed</Message></Error>"
    return _answer(status, ["Content-Type: application/xml"], body.encode())


def trickle_request(pieces: int, seconds: float) -> Act:
    """Pass the body of the request on in pieces, and take so long for it; needs a body."""

    def act(exchange: Exchange) -> bool:
        body = _slowly(exchange, exchange.body, pieces, seconds)
        exchange.connection.sendall(exchange.serve(body))
        return True

    return act


def trickle_answer(pieces: int, seconds: float) -> Act:
    """Send the answer in pieces, and take so long for it."""

    def act(exchange: Exchange) -> bool:
        for piece in _slowly(exchange, exchange.serve(), pieces, seconds):
            exchange.connection.sendall(piece)
        return True

    return act


def _slowly(exchange: Exchange, data: bytes, pieces: int, seconds: float) -> Iterator[bytes]:
    size = -(-len(data) // pieces)
    for begin in range(0, len(data), size):
        exchange.pause(seconds / pieces)
        yield data[begin : begin + size]


def stall(exchange: Exchange) -> bool:
    """Send a part of the answer, and nothing more until the client has given up."""
    exchange.connection.sendall(exchange.proxy.draw_part(exchange.serve()))
    is_given_up = exchange.rfile.read(1) == b""
    exchange.hang_up()
    return is_given_up
