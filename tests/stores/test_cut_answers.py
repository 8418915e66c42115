"""An answer that is cut short at any of its bytes is never taken for another answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from buquet.store.s3 import S3Store
from buquet.testing import FakeClock

HEAD = "HTTP/1.1 {}\r\nServer: any\r\nDate: Thu, 01 Jan 2026 23:59:59 GMT\r\n"
TIME = datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC)
NO_KEY = b"<Error><Code>NoSuchKey</Code><Message>No.</Message></Error>"
KEYS = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>key</Key>"
    b"<LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>"
)


def measured(status: str, body: bytes) -> bytes:
    head = f'{HEAD.format(status)}Content-Length: {len(body)}\r\nETag: "1"\r\n\r\n'
    return head.encode() + body


def chunked(status: str, body: bytes) -> bytes:
    head = f'{HEAD.format(status)}Transfer-Encoding: chunked\r\nETag: "1"\r\n\r\n'
    return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


class Cutter:
    """Cuts each answer short, then gives it whole, and then cuts it a byte later."""

    def __init__(self, answer: bytes) -> None:
        self.cuts = 0
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.cuts >= len(self._answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                self._give(self._answer[: self.cuts])
                self._give(self._answer)
                self.cuts += 1

    def _give(self, part: bytes) -> None:
        connection, _ = self._socket.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            connection.sendall(part)


ASKED: dict[str, tuple[Callable[[S3Store], Any], str, bytes]] = {
    "get": (lambda store: store.get("key"), "200 OK", b"body"),
    "a missing object": (lambda store: store.get("key"), "404 Not Found", NO_KEY),
    "list": (lambda store: store.list("k"), "200 OK", KEYS),
    "put": (lambda store: store.put("key", b""), "200 OK", b""),
}


@pytest.mark.parametrize("framed", [measured, chunked])
@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_that_is_cut_short_at_any_byte_is_asked_for_again(
    asked: str, framed: Callable[[str, bytes], bytes]
) -> None:
    act, status, body = ASKED[asked]
    cutter = Cutter(framed(status, body))
    store = S3Store("bucket", endpoint_url=cutter.endpoint, clock=FakeClock())
    try:
        found = [act(store)]
        while not cutter.is_done:
            found.append(act(store))
        now = store.now()
    finally:
        store.close()
        cutter.close()

    assert [each for each in found if each != found[-1]] == []
    assert len(found) > len(body)
    assert abs(now - TIME).total_seconds() < 5
