"""A short run of the soak: see scripts/soak.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.soak import Settings, soak
from tests.s3_servers import S3Server


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "seaweedfs"])
def test_no_task_is_lost_or_ends_twice_whatever_is_done_to_the_workers(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    environment = dict(os.environ) | {"BUQUET_URL": f"sqlite:///{tmp_path / 'queue.db'}"}
    if store == "seaweedfs":
        server: S3Server = request.getfixturevalue("seaweed")
        environment |= server.env | {"BUQUET_URL": server.url()}

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        found = soak(Settings(seconds=8, store=store, seed=3), environment, tmp_path / "log")

    assert found.tasks > 100
    assert (found.lost, found.twice) == ((), ())
    assert found.acts.keys() == {"kills", "stops", "holds"}
    assert found.is_good
