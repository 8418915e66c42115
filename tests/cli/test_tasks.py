import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from buquet import Queue, TaskStatus, Worker, connect
from buquet.testing import FakeClock
from tests.cli.test_workers import claim, record

Cli = Callable[..., Any]


def test_submit_prints_the_id_and_nothing_else(cli: Cli, queue: Queue) -> None:
    result = cli("submit", "-t", "send_reminder", "-i", '{"user_id": "123"}')

    assert result.exit_code == 0
    assert result.stderr == ""
    task = queue.get(result.stdout.strip())
    assert (task.task_type, task.input) == ("send_reminder", {"user_id": "123"})


def test_submit_hands_every_option_on(cli: Cli, queue: Queue) -> None:
    options = ["--ttl", "1h", "--delay", "5m", "--priority", "7", "--max-retries", "0"]
    result = cli("submit", "-t", "a", "--timeout", "1m30s", *options)

    task = queue.get(result.stdout.strip())
    assert task.available_at - task.created_at == timedelta(minutes=5)
    assert task.expires_at == task.available_at + timedelta(hours=1)
    assert (task.priority, task.max_retries, task.timeout_seconds) == (7, 0, 90)


def test_submit_takes_times_in_utc(cli: Cli, queue: Queue) -> None:
    result = cli(
        *("submit", "-t", "a", "--expires-at", "2099-12-24T17:00:00Z"),
        *("--schedule-at", "2099-12-24T17:00:00+02:00"),
    )

    task = queue.get(result.stdout.strip())
    assert task.expires_at == datetime(2099, 12, 24, 17, tzinfo=UTC)
    assert task.available_at == datetime(2099, 12, 24, 15, tzinfo=UTC)


def test_a_time_without_a_zone_is_local_time(process: Cli, queue: Queue) -> None:
    result = process(
        *("submit", "-t", "a", "--expires-at", "2099-12-24T17:00"), env={"TZ": "Europe/Berlin"}
    )

    task = queue.get(result.stdout.strip())
    assert task.expires_at == datetime(2099, 12, 24, 16, tzinfo=UTC)


def test_submit_reads_its_input_from_stdin(cli: Cli, queue: Queue) -> None:
    result = cli("submit", "-t", "a", "-i", "-", input='{"name": "Zoë"}'.encode())

    assert queue.get(result.stdout.strip()).input == {"name": "Zoë"}


def test_submit_reads_its_input_from_a_file(cli: Cli, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("[1, 2]")

    result = cli("submit", "-t", "a", "-i", f"@{tmp_path / 'in.json'}")

    assert queue.get(result.stdout.strip()).input == [1, 2]


def test_submit_warns_of_a_task_that_is_too_late_already(cli: Cli) -> None:
    result = cli("submit", "-t", "a", "--ttl", "0")

    assert result.exit_code == 0
    assert "will never run" in result.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["-t", "a", "-i", "{"], "not JSON"),
        (["-t", "a", "-i", "NaN"], "NaN is not JSON"),
        (["-t", "a", "-i", "@missing.json"], "missing.json"),
        (["-t", "a", "--ttl", "5 parsecs"], "not a duration"),
        (["-t", "a", "--expires-at", "tomorrow"], "not a time"),
        (["-t", "a", "--ttl", "1h", "--expires-at", "2099-01-01"], "not both"),
        (["-t", "a b"], "not a task type"),
        (["-t", "a", "--priority", "1000"], "--priority"),
        (["-t", "a", "--no-such-option"], "--no-such-option"),
        ([], "--type"),
    ],
)
def test_submit_refuses_what_makes_no_sense_and_stores_nothing(
    cli: Cli, queue: Queue, args: list[str], told: str
) -> None:
    result = cli("submit", *args)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(queue.list()) == []


def test_status_tells_the_deadline_both_ways(cli: Cli, queue: Queue) -> None:
    deadline = queue.now() + timedelta(hours=2, minutes=30, seconds=20)
    task = queue.submit("send_reminder", {"user_id": 1}, expires_at=deadline)

    result = cli("status", task.id)

    assert f"expires_at: {deadline:%Y-%m-%dT%H:%M:%SZ} (in 2h 30m)\n" in result.stdout
    assert "status: pending\n" in result.stdout
    assert 'input: {"user_id": 1}\n' in result.stdout


