"""The S3 servers that the tests run against, and what is needed to use one from anywhere."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
from attrs import frozen
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from buquet.store.s3 import S3Store

ACCESS_KEY = "buquet"
SECRET_KEY = "buquetsecret"
REGION = "us-east-1"

GRPC_OFFSET = 10_000
"""SeaweedFS opens a second port this far above each that it is told to use."""


@frozen
class S3Server:
    """A server with one bucket in it. Tests share the bucket, each under a prefix of its own."""

    endpoint: str
    bucket: str = "buquet-tests"

    @property
    def env(self) -> dict[str, str]:
        """What a subprocess must find in its environment to reach the server."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "BUQUET_ENDPOINT_URL": self.endpoint,
        }

    def url(self, prefix: str | None = None) -> str:
        """Return a URL for `open_store` and BUQUET_URL; without a prefix, under one of its own."""
        return f"s3://{self.bucket}/{new_prefix() if prefix is None else prefix}"

    def store(self, prefix: str | None = None, **options: Any) -> S3Store:
        """Return a store; without a prefix, under one of its own."""
        prefix = new_prefix() if prefix is None else prefix
        return S3Store(self.bucket, prefix, **{"endpoint_url": self.endpoint} | options)

    def client(self, **options: Any) -> Any:
        """Return a boto3 client of the tests' own."""
        return boto3.Session().client("s3", **{"endpoint_url": self.endpoint} | options)

    def make_bucket(self) -> bool:
        """Make the bucket, unless it is there, and write to it; tell whether that worked."""
        quick = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5)
        client = self.client(config=quick)
        try:
            with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=self.bucket)
            client.put_object(Bucket=self.bucket, Key="ready", Body=b"")
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


def new_prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


@contextmanager
def run_seaweedfs(folder: Path) -> Iterator[S3Server]:
    """Run SeaweedFS, a real S3 server that keeps to conditions under contention."""
    with run_mortal_seaweedfs(folder) as seaweedfs:
        yield seaweedfs.server


@contextmanager
def run_mortal_seaweedfs(folder: Path) -> Iterator[SeaweedFS]:
    """Run SeaweedFS, to be killed and started again."""
    for _ in range(3):  # another process may take a port between our looking and its opening
        seaweedfs = SeaweedFS(folder)
        if seaweedfs.start():
            break
        seaweedfs.kill()
    else:
        raise RuntimeError(f"SeaweedFS did not start: see {folder / 'weed.log'}.")
    try:
        yield seaweedfs
    finally:
        seaweedfs.kill()


class SeaweedFS:
    """A process of SeaweedFS, always with the same data and ports."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "weed.log"
        self._data = folder / secrets.token_hex(4)
        self._data.mkdir()
        self._ports = free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self.server = S3Server(f"http://127.0.0.1:{self._ports[-1]}")

    def start(self) -> bool:
        """Start it, and wait until it can be written to; tell whether it came to that."""
        self._process = self._spawn()
        for _ in range(150):
            try:
                self._process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                if self.server.make_bucket():
                    return True
            else:
                return False
        return False

    def kill(self) -> None:
        """End it at once, whatever it is at."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill it, and start it again on the same data afterwards."""
        self.kill()
        try:
            yield
        finally:
            assert self.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        weed = find_seaweedfs()
        assert weed is not None
        master, volume, filer, s3 = self._ports
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    weed,
                    "mini",
                    f"-dir={self._data}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-master.port={master}",
                    f"-volume.port={volume}",
                    f"-filer.port={filer}",
                    f"-s3.port={s3}",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    "-master.telemetry=false",
                    "-webdav=false",
                    "-admin.ui=false",
                ],
                cwd=self._data,
                env=os.environ
                | {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
                stdout=log,
                stderr=log,
            )


def find_seaweedfs() -> str | None:
    return shutil.which(
        "weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )


def free_ports(count: int) -> list[int]:
    """Find ports whose gRPC neighbours are free too, below those that the system gives out."""
    found: list[int] = []
    while len(found) < count:
        port = 11_000 + secrets.randbelow(11_000)
        if port not in found and is_free(port) and is_free(port + GRPC_OFFSET):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
