"""Where the S3 group measures: a SeaweedFS server behind a wire, and those who use it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter, process_time
from typing import Any

from attrs import evolve, frozen
from botocore.config import Config  # noqa: TID251 -- the floor is boto3 alone

from buquet import Queue
from buquet.store.s3_client import CONNECT_TIMEOUT, READ_TIMEOUT
from scripts.bench.s3_proxy import Wire, wire_to
from scripts.bench.settings import folder
from tests.s3_servers import S3Server, find_seaweedfs, run_seaweedfs

DOLLARS = {"put": 0.005 / 1000, "list": 0.005 / 1000, "get": 0.0004 / 1000, "delete": 0.0}
"""What AWS takes for a request, by its list prices."""

PUT_CLASS = ("put", "list")
"""The operations of the dear class."""

MOST_CONNECTIONS = 128


@frozen
class Site:
    """A server that is reached over a wire."""

    server: S3Server
    """As it is reached over the wire."""
    wire: Wire
    near: S3Server
    """The same without the wire."""

    def queue(self, prefix: str | None = None) -> Queue:
        """Return a queue; without a prefix, one that is empty."""
        return Queue(self.server.store(prefix, threads=MOST_CONNECTIONS))

    def raw_client(self, *, past_the_wire: bool = False) -> Any:
        """Return a boto3 client of the settings of buquet's own, with nothing around it."""
        client = (self.near if past_the_wire else self.server).client(
            config=Config(
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
                max_pool_connections=MOST_CONNECTIONS,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"total_max_attempts": 1, "mode": "standard"},
            )
        )
        client.meta.events.register_last("before-call.s3", _without_expect)
        return client


def _without_expect(params: dict[str, Any], **_: Any) -> None:
    """Save each write the round trip of `100-continue`, as buquet does."""
    params["headers"].pop("Expect", None)


@contextmanager
def site(latency_ms: float) -> Iterator[Site]:
    """Run a server behind a wire that adds so much to each round trip."""
    with folder() as home:
        os.environ.update(S3Server("").env)
        with run_seaweedfs(home) as server, wire_to(server.endpoint) as wire:
            wire.delay(latency_ms / 1000)
            yield Site(evolve(server, endpoint=wire.endpoint), wire, server)


@cache
def server_version() -> str:
    """Return the version of the server."""
    weed = find_seaweedfs()
    assert weed is not None
    told = subprocess.run([weed, "version"], capture_output=True, text=True, check=True).stdout
    return told.split()[2]  # version 8000GB 4.48 …


def put_class(requests: Counter[str]) -> int:
    """Return how many requests are of the dear class."""
    return sum(requests[operation] for operation in PUT_CLASS)


def dollars(requests: Counter[str]) -> float:
    """Return what requests cost by the list prices of AWS."""
    return sum(DOLLARS[operation] * count for operation, count in requests.items())


@frozen
class Spent:
    """What something took: time, this process's CPU time, and requests by operation."""

    seconds: float
    cpu: float
    requests: Counter[str]

    @property
    def cpu_per_request(self) -> float:
        """The seconds of CPU time that each request took in this process."""
        return self.cpu / self.requests.total()


def spent_on(site: Site, act: Callable[[], object]) -> Spent:
    """Do something, and return what it took."""
    before = site.wire.counted()
    begun, cpu = perf_counter(), process_time()
    act()
    seconds, cpu = perf_counter() - begun, process_time() - cpu
    return Spent(seconds, cpu, site.wire.counted() - before)
