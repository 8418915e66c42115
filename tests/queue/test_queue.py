"""Finding and changing tasks, and being told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from buquet import (
    CannotArchive,
    CannotCancel,
    CannotExpire,
    CannotReplay,
    CannotResubmit,
    Contention,
    InvalidOptions,
    PermanentError,
    Queue,
    RescheduleError,
    RetryableError,
    RetryPolicy,
    Stats,
    Task,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskNotFound,
    TaskStatus,
    Worker,
    connect,
)
from buquet.core.keys import BATCHES, ENDED, READY, batch_key, new_batch_id, task_id
from buquet.store import Change, Conflict
from buquet.testing import FaultyStore
from buquet.testing.clock import START
from buquet.worker.jobs import Candidate
from tests.helpers import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def queue(world: World) -> Queue:
    return world.queue()


def fail(queue: Queue, task_type: str = "ok") -> None:
    """Have a worker run what is due and fail it."""
    worker = Worker(queue, check=False)

    @worker.task(task_type)
    def broken(input: Any) -> None:
        raise PermanentError("broken")

    worker.drain()


def in_status(world: World, queue: Queue, status: TaskStatus, **options: Any) -> Task:
    """A task that has come to a status."""
    task = queue.submit("ok", {"n": 1}, **options)
    match status:
        case TaskStatus.RUNNING:
            task = while_running(queue, lambda: queue.get(task.id))
        case TaskStatus.COMPLETED:
            world.worker(queue).drain()
        case TaskStatus.FAILED:
            fail(queue)
        case TaskStatus.CANCELLED:
            queue.cancel(task.id)
        case TaskStatus.EXPIRED:
            queue.mark_expired(task.id)
        case TaskStatus.ARCHIVED:
            fail(queue)
            queue.archive(task.id)
    return queue.get(task.id) if status is not TaskStatus.RUNNING else task


def while_running(queue: Queue, act: Callable[[], Any]) -> Any:
    """Do something while a handler runs what is due."""
    found = []
    worker = Worker(queue, check=False)

    @worker.task("ok")
    def run(input: Any) -> None:
        found.append(act())

    worker.drain()
    return found[0]


# --- one task


NOWHERE = [new_batch_id(77 << 64), "nonsense", "", "../../etc/passwd"]


@pytest.mark.parametrize("unknown", NOWHERE)
def test_what_does_not_exist_is_not_found_by_any_act(queue: Queue, unknown: str) -> None:
    acts: list[Callable[[str], object]] = [
        queue.get,
        queue.history,
        queue.cancel,
        queue.mark_expired,
        queue.replay,
        queue.archive,
        queue.resubmit,
    ]
    for act in acts:
        with pytest.raises(TaskNotFound) as missing:
            act(unknown)
        assert missing.value.task_id == unknown


def test_a_number_that_a_batch_does_not_have_is_not_found(queue: Queue) -> None:
    task = queue.submit("ok", 1)

    with pytest.raises(TaskNotFound):
        queue.get(task_id(task.batch_id, 1))
    with pytest.raises(TaskNotFound):
        queue.cancel(task_id(task.batch_id, 1))


def test_an_id_may_be_pasted_in_capitals(queue: Queue) -> None:
    task = queue.submit("ok", 1)

    assert queue.get(f" {task.id.upper()} ") == task
    assert queue.cancel(task.id.upper()).status is TaskStatus.CANCELLED


def test_the_history_tells_who_did_what_and_when(world: World, queue: Queue) -> None:
    task = queue.submit("ok", 1)
    world.clock.advance(seconds=5)
    fail(queue)
    world.clock.advance(seconds=5)
    queue.replay(task.id, by="ann")
    queue.cancel(task.id, by="bob")

    history = queue.history(task.id)

    assert [revision.version for revision in history] == [1, 2, 3, 4, 5]
    assert [revision.event for revision in history] == [
        "created", "claimed", "failed", "replayed", "cancelled"
    ]  # fmt: skip
    assert [revision.by for revision in history[3:]] == ["ann", "bob"]
    assert history[2].details["error"].startswith("PermanentError: broken")
    assert [(each.at - task.created_at).seconds for each in history] == [0, 5, 5, 10, 10]


ALLOWED: dict[str, tuple[set[TaskStatus], type[Exception]]] = {
    "cancel": ({TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.CANCELLED}, CannotCancel),
    "mark_expired": ({TaskStatus.PENDING}, CannotExpire),
    "replay": ({TaskStatus.FAILED, TaskStatus.CANCELLED}, CannotReplay),
    "archive": ({status for status in TaskStatus if status.is_final}, CannotArchive),
    "resubmit": ({status for status in TaskStatus if status.is_final}, CannotResubmit),
}


@pytest.mark.parametrize("status", [status for status in TaskStatus if status != "running"])
@pytest.mark.parametrize("act", ALLOWED)
def test_an_act_that_the_status_does_not_allow_is_refused_and_writes_nothing(
    world: World, queue: Queue, act: str, status: TaskStatus
) -> None:
    task = in_status(world, queue, status)
    world.clock.advance(seconds=1)
    allowed, error = ALLOWED[act]

    if status in allowed:
        getattr(queue, act)(task.id)
    else:
        with pytest.raises(error, match=f"is {status}, so it cannot"):
            getattr(queue, act)(task.id)
        assert queue.get(task.id) == task
    assert world.missing_entries() == set()


@pytest.mark.parametrize("act", ["mark_expired", "replay", "archive", "resubmit"])
def test_a_running_task_is_left_to_its_worker(queue: Queue, act: str) -> None:
    task = queue.submit("ok", 1)

    def refused() -> None:
        with pytest.raises(ALLOWED[act][1], match="is running"):
            getattr(queue, act)(task.id)

    while_running(queue, refused)

    assert queue.get(task.id).status is TaskStatus.COMPLETED


def test_cancelling_a_running_task_is_a_request_that_its_handler_may_overlook(
    queue: Queue,
) -> None:
    task = queue.submit("ok", 1)

    asked = while_running(queue, lambda: queue.cancel(task.id, by="ann"))

    assert (asked.status, asked.cancel_requested, asked.cancelled_by) == ("running", True, "ann")
    done = queue.get(task.id)
    assert (done.status, done.cancel_requested) == (TaskStatus.COMPLETED, True)


def test_what_is_late_is_found_expired_by_whoever_touches_it(world: World, queue: Queue) -> None:
    tasks = queue.submit_many([("ok", 1), ("ok", 2)], ttl_seconds=5)
    world.clock.advance(seconds=5)

    with pytest.raises(CannotCancel, match="is expired"):
        queue.cancel(tasks[0].id)

    assert [queue.get(task.id).status for task in tasks] == ["expired", "expired"]
    assert queue.list("expired").__next__().id in {task.id for task in tasks}


def test_marking_a_task_expired_that_is_late_anyway_is_fine(world: World, queue: Queue) -> None:
    task = queue.submit("ok", 1, ttl_seconds=5)
    world.clock.advance(seconds=9)

    marked = queue.mark_expired(task.id)

    assert (marked.status, marked.version) == (TaskStatus.EXPIRED, 2)
    assert marked.expired_at == world.clock.now()


def test_a_replayed_task_runs_again_under_its_id(world: World, queue: Queue) -> None:
    task = queue.submit("ok", {"n": 1}, ttl_seconds=60)
    fail(queue)
    world.clock.advance(minutes=5)

    with pytest.raises(CannotReplay, match="deadline"):
        queue.replay(task.id)
    with pytest.raises(InvalidOptions):
        queue.replay(task.id, ttl_seconds=-1)
    again = queue.replay(task.id, ttl_seconds=60)

    assert again.expires_at == world.clock.now() + timedelta(seconds=60)
    world.worker(queue).drain()
    assert queue.get(task.id).output == {"n": 1}
    assert queue.get(task.id).attempt == 1


def test_an_expired_task_is_submitted_anew_under_another_id(world: World, queue: Queue) -> None:
    task = queue.submit("ok", {"n": 1}, ttl_seconds=1, priority=9, max_retries=1)
    world.clock.advance(seconds=1)
    world.sweeper(queue).sweep_once()

    with pytest.raises(CannotReplay, match="is expired"):
        queue.replay(task.id, ttl_seconds=60)
    again = queue.resubmit(task.id, ttl_seconds=60, priority=3)

    assert again.id != task.id
    assert (again.input, again.priority, again.max_retries) == ({"n": 1}, 3, 1)
    assert again.expires_at == world.clock.now() + timedelta(seconds=60)
    assert queue.get(task.id).status is TaskStatus.EXPIRED
    with pytest.raises(TypeError, match="expires_in"):
        queue.resubmit(task.id, expires_in=5)  # type: ignore[call-arg]


def test_an_archived_task_leaves_the_lists_and_keeps_its_error(world: World, queue: Queue) -> None:
    task = in_status(world, queue, TaskStatus.FAILED)

    queue.archive(task.id)

    assert list(queue.list("failed")) == []
    assert [found.id for found in queue.list("archived")] == [task.id]
    with pytest.raises(TaskFailed, match="broken"):
        queue.get(task.id).result()


def test_each_end_has_its_own_status_and_its_own_error(world: World, queue: Queue) -> None:
    ends = {
        TaskStatus.CANCELLED: TaskCancelled,
        TaskStatus.EXPIRED: TaskExpired,
        TaskStatus.FAILED: TaskFailed,
    }
    tasks = {status: in_status(world, queue, status) for status in ends}

    for status, error in ends.items():
        assert queue.get(tasks[status].id).status is status
        assert [found.id for found in queue.list(status)] == [tasks[status].id]
        with pytest.raises(error):
            queue.get(tasks[status].id).result()


def test_a_deadline_is_the_same_after_any_number_of_retries_and_delays(
    world: World, queue: Queue
) -> None:
    deadline = world.clock.now() + timedelta(seconds=600, microseconds=123_457)
    task = queue.submit("ok", 1, expires_at=deadline, max_retries=9)
    worker = Worker(queue, check=False)

    @worker.task("ok")
    def moody(input: Any, context: Any) -> None:
        if context.task.version % 4 == 0:
            raise RescheduleError(1)
        raise ValueError("again")

    for _ in range(6):
        worker.drain()
        world.clock.advance(seconds=30)
        assert queue.get(task.id).expires_at == deadline

    assert queue.get(task.id).version > 8


def test_a_change_that_others_are_faster_with_each_time_gives_up(world: World) -> None:
    class Busy(FaultyStore):
        """A store in which somebody else always gets in between."""

        def commit(self, change: Change) -> str | Conflict:
            stored = self.store.get(change.key)
            if change.if_match and stored:
                self.store.put(change.key, stored.body)
            return super().commit(change)

    task = world.queue().submit("ok", 1)

    with pytest.raises(Contention, match="Nothing was written"):
        world.queue(Busy(world.store)).cancel(task.id)
    assert world.queue().get(task.id) == task


# --- lists


def test_tasks_are_listed_newest_first(world: World, queue: Queue) -> None:
    tasks = []
    for number in range(5):
        tasks.append(queue.submit("ok", number))
        world.clock.advance(seconds=1)

    assert [task.input for task in queue.list()] == [4, 3, 2, 1, 0]
    assert [task.input for task in queue.list("pending")] == [4, 3, 2, 1, 0]
    assert [task.input for task in queue.list(limit=2)] == [4, 3]
    assert list(queue.list(limit=0)) == []


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
def test_what_ended_last_is_listed_first(world: World, queue: Queue, status: str) -> None:
    tasks = [queue.submit("ok", number) for number in range(6)]
    order = [3, 0, 5, 1]
    for number in order:
        act = {"cancelled": queue.cancel, "expired": queue.mark_expired}.get(status)
        if act is None:
            queue.cancel(tasks[number].id)
            queue.replay(tasks[number].id)
            fail_one(queue, tasks[number])
        else:
            act(tasks[number].id)
        world.clock.advance(minutes=1)

    assert [task.input for task in queue.list(status)] == order[::-1]


def fail_one(queue: Queue, wanted: Task) -> None:
    """Have a worker fail one task, and put off all others."""
    worker = Worker(queue, check=False)

    @worker.task("ok")
    def choosy(input: Any, context: Any) -> None:
        if context.task.id == wanted.id:
            raise PermanentError("no")
        raise RescheduleError(0.001)

    for _ in range(3):
        if queue.get(wanted.id).status is not TaskStatus.PENDING:
            return
        worker.drain()


def test_tasks_of_one_batch_that_ended_in_one_minute_are_listed_newest_first(
    world: World, queue: Queue
) -> None:
    tasks = queue.submit_many([("ok", number) for number in range(4)])
    for number in (2, 0, 3):
        queue.cancel(tasks[number].id)
        world.clock.advance(seconds=5)

    assert [task.input for task in queue.list("cancelled")] == [3, 0, 2]


def test_a_list_can_be_of_one_type(world: World, queue: Queue) -> None:
    for number in range(3):
        queue.submit("ok", number)
        late = queue.submit("email", number)
    queue.mark_expired(late.id)

    assert {task.task_type for task in queue.list(task_type="email")} == {"email"}
    assert [task.id for task in queue.list("expired", "email")] == [late.id]
    assert list(queue.list("expired", "ok")) == []
    assert len(list(queue.list(TaskStatus.PENDING, "email"))) == 2


def test_a_list_of_a_status_that_does_not_exist_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOptions, match=r"no status 'lost'.*expired"):
        queue.list("lost")
    with pytest.raises(InvalidOptions, match="limit"):
        queue.list(limit=-1)


def test_running_tasks_are_listed_while_they_run(queue: Queue) -> None:
    task = queue.submit("ok", 1)

    found = while_running(queue, lambda: [each.id for each in queue.list("running")])

    assert found == [task.id]
    assert list(queue.list("running")) == []
    assert [each.id for each in queue.list("completed")] == [task.id]


def test_ten_expired_among_a_thousand_are_listed_in_a_dozen_calls(world: World) -> None:
    queue = world.queue()
    for number in range(99):
        queue.submit_many([("ok", number) for _ in range(10)])
    late = [queue.submit("ok", number, ttl_seconds=1) for number in range(10)]
    world.clock.advance(seconds=1)
    world.sweeper().sweep_once()
    store = FaultyStore(world.store)

    found = list(world.queue(store).list("expired"))

    assert {task.id for task in found} == {task.id for task in late}
    assert len(store.calls) <= 12


def test_a_batch_is_read_once_for_all_its_ended_tasks(world: World, queue: Queue) -> None:
    tasks = queue.submit_many([("ok", number) for number in range(30)])
    for task in tasks:
        queue.cancel(task.id)
        world.clock.advance(minutes=1)
    store = FaultyStore(world.store)

    assert [task.input for task in world.queue(store).list("cancelled")] == list(range(30))[::-1]
    assert [call.op for call in store.calls] == ["list", "get"]


def test_a_list_reads_no_further_than_it_is_asked_to(world: World, queue: Queue) -> None:
    for number in range(20):
        queue.submit("ok", number)
        world.clock.advance(seconds=1)
    store = FaultyStore(world.store)

    list(world.queue(store).list("pending", limit=3))

    assert [call.op for call in store.calls] == ["list", "get", "get", "get"]


@pytest.mark.parametrize("junk", [b"junk", b"", b"{}", b'{"id": 5}'])
def test_a_damaged_batch_in_the_middle_is_passed_over_with_a_warning(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    tasks = []
    for number in range(3):
        tasks.append(queue.submit("ok", number))
        world.clock.advance(seconds=1)
    queue.mark_expired(tasks[1].id)
    world.store.put(batch_key(tasks[1].id), junk)

    with caplog.at_level(logging.WARNING):
        assert [task.input for task in queue.list()] == [2, 0]
        assert list(queue.list("expired")) == []
        assert queue.stats().ended[TaskStatus.EXPIRED] == {}

    assert tasks[1].id in caplog.text


def test_a_batch_under_the_wrong_key_is_not_taken_for_another(world: World, queue: Queue) -> None:
    task, other = queue.submit("ok", 1), new_batch_id(5 << 64)
    stored = world.store.get(batch_key(task.id))
    assert stored is not None
    world.store.put(batch_key(other), stored.body)

    assert [each.id for each in queue.list()] == [task.id]


def test_a_hint_that_leads_nowhere_is_passed_over_and_tidied_when_it_is_old(
    world: World, queue: Queue
) -> None:
    task = in_status(world, queue, TaskStatus.FAILED)
    queue.replay(task.id)
    [hint] = [each.key for each in world.store.list(ENDED)]

    assert list(queue.list("failed")) == []
    assert hint in world.index()
    world.clock.advance(hours=1, seconds=1)
    assert list(queue.list("failed")) == []
    assert hint not in world.index()


def test_strange_objects_in_the_store_hurt_no_list(world: World, queue: Queue) -> None:
    task = queue.submit("ok", 1)
    for key in ("ready/x", "ended/failed/x", "tasks/x.json", "tasks/", "workers/x", "x"):
        world.store.put(key, b"?")

    assert [each.id for each in queue.list()] == [task.id]
    assert [each.id for each in queue.list("pending")] == [task.id]
    assert list(queue.list("failed")) == []
    assert queue.stats().unfinished["ok"].ready == 1


# --- figures


def test_figures_tell_what_is_ready_scheduled_running_and_ended(world: World, queue: Queue) -> None:
    queue.submit_many([("ok", number) for number in range(5)])
    queue.submit_many([("email", number) for number in range(3)], delay=timedelta(hours=1))
    late = queue.submit_many([("email", number) for number in range(1000)], ttl_seconds=1)
    world.clock.advance(seconds=2)
    world.sweeper(queue).sweep_once()

    stats = queue.stats()

    assert (stats.unfinished["ok"].ready, stats.unfinished["ok"].scheduled) == (5, 0)
    assert (stats.unfinished["email"].ready, stats.unfinished["email"].scheduled) == (0, 3)
    assert stats.ended[TaskStatus.EXPIRED] == {"email": 1000}
    assert stats.ended[TaskStatus.FAILED] == {}
    assert (stats.running, stats.workers) == (0, 0)
    assert len(late) == 1000


def test_figures_count_what_ended_within_a_day(world: World, queue: Queue) -> None:
    in_status(world, queue, TaskStatus.FAILED)
    world.clock.advance(hours=23)
    in_status(world, queue, TaskStatus.FAILED)

    assert queue.stats().ended[TaskStatus.FAILED] == {"ok": 2}
    world.clock.advance(hours=2)
    assert queue.stats().ended[TaskStatus.FAILED] == {"ok": 1}


def test_figures_are_exact_as_long_as_the_batches_are_few(world: World, queue: Queue) -> None:
    """One that runs, one that has ended and one that waits for a retry are not ready."""
    policy = RetryPolicy(initial_seconds=60)
    queue.submit_many([("job", number) for number in range(5)], retry_policy=policy)
    world.clock.advance(seconds=30)
    worker = Worker(world.queue(seed=2), threads=1, check=False)

    @worker.task("job")
    def job(input: int) -> None:
        world.clock.advance(seconds=1)  # it takes too long to be claimed ahead
        if input == 1:
            raise RetryableError
        if input == 2:
            during.append(queue.stats())

    during: list[Stats] = []
    worker.drain()

    (found,) = during
    backlog = found.unfinished["job"]
    assert (backlog.ready, backlog.scheduled, found.running) == (2, 1, 1)
    assert backlog.oldest_due_at == START
    assert not found.is_estimate


def test_figures_of_many_batches_are_an_estimate_that_reads_none(
    world: World, queue: Queue
) -> None:
    tasks = [queue.submit("ok", number) for number in range(150)]
    run = world.worker(world.queue(seed=2), threads=3)._new_run()
    run._begin(run.heartbeat.beat)
    run.poller.poll_once()
    for _ in range(6):
        job = run.dispatcher.next(block=False)
        if isinstance(job, Candidate):
            run.do(job)
    running = len(run.claims.all())
    run.heartbeat.beat()
    store = FaultyStore(world.store)

    found = world.queue(store).stats()

    assert found.is_estimate
    assert running > 0
    assert found.unfinished["ok"].ready == len(tasks) - running
    assert not [call for call in store.calls if call.op == "get" and call.key.startswith(BATCHES)]


def test_the_gauges_of_a_sweep_do_not_count_what_runs_as_ready(world: World) -> None:
    world.queue().submit_many([("job", number) for number in range(4)])
    worker = Worker(world.queue(seed=2), threads=1, check=False)
    ready: list[int] = []

    @worker.task("job")
    def job(input: int) -> None:
        world.clock.advance(seconds=1)  # it takes too long to be claimed ahead
        ready.append(world.sweeper().sweep_once().backlog["job"].ready)

    worker.drain()

    assert ready == [3, 2, 1, 0]


# --- being told


def test_a_hook_is_called_once_with_each_task_that_expired(world: World, queue: Queue) -> None:
    told: list[Task] = []
    queue.on_expired(told.append)
    tasks = queue.submit_many([("ok", 1), ("ok", 2)], ttl_seconds=1)
    queue.submit("ok", 3)
    world.clock.advance(seconds=1)

    for _ in range(3):
        world.sweeper(queue).sweep_once()

    assert {task.id for task in told} == {task.id for task in tasks}
    assert len(told) == 2
    assert {task.status for task in told} == {TaskStatus.EXPIRED}
    assert {task.expired_at for task in told} == {world.clock.now()}


def test_whoever_expired_a_task_tells_of_it_and_nobody_else(world: World) -> None:
    told: list[str] = []
    queues = [world.queue(seed=seed) for seed in (1, 2, 3)]
    for number, queue in enumerate(queues):
        queue.on_expired(lambda task, number=number: told.append(f"{number} {task.id}"))
    task = queues[0].submit("ok", 1, ttl_seconds=1)
    world.clock.advance(seconds=1)

    world.worker(queues[1]).drain()
    world.sweeper(queues[2]).sweep_once()
    world.clock.advance(seconds=1)
    with pytest.raises(CannotExpire):
        queues[0].mark_expired(task.id)

    assert told == [f"1 {task.id}"]


def test_a_hook_that_fails_is_logged_and_the_others_are_called(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    @queue.on_expired
    def broken(task: Task) -> None:
        raise ValueError("no")

    queue.on_expired(lambda task: told.append(task.id))
    task = queue.submit("ok", 1)

    assert queue.mark_expired(task.id).status is TaskStatus.EXPIRED
    assert told == [task.id]
    assert f"broken failed on task {task.id}" in caplog.text


def test_a_hook_that_raises_what_is_no_exception_harms_nobody(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.on_expired
    def cancelled(task: Task) -> None:
        raise asyncio.CancelledError

    task = queue.submit("ok", 1)

    assert queue.mark_expired(task.id).status is TaskStatus.EXPIRED
    assert f"cancelled failed on task {task.id}" in caplog.text


def test_hooks_that_are_hosted_run_where_their_host_runs_them(queue: Queue) -> None:
    expired: list[str] = []
    woken: list[bool] = []
    queue.on_expired(lambda task: expired.append(task.id))
    task = queue.submit("ok", 1)

    with queue.hooks.hosted(lambda: woken.append(True)):
        queue.mark_expired(task.id)
        assert (expired, woken) == ([], [True])
        queue.hooks.run_pending()
        assert expired == [task.id]


def test_no_hosted_call_is_lost_when_the_host_ends(queue: Queue) -> None:
    expired: list[str] = []
    queue.on_expired(lambda task: expired.append(task.id))
    task = queue.submit("ok", 1)

    with queue.hooks.hosted(lambda: None):
        queue.mark_expired(task.id)

    assert expired == [task.id]


def test_no_log_tells_what_was_in_a_task(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for options in ({}, {"ttl_seconds": 1}, {"delay": timedelta(seconds=1)}):
            queue.submit("ok", {"password": "s3cr3t"}, **options)  # type: ignore[arg-type]
        world.clock.advance(seconds=1)
        world.sweeper(queue).sweep_once()
        world.worker(queue).drain()
        list(queue.list())

    assert caplog.records
    assert "s3cr3t" not in caplog.text


# --- the queue itself


def test_a_queue_that_was_closed_can_be_used_again(tmp_path: Any) -> None:
    with connect(f"sqlite:///{tmp_path}/queue.db", by="ann") as queue:
        task = queue.submit("ok", 1)

    assert queue.get(task.id).history[0].by == "ann"
    queue.close()


def test_no_act_leaves_a_task_without_its_entries(world: World, queue: Queue) -> None:
    for status in TaskStatus:
        if status is not TaskStatus.RUNNING:
            in_status(world, queue, status)
    queue.submit("ok", 1)

    assert world.missing_entries() == set()
    assert len(world.store.list(READY)) == 1
