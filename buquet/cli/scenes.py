"""What the demo plays: tasks of each kind, and the worker that runs them."""

from __future__ import annotations

from datetime import timedelta

from attrs import field, frozen

from buquet.client.queue import Queue
from buquet.client.submit import SubmitOptions
from buquet.core.model import RetryPolicy, TaskStatus
from buquet.errors import PermanentError, RetryableError
from buquet.worker import TaskContext, Worker


@frozen(kw_only=True)
class Scene:
    """Tasks of one type, and what they are there to show."""

    task_type: str
    shows: str
    ends: TaskStatus
    count: int = 1
    options: SubmitOptions = field(factory=SubmitOptions)


SCENES = (
    Scene(
        task_type="send_email",
        count=3,
        shows="go first: they have a higher priority",
        ends=TaskStatus.COMPLETED,
        options={"priority": 10},
    ),
    Scene(
        task_type="thumbnail",
        count=500,
        shows="submitted in one call, in 5 writes",
        ends=TaskStatus.COMPLETED,
    ),
    Scene(
        task_type="flaky",
        shows="fails twice, and is tried again",
        ends=TaskStatus.COMPLETED,
        options={"retry_policy": RetryPolicy(initial_seconds=0.8, jitter=0)},
    ),
    Scene(
        task_type="broken",
        shows="fails for good: no retry would help",
        ends=TaskStatus.FAILED,
    ),
    Scene(
        task_type="report",
        shows="scheduled for 4 seconds from now",
        ends=TaskStatus.COMPLETED,
        options={"delay": timedelta(seconds=4)},
    ),
    Scene(
        task_type="stale_news",
        shows="its deadline has passed: it never runs",
        ends=TaskStatus.EXPIRED,
        options={"ttl_seconds": 0},
    ),
    Scene(
        task_type="fax",
        shows="no worker takes it; deadline in 3 s",
        ends=TaskStatus.EXPIRED,
        options={"ttl_seconds": 3},
    ),
    Scene(
        task_type="upload",
        shows="fails; a retry would be too late",
        ends=TaskStatus.EXPIRED,
        options={"ttl_seconds": 5, "retry_policy": RetryPolicy(initial_seconds=10, jitter=0)},
    ),
)


def make_worker(queue: Queue) -> Worker:
    """Make the worker of the demo."""
    worker = Worker(
        queue,
        threads=8,
        poll_max=timedelta(seconds=0.5),
        sweep_interval=timedelta(seconds=1),
    )

    @worker.task("send_email")
    def send_email(input: dict[str, str]) -> str:
        return f"sent to {input['to']}"

    @worker.task("thumbnail")
    def thumbnail(_: dict[str, int]) -> None:
        queue.store.clock.sleep(0.02)

    @worker.task("flaky")
    def flaky(_: None, context: TaskContext) -> int:
        if context.attempt <= 2:
            raise RetryableError("the other side was busy")
        return context.attempt

    @worker.task("broken")
    def broken(_: None) -> None:
        raise PermanentError("no such customer")

    @worker.task("report")
    @worker.task("stale_news")
    def report(_: None) -> str:
        return "written"

    @worker.task("upload")
    def upload(_: None) -> None:
        raise RetryableError("the network is down")

    return worker


def submit_all(queue: Queue) -> dict[str, list[str]]:
    """Submit the tasks of all scenes; return their ids by type."""
    names = {"send_email": "to", "thumbnail": "picture"}
    made: dict[str, list[str]] = {}
    for scene in SCENES:
        name = names.get(scene.task_type)
        inputs = [
            None if name is None else {name: "ann" if name == "to" else number}
            for number in range(scene.count)
        ]
        tasks = queue.submit_many([(scene.task_type, each) for each in inputs], **scene.options)
        made[scene.task_type] = [task.id for task in tasks]
    return made