def test_status_shows_the_output_of_a_completed_task(cli: Cli, queue: Queue) -> None:
    worker = Worker(queue)
    worker.task("sum")(sum)
    task = queue.submit("sum", [1, 2])
    worker.drain()

    result = cli("status", task.id)

    assert "status: completed\n" in result.stdout
    assert "output: 3\n" in result.stdout


def test_history_tells_of_each_version(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a", expires_at=datetime(2099, 12, 24, 17, tzinfo=UTC))
    queue.mark_expired(task.id)

    first, second = cli("history", task.id).stdout.splitlines()

    assert first.startswith("Version 1: pending (created, expires_at: 2099-12-24T17:00:00Z)\t")
    assert second.startswith("Version 2: expired (expired_at: 20")


def test_history_says_what_it_has_not_kept(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a")
    for _ in range(30):
        queue.cancel(task.id)
        queue.replay(task.id)

    lines = cli("history", task.id).stdout.splitlines()

    assert lines[1] == "(versions 2 to 11 are not kept)"
    assert lines[2].startswith("Version 12: ")
    assert lines[-1].startswith("Version 61: ")


def test_list_shows_what_is_asked_for(cli: Cli, queue: Queue) -> None:
    expired, _ = queue.submit("fax"), queue.submit("fax")
    queue.mark_expired(expired.id)
    queue.cancel(queue.submit("letter").id)

    result = cli("list", "--status", "EXPIRED", "--type", "fax")

    assert result.exit_code == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[:3] for row in rows] == [[expired.id, "expired", "fax"]]


def test_list_never_shows_payloads_or_what_may_quote_them(cli: Cli, queue: Queue) -> None:
    worker = Worker(queue)

    @worker.task("login")
    def login(input: dict[str, str]) -> None:
        raise ValueError(f"wrong password {input['password']}")

    queue.submit("login", {"password": "s3cr3t"}, max_retries=0)
    worker.drain()

    assert "failed" in cli("list").stdout
    assert "s3cr3t" not in cli("list").output + cli("list", "--json").output


def test_list_says_when_there_is_more(cli: Cli, queue: Queue) -> None:
    queue.submit_many([("a", n) for n in range(120)])

    first = cli("list")
    two = cli("list", "--limit", "2", "--json")
    every = cli("list", "--all")
    exact = cli("list", "--limit", "120")

    assert len(first.stdout.splitlines()) == 50
    assert "There is more" in first.stderr
    assert len(json.loads(two.stdout)) == 2
    assert "There is more" in two.stderr
    assert len(every.stdout.splitlines()) == len(exact.stdout.splitlines()) == 120
    assert every.stderr == exact.stderr == ""


def test_list_reads_every_page(cli: Cli, queue: Queue) -> None:
    past = queue.now() - timedelta(minutes=1)
    queue.submit_many([("a", None) for _ in range(2345)], batch_size=2, expires_at=past)
    assert cli("sweep").exit_code == 0

    result = cli("list", "--status", "expired", "--all", "--json")

    assert len({task["id"] for task in json.loads(result.stdout)}) == 2345


def test_cancel_shows_what_became_of_the_task(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a")

    result = cli("cancel", task.id)

    assert result.exit_code == 0
    assert result.stdout.startswith(f"{task.id}\tcancelled\ta\t")
    assert queue.get(task.id).status is TaskStatus.CANCELLED


def test_cancel_of_a_running_task_says_that_it_is_a_request(cli: Cli, queue: Queue) -> None:
    begun, go_on = threading.Event(), threading.Event()
    worker = Worker(queue, threads=1)

    @worker.task("long")
    def wait(input: Any) -> None:
        begun.set()
        go_on.wait(30)

    task = queue.submit("long")
    thread = threading.Thread(target=lambda: worker.run(burst=True))
    thread.start()
    begun.wait(30)
    result = cli("cancel", task.id)
    go_on.set()
    thread.join()

    assert result.exit_code == 0
    assert result.stdout.startswith(f"{task.id}\trunning\tlong\t")
    assert "its handler has been asked to stop" in result.stderr
    assert "cancel_requested: yes" in cli("status", task.id).stdout


def test_status_shows_the_progress_of_a_running_task(cli: Cli, queue: Queue) -> None:
    worker = Worker(queue, threads=1)
    shown: list[Any] = []

    @worker.task("long")
    def count(input: Any, context: Any) -> None:
        shown.append(json.loads(cli("status", context.task.id, "--json").stdout)["progress"])
        context.report_progress(0.4, "rows 400\x1b[2J of 1000")
        assert worker._run is not None
        worker._run.heartbeat.beat()
        shown.append(json.loads(cli("status", context.task.id, "--json").stdout)["progress"])
        shown.append(cli("status", context.task.id).stdout)

    task = queue.submit("long")
    worker.drain()

    nothing, as_json, lines = shown
    assert nothing is None
    assert (as_json["fraction"], as_json["at"][-1]) == (0.4, "Z")
    assert "\nprogress: 40 % rows 400\\x1b[2J of 1000 (" in lines
    assert "progress:" not in cli("status", task.id).stdout


def test_cancel_by_type_cancels_all_of_it_and_tells_how_many(cli: Cli, queue: Queue) -> None:
    tasks = queue.submit_many([("a", 1), ("a", 2), ("b", 3)])

    result = cli("cancel", "--type", "a")

    assert result.exit_code == 0
    assert result.stdout == "2 tasks cancelled; 0 running asked to stop.\n"
    statuses = [queue.get(task.id).status for task in tasks]
    assert statuses == [TaskStatus.CANCELLED, TaskStatus.CANCELLED, TaskStatus.PENDING]


def test_a_dry_run_of_cancel_tells_what_would_be_and_changes_nothing(
    cli: Cli, queue: Queue
) -> None:
    task = queue.submit("a")

    told = cli("cancel", "-t", "a", "--dry-run").stdout
    found = json.loads(cli("cancel", "-t", "a", "--dry-run", "--json").stdout)

    assert told == "1 task would be cancelled; 0 running would be asked to stop.\n"
    assert (found["dry_run"], found["cancelled"]) == (True, [task.id])
    assert queue.get(task.id).status is TaskStatus.PENDING


@pytest.mark.parametrize("given", [[], ["abcd", "-t", "a"], ["abcd", "--dry-run"]], ids=str)
def test_cancel_wants_ids_or_a_type(cli: Cli, given: list[str]) -> None:
    result = cli("cancel", *given)

    assert (result.exit_code, result.stdout) == (2, "")


def test_replay_makes_a_cancelled_task_pending_with_a_new_deadline(
    cli: Cli, queue: Queue, url: str
) -> None:
    with connect(url, clock=FakeClock()) as earlier:
        task = earlier.submit("a", ttl_seconds=60)
        earlier.cancel(task.id)

    refused = cli("replay", task.id)
    allowed = cli("replay", task.id, "--ttl", "1h")

    assert (refused.exit_code, allowed.exit_code) == (4, 0)
    assert "give it a new one" in refused.stderr
    assert queue.get(task.id).status is TaskStatus.PENDING


def test_resubmit_prints_the_id_of_a_new_task_like_the_expired_one(cli: Cli, queue: Queue) -> None:
    old = queue.submit("a", {"n": 1}, ttl_seconds=0, priority=5)
    queue.mark_expired(old.id)

    result = cli("resubmit", old.id, "--ttl", "1h")

    new = queue.get(result.stdout.strip())
    assert (new.input, new.priority, new.status) == ({"n": 1}, 5, TaskStatus.PENDING)
    assert new.id != old.id


def test_archive_takes_a_task_out_of_the_list_of_expired_ones(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a")
    queue.mark_expired(task.id)

    assert cli("archive", task.id).exit_code == 0

    assert cli("list", "--status", "expired").stdout == ""
    assert cli("list", "--status", "archived").stdout.startswith(task.id)


def test_one_of_many_that_can_not_be_changed_does_not_stop_the_rest(cli: Cli, queue: Queue) -> None:
    first, second = queue.submit("a"), queue.submit("a")

    result = cli("cancel", first.id, "00000000-0000-0000-0000-000000000000", second.id, "--json")

    assert result.exit_code == 1
    assert [each["id"] for each in json.loads(result.stdout)] == [first.id, second.id]
    assert result.stderr.startswith("buquet: There is no task")


# --- many ids


def test_ids_are_read_from_stdin(cli: Cli, queue: Queue) -> None:
    tasks = queue.submit_many([("a", n) for n in range(3)])
    queue.cancel_many(task.id for task in tasks)
    piped = "\n".join(task.id for task in tasks[:2])

    result = cli("replay", "-", tasks[2].id, input=piped)

    assert result.exit_code == 0
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [t.id for t in tasks]
    assert {queue.get(task.id).status for task in tasks} == {TaskStatus.PENDING}


@pytest.mark.parametrize("command", ["cancel", "replay", "resubmit", "archive"])
def test_no_ids_on_stdin_are_no_error(cli: Cli, queue: Queue, command: str) -> None:
    queue.submit("a")

    for nothing in ("", "\n"):
        result = cli(command, "-", input=nothing)
        assert (result.exit_code, result.output) == (0, "")
    assert cli(command, "-", "--json", input="").stdout == "[]\n"


def test_the_list_of_failed_tasks_can_be_piped_into_replay(
    cli: Cli, queue: Queue, process: Cli
) -> None:
    tasks = queue.submit_many([("a", n) for n in range(250)])
    queue.cancel_many(task.id for task in tasks)
    listed = process("list", "-s", "cancelled", "--all").stdout
    ids = "".join(line.split("\t")[0] + "\n" for line in listed.splitlines())

    result = process("replay", "-", "--json", input=ids)

    assert result.returncode == 0
    assert len(json.loads(result.stdout)) == 250
    assert {task.status for task in queue.list()} == {TaskStatus.PENDING}


def test_resubmit_of_many_prints_their_new_ids_in_order(cli: Cli, queue: Queue) -> None:
    tasks = queue.submit_many([("a", n) for n in range(3)])
    queue.cancel_many(task.id for task in tasks)

    new = cli("resubmit", *(task.id for task in tasks)).stdout.split()

    assert [queue.get(task_id).input for task_id in new] == [0, 1, 2]


def test_an_expired_task_is_referred_to_resubmit(cli: Cli, queue: Queue) -> None:
    task = queue.submit("a")
    queue.mark_expired(task.id)

    result = cli("replay", task.id)

    assert result.exit_code == 4
    assert "Resubmit it with a new deadline." in result.stderr


# --- what a list and a status show


def test_list_takes_several_statuses(cli: Cli, queue: Queue) -> None:
    queue.submit("pending")
    queue.cancel(queue.submit("cancelled").id)
    queue.mark_expired(queue.submit("expired").id)

    shown = cli("list", "-s", "cancelled", "--status", "expired").stdout

    assert [line.split("\t")[1] for line in shown.splitlines()] == ["expired", "cancelled"]


def test_a_list_of_none_says_that_there_is_more(cli: Cli, queue: Queue) -> None:
    queue.submit("a")

    result = cli("list", "--limit", "0")

    assert result.stdout == ""
    assert result.stderr.startswith("There is more: none were asked for.")


def test_status_shows_the_lease_that_the_worker_has_renewed(cli: Cli, queue: Queue) -> None:
    task = queue.submit("email")
    claim(queue, task.id)
    until = queue.now() + timedelta(days=1)
    record(queue, running=(task.id,), lease_expires_at=until)

    shown = cli("status", task.id).stdout
    told = json.loads(cli("status", task.id, "--json").stdout)

    assert f"lease_expires_at: {until:%Y-%m-%dT%H:%M:%SZ} (in " in shown
    assert told["lease_expires_at"] == f"{until:%Y-%m-%dT%H:%M:%S.%fZ}"
