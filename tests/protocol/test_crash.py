"""G1, G2, G4: whatever dies at whatever call, no acknowledged task is lost or ends twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from buquet import (
    PermanentError,
    Queue,
    RescheduleError,
    SubmitManyError,
    Sweeper,
    TaskStatus,
    Worker,
)
from buquet.core.model import Task
from buquet.testing import Crash, FaultyStore
from tests.helpers import CRASH_POINTS, World

Prepare = Callable[[World, Queue], list[Task]]
Act = Callable[[World, Queue, list[Task]], list[Task] | None]


@define
class Scene:
    """An act, what there is before it, and the store under it."""

    prepare: Prepare
    act: Act
    world: World = field(factory=World)


def nothing(world: World, queue: Queue) -> list[Task]:
    return []


def three_tasks(world: World, queue: Queue) -> list[Task]:
    return queue.submit_many([("ok", number) for number in range(3)], max_retries=5)


def late_tasks(world: World, queue: Queue) -> list[Task]:
    tasks = queue.submit_many([("ok", 1), ("ok", 2)], ttl_seconds=10)
    live = queue.submit_many([("ok", 3)], ttl_seconds=9999)
    world.clock.advance(seconds=10)
    return tasks + live


def failed_task(world: World, queue: Queue) -> list[Task]:
    task = queue.submit("ok", 1)
    worker = Worker(queue, check=False)
    worker.task("ok")(raising(PermanentError("no")))
    worker.drain()
    return [task]


def lost_tasks(world: World, queue: Queue) -> list[Task]:
    """Tasks of a worker that died in the midst of them, a while ago."""
    tasks = three_tasks(world, queue)
    dying = FaultyStore(world.store)
    worker = Worker(world.queue(dying, seed=7), check=False)

    @worker.task("ok")
    def die(input: Any) -> None:
        dying.is_dead = True

    with suppress(Crash):
        worker.drain()
    world.clock.advance(minutes=5)
    return tasks


def raising(error: Exception) -> Callable[[Any], None]:
    def handler(input: Any) -> None:
        raise error

    return handler


def drained_with(handler: Callable[..., Any]) -> Act:
    def act(world: World, queue: Queue, tasks: list[Task]) -> None:
        worker = Worker(queue, check=False)
        worker.task("ok")(handler)
        worker.drain()

    return act


def submitted(world: World, queue: Queue, tasks: list[Task]) -> list[Task]:
    return [queue.submit("ok", 1, ttl_seconds=99999)]


def submitted_many(world: World, queue: Queue, tasks: list[Task]) -> list[Task]:
    return queue.submit_many([("ok", number) for number in range(5)], batch_size=2)


def swept(world: World, queue: Queue, tasks: list[Task]) -> None:
    Sweeper(queue, threads=1).sweep_once(full=True)


def cancelled(world: World, queue: Queue, tasks: list[Task]) -> None:
    queue.cancel(tasks[0].id)


def replayed(world: World, queue: Queue, tasks: list[Task]) -> None:
    queue.replay(tasks[0].id)


def archived(world: World, queue: Queue, tasks: list[Task]) -> None:
    queue.archive(tasks[0].id)


def marked(world: World, queue: Queue, tasks: list[Task]) -> None:
    queue.mark_expired(tasks[0].id)


def beaten(world: World, queue: Queue, tasks: list[Task]) -> None:
    """A heartbeat in the midst of a task that somebody wants cancelled."""
    worker = Worker(queue, check=False)

    @worker.task("ok")
    def beat(input: Any, context: Any) -> None:
        with suppress(Exception):
            world.queue(seed=5).cancel(context.task.id)
        assert worker._run is not None
        worker._run.heartbeat.beat()
        worker._run.claims.refresh()
        context.raise_if_cancelled()

    worker.drain()


def parked(world: World, queue: Queue, tasks: list[Task]) -> None:
    """Long work is parked, and parked again; then one task is retried and the others end."""
    worker = Worker(queue, check=False, lease=timedelta(minutes=12))
    worker._registry.note_duration("ok", 0.001)  # so that one thread claims all of a batch
    runs: list[str] = []

    @worker.task("ok")
    def work(input: Any, context: Any) -> None:
        run = worker._run
        assert run is not None
        runs.append(context.task.id)
        if len(runs) > 1:
            return
        for _ in range(5):
            world.clock.advance(minutes=4)
            run.heartbeat.beat()
            run.claims.refresh()
        raise ValueError("again")

    worker.drain()
    world.clock.advance(minutes=1)
    worker.drain()


SCENES: dict[str, Callable[[], Scene]] = {
    "submit": lambda: Scene(nothing, submitted),
    "submit_many": lambda: Scene(nothing, submitted_many),
    "claim and finish": lambda: Scene(three_tasks, drained_with(lambda input: input)),
    "fail": lambda: Scene(three_tasks, drained_with(raising(PermanentError("no")))),
    "retry": lambda: Scene(three_tasks, drained_with(raising(ValueError("again")))),
    "reschedule": lambda: Scene(three_tasks, drained_with(raising(RescheduleError(30)))),
    "expire by a worker": lambda: Scene(late_tasks, drained_with(lambda input: input)),
    "expire by a sweeper": lambda: Scene(late_tasks, swept),
    "recover by a worker": lambda: Scene(lost_tasks, drained_with(lambda input: input)),
    "recover by a sweeper": lambda: Scene(lost_tasks, swept),
    "cancel": lambda: Scene(three_tasks, cancelled),
    "replay": lambda: Scene(failed_task, replayed),
    "archive": lambda: Scene(failed_task, archived),
    "mark_expired": lambda: Scene(three_tasks, marked),
    "heartbeat": lambda: Scene(three_tasks, beaten),
    "park": lambda: Scene(three_tasks, parked),
}


def perform(scene: Scene, fault: Callable[[FaultyStore], None]) -> tuple[FaultyStore, list[Task]]:
    """Play a scene on a store with a fault; return the tasks that were acknowledged."""
    tasks = scene.prepare(scene.world, scene.world.queue(seed=3))
    store = FaultyStore(scene.world.store)
    fault(store)
    with suppress(Crash, SubmitManyError):
        tasks = tasks + (scene.act(scene.world, scene.world.queue(store, seed=4), tasks) or [])
    return store, tasks


def points(make: Callable[[], Scene]) -> list[Callable[[FaultyStore], None]]:
    """All the ways in which the process can die in a scene."""
    store, _ = perform(make(), lambda store: None)
    calls = range(1, len(store.calls) + 1)
    assert len(calls) >= 2
    return [
        die
        for n in calls
        for die in (lambda store, n=n: store.die_before(n), lambda store, n=n: store.die_after(n))
    ]


@pytest.mark.parametrize("act", SCENES)
def test_dying_at_any_call_loses_no_task_and_ends_none_twice(
    act: str, record_property: Callable[[str, object], None]
) -> None:
    ways = points(SCENES[act])
    for die in ways:
        scene = SCENES[act]()
        store, tasks = perform(scene, die)
        world = scene.world

        assert store.is_dead
        assert world.missing_entries() == set()

        world.finish_all()

        statuses = world.statuses()
        assert all(statuses[task.id].is_final for task in tasks), act
        assert all(status.is_final for status in statuses.values()), act
        assert world.missing_entries() == set()
        for batch in world.batches():
            for task in batch.tasks:
                ended = [each for each in task.history if each.event in ENDS]
                replays = [each for each in task.history if each.event == "replayed"]
                assert len(ended) == len(replays) + 1
    record_property(CRASH_POINTS, (act, len(ways)))


ENDS = {"completed", "failed", "expired", "cancelled"}


@pytest.mark.parametrize("act", SCENES)
def test_dying_at_any_call_leaves_no_stray_entry_for_ever(act: str) -> None:
    for die in points(SCENES[act]):
        scene = SCENES[act]()
        perform(scene, die)
        world = scene.world
        world.finish_all()

        world.clock.advance(hours=2)
        world.sweeper().sweep_once(full=True)

        assert world.ready() == []
        assert world.missing_entries() == set()


def test_a_lost_worker_is_what_the_scene_says() -> None:
    world = World()
    tasks = lost_tasks(world, world.queue())

    assert {world.statuses()[task.id] for task in tasks} >= {TaskStatus.RUNNING}
    assert all(
        task.is_lease_expired_at(world.clock.now())
        for batch in world.batches()
        for task in batch.tasks
        if task.status is TaskStatus.RUNNING
    )
    assert world.clock.now() - world.batches()[0].tasks[0].created_at >= timedelta(minutes=5)


def test_long_work_is_parked_twice_and_brought_back_as_the_scene_says() -> None:
    scene = SCENES["park"]()

    _, tasks = perform(scene, lambda store: None)

    (batch,) = scene.world.batches()
    submitted_once = 1
    moves = (
        4  # parked, once more, back for the retry, and to its minute when it is all that is left
    )
    assert batch.generation == submitted_once + moves
    assert [task.attempt for task in batch.tasks] == [2, 1, 1]
    assert {task.id for task in batch.tasks} == {task.id for task in tasks}
