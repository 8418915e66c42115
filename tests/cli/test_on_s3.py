import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.s3_servers import S3Server

Cli = Callable[..., Any]


def test_the_commands_do_the_same_on_s3(
    cli: Cli, process: Cli, worker_module: str, seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = seaweed.url()
    for name, value in seaweed.env.items():
        monkeypatch.setenv(name, value)
    task_id = cli("submit", "-t", "good", "-i", "1", "--url", url).stdout.strip()
    late = cli("submit", "-t", "fax", "--ttl", "0", "--url", url).stdout.strip()

    worked = process("worker", worker_module, "--burst", "--json", "--url", url, env=seaweed.env)
    cli("sweep", "--url", url)

    assert json.loads(worked.stdout)["completed"] == 1
    assert 'output: {"got": 1}\n' in cli("status", task_id[:12], "--url", url).stdout
    assert cli("list", "-s", "expired", "--url", url).stdout.startswith(f"{late}\texpired\tfax\t")


def test_a_worker_does_not_wait_for_a_bucket_that_is_not_there(
    process: Cli, worker_module: str, seaweed: S3Server
) -> None:
    result = process("worker", worker_module, "--url", "s3://no-such-bucket-here", env=seaweed.env)

    assert result.returncode == 5
    assert "There is no bucket 'no-such-bucket-here'" in result.stderr
    assert "tries again" not in result.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "s3://no-such-bucket-here"}, "no-such-bucket-here"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "buquet: "),
    ],
)
def test_a_bucket_that_can_not_be_used_is_told_of_in_a_line(
    process: Cli, seaweed: S3Server, change: dict[str, str], told: str
) -> None:
    env = {"BUQUET_URL": seaweed.url()} | seaweed.env | change

    result = process("list", "--url", env.pop("url", env["BUQUET_URL"]), env=env)

    assert (result.returncode, result.stdout) == (5, "")
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
