"""SeaweedFS with identities, each of which may do what a policy allows and nothing else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from attrs import frozen
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from buquet import Queue
from buquet.store.s3 import S3Store
from tests.s3_servers import REGION, find_seaweedfs, free_ports

BUCKET = "my-bucket"
ROOT = "root"

Policy = dict[str, Any]


@frozen
class Guarded:
    """A server with one bucket, and an identity for each policy, called as it is."""

    endpoint: str

    def session(self, name: str) -> boto3.Session:
        """The credentials of an identity."""
        return boto3.Session(name, _secret(name), region_name=REGION)

    def client(self, name: str) -> Any:
        """A boto3 client of an identity."""
        once = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5)
        return self.session(name).client("s3", endpoint_url=self.endpoint, config=once)

    def queue(self, name: str, prefix: str = "prefix") -> Queue:
        """The queue, as an identity may use it."""
        session = self.session(name)
        store = S3Store(BUCKET, prefix, session=session, endpoint_url=self.endpoint)
        return Queue(store)

    def make_bucket(self) -> bool:
        """Make the bucket; tell whether that worked."""
        client = self.client(ROOT)
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="prefix/locks/none", Body=b"")
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


@contextmanager
def run_guarded(folder: Path, policies: Mapping[str, Policy]) -> Iterator[Guarded]:
    """Run the server until the block is left."""
    master, volume, filer, s3 = free_ports(4)
    server = Guarded(f"http://127.0.0.1:{s3}")
    weed = find_seaweedfs()
    assert weed is not None
    settings = folder / "s3.json"
    settings.write_text(json.dumps(_settings(policies)))
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(weed, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
                *(f"-s3.port={s3}", f"-s3.config={settings}", "-s3.port.iceberg=0"),
                *("-s3.port.lance=0", "-master.telemetry=false", "-webdav=false"),
                "-admin.ui=false",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        _await(process, server)
        yield server
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], server: Guarded) -> None:
    for _ in range(150):
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if server.make_bucket():
                return
        else:
            break
    raise RuntimeError("SeaweedFS did not start with these policies.")


def _settings(policies: Mapping[str, Policy]) -> dict[str, Any]:
    everything = {"actions": ["Admin", "Read", "Write", "List"]}
    return {
        "identities": [
            _identity(ROOT) | everything,
            *(_identity(name) | {"policyNames": [name]} for name in policies),
        ],
        "policies": [
            {"name": name, "content": json.dumps(policy)} for name, policy in policies.items()
        ],
    }


def _identity(name: str) -> dict[str, Any]:
    return {"name": name, "credentials": [{"accessKey": name, "secretKey": _secret(name)}]}


def _secret(name: str) -> str:
    return f"{name}-secret"
