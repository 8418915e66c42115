"""A wire of a chosen length to an S3 server: it delays each request, and counts them by operation.

It runs in a process of its own and passes bytes on as they come. It looks at no more than the first
line of a request, so that it costs little beside what is measured.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Array, c_double, c_uint64
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray, RawValue
from urllib.parse import urlsplit

from attrs import frozen

OPERATIONS = ("get", "put", "list", "delete")
METHODS = {b"GET": "get", b"PUT": "put", b"POST": "delete", b"DELETE": "delete"}

START_TIMEOUT = 30


@frozen
class Wire:
    """What the proxy shares with whoever measures; it can be handed to another process."""

    endpoint: str
    counts: Array[c_uint64]
    seconds: c_double

    def delay(self, seconds: float) -> None:
        """Have each request arrive so much later from now on."""
        self.seconds.value = seconds

    def counted(self) -> Counter[str]:
        """Return how many requests have been made so far, by operation."""
        return Counter(dict(zip(OPERATIONS, self.counts, strict=True)))


@contextmanager
def wire_to(endpoint: str) -> Iterator[Wire]:
    """Run a proxy in front of a server."""
    spawning = multiprocessing.get_context("spawn")
    counts = RawArray(c_uint64, len(OPERATIONS))
    seconds = RawValue(c_double, 0.0)
    ours, theirs = spawning.Pipe()
    process = spawning.Process(
        target=_run, args=(endpoint, counts, seconds, theirs), name="proxy", daemon=True
    )
    process.start()
    try:
        if not ours.poll(START_TIMEOUT):
            raise RuntimeError(f"The proxy did not start within {START_TIMEOUT} seconds.")
        yield Wire(f"http://127.0.0.1:{ours.recv()}", counts, seconds)
    finally:
        process.kill()
        process.join()


def _run(endpoint: str, counts: Array[c_uint64], seconds: c_double, parent: Connection) -> None:
    asyncio.run(_serve(endpoint, counts, seconds, parent))


async def _serve(
    endpoint: str, counts: Array[c_uint64], seconds: c_double, parent: Connection
) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Upstream(loop, endpoint, counts, seconds), "127.0.0.1", 0
    )
    parent.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class Upstream(asyncio.Protocol):
    """From a client to the server: passes requests on, each so much later."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: str,
        counts: Array[c_uint64],
        seconds: c_double,
    ) -> None:
        self.client: asyncio.Transport
        self._loop = loop
        self._endpoint = endpoint
        self._counts = counts
        self._seconds = seconds
        self._server: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.client = transport
        self._connecting = self._loop.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        operation = _operation(data)
        if operation is not None:
            self._counts[OPERATIONS.index(operation)] += 1
        self._later(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._server is not None:
            # What the client sent before it left is still under way.
            self._loop.call_later(self._seconds.value, self._server.close)

    def _later(self, data: bytes) -> None:
        if self._seconds.value:
            self._loop.call_later(self._seconds.value, self._pass_on, data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self._server is None:
            self._early.append(data)
        else:
            self._server.write(data)

    async def _connect(self) -> None:
        address = urlsplit(self._endpoint)
        try:
            transport, _ = await self._loop.create_connection(
                lambda: Downstream(self.client), address.hostname, address.port
            )
        except OSError:
            self.client.abort()  # the client sees what it would see without us
            return
        self._server = transport
        for data in self._early:
            transport.write(data)
        if self.client.is_closing():
            transport.close()


class Downstream(asyncio.Protocol):
    """From the server back to a client: at once."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._client.close()


def _operation(data: bytes) -> str | None:
    """Return which operation begins here; None if this is the rest of a request."""
    method, _, rest = data.partition(b" ")
    operation = METHODS.get(method)
    if operation == "get" and b"list-type=2" in rest.partition(b" ")[0]:
        return "list"
    return operation
