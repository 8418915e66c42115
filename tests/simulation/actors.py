"""Those who take part in a run: the real queue, worker and sweeper, each in a simulated process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from attrs import define, evolve, field

from buquet import (
    BuquetError,
    PermanentError,
    Queue,
    RescheduleError,
    RetryPolicy,
    StoreUnavailable,
    SubmitManyError,
    SubmitUnclear,
    Sweeper,
    Task,
    TaskStatus,
    Worker,
)
from buquet.client import bulk, submit
from buquet.core.index import INDEXED_STATUSES
from buquet.errors import InvalidTransition, StoreError
from buquet.store import Stored
from buquet.testing import Crash
from tests.simulation.engine import Process, sleep_until
from tests.simulation.network import SimStore
from tests.simulation.plan import Act, Actor
from tests.simulation.witness import Witness, report

QUICK = RetryPolicy(initial_seconds=0.5, factor=2, max_seconds=5, jitter=0.5)
A_DAY = 86400.0


@define
class Part:
    """One who takes part."""

    plan: Actor
    process: Process
    store: SimStore
    server: Witness
    queue: Queue = field(init=False)

    def __attrs_post_init__(self) -> None:
        chance = random.Random(f"{self.store.seed}/{self.plan.name}")
        self.queue = Queue(self.store, chance=chance, by=self.plan.name)

    def live(self) -> None:
        """Do what it is here for."""
        sleep_until(self.plan.begins)
        {
            "producer": self._act,
            "operator": self._act,
            "worker": self._work,
            "sweeper": self._sweep,
        }[self.plan.kind]()

    # --- producers and operators

    def _act(self) -> None:
        for number, act in enumerate(self.plan.acts):
            sleep_until(act.at)
            if act.what == "submit":
                self._submit(act, number)
            elif act.what == "submit_many":
                self._submit_many(act, number)
            elif act.what == "sweep":
                self._sweep_fully()
            elif act.what == "list":
                self._list()
            else:
                self._change(act)

    def _inputs(self, act: Act, number: int) -> list[dict[str, Any]]:
        return [
            {"token": f"{self.plan.name}/{number}/{index}", "script": [list(s) for s in script]}
            for index, script in enumerate(act.scripts)
        ]

    def _submit(self, act: Act, number: int) -> None:
        inputs = self._inputs(act, number)
        group = list(submit.items([("job", each) for each in inputs]))
        try:
            tasks = bulk.store(self.queue.ledger, group, _options(act))
        except SubmitUnclear as error:
            found = self.store.last_look
            if isinstance(found, Stored) and error.task_ids[0].encode() in found.body:
                report("G1: a submit was stored and seen, and called unclear")
        except StoreError:
            self._note_refusal({each["token"] for each in inputs})
        else:
            self._note_tasks(tasks)

    def _submit_many(self, act: Act, number: int) -> None:
        inputs = self._inputs(act, number)
        pairs = [("job", each) for each in inputs]
        try:
            tasks = self.queue.submit_many(pairs, batch_size=2, **_options(act))
        except StoreUnavailable:  # not even the time was known
            self._note_refusal({each["token"] for each in inputs})
        except SubmitManyError as error:
            self._note_tasks(error.stored)
            stored = {task.input["token"] for task in error.stored}
            if not error.unclear:
                self._note_refusal({each["token"] for each in inputs} - stored)
        else:
            if [task.input for task in tasks] != inputs:
                report("G8: tasks came back in another order than they were given")
            self._note_tasks(tasks)

    def _note_tasks(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if self.server.task(task.id).input != task.input:
                report(f"G8: the input of {task.id} is not as it was given")
            self.server.acknowledged[task.id] = task.input["token"]

    def _note_refusal(self, tokens: set[str]) -> None:
        self.server.refused |= tokens
        if tokens & {task.input["token"] for task in self.server.tasks()}:
            report("G1: a submit was stored, and said that it is not")

    def _change(self, act: Act) -> None:
        known = list(self.server.acknowledged)
        if not known:
            return
        first = act.which % len(known)
        task_id = known[first]
        with suppress(StoreUnavailable, InvalidTransition):
            if act.what == "replay":
                self.queue.replay(task_id, ttl_seconds=act.ttl)
            elif act.what == "cancel_many":
                self.queue.cancel_many(known[first : first + 6])
            else:
                getattr(self.queue, act.what)(task_id)

    def _list(self) -> None:
        with suppress(StoreUnavailable):
            for status in INDEXED_STATUSES:
                list(self.queue.list(status))

    def _sweep_fully(self) -> None:
        with suppress(StoreUnavailable):
            Sweeper(self.queue, threads=8).sweep_once(full=True)

    # --- workers and sweepers

    def _sweep(self) -> None:
        Sweeper(self.queue, threads=1).run(
            self.store.clock.event(), interval=timedelta(seconds=self.plan.poll)
        )

    def _work(self) -> None:
        worker = self.worker()
        if self.plan.stops is not None:
            engine = self.process.engine
            engine.start(self.process, "stop", lambda: self._stop(worker))
        try:
            worker.run()
            self._see_what_it_left()
        except BuquetError as error:
            if self.store.lists:
                report(f"G2: {self.plan.name} was at work, and ended with {error!r}")
            self.process.die()  # it could not begin: its supervisor may start another

    def _see_what_it_left(self) -> None:
        """See that a worker that was told to stop, and had no trouble, has no claims left."""
        if self.store.has_had_trouble:
            return
        for task in self.server.tasks():
            if task.status is TaskStatus.RUNNING and task.worker_id == self.plan.name:
                report(f"G3: {task.id} is still claimed by {self.plan.name}, which has stopped")

    def _stop(self, worker: Worker) -> None:
        assert self.plan.stops is not None
        sleep_until(self.plan.stops)
        worker.stop()

    def worker(self) -> Worker:
        """Make the worker of the plan."""
        worker = Worker(
            self.queue,
            threads=self.plan.threads,
            lease=timedelta(seconds=self.plan.lease),
            grace=timedelta(seconds=5),
            poll_max=timedelta(seconds=self.plan.poll),
            sweep_interval=timedelta(seconds=max(self.plan.lease, 5)),
            check=False,
        )
        worker.settings = evolve(worker.settings, id=self.plan.name)
        worker.task("job", timeout_seconds=A_DAY)(self.handle)
        return worker

    def handle(self, input: Any, context: Any) -> Any:
        """Run a task: do what the script says for this attempt."""
        task = context.task
        now = self.server.now()
        if task.expires_at is not None and now >= task.expires_at:
            report(f"G5: {task.id} was started {now - task.expires_at} after its deadline")
        if input != self.server.task(task.id).input:
            report(f"G8: the input of {task.id} came otherwise")
        script = input["script"]
        ending, seconds = script[min(task.version // 3, len(script) - 1)]
        if task.version >= 3 * len(script):
            ending = "ok"
        if seconds:
            sleep_until(self.process.engine.time + seconds)
        self._end(ending, context)
        return {"attempt": task.attempt, "token": input["token"]}

    def _end(self, ending: str, context: Any) -> None:
        if ending == "die":
            self.process.die()
            raise Crash
        if ending == "give in":
            context.raise_if_cancelled()
        ends: dict[str, Callable[[], Exception]] = {
            "retry": lambda: ValueError("again"),
            "fail": lambda: PermanentError("no"),
            "reschedule": lambda: RescheduleError(2),
            "far": lambda: RescheduleError(7000),
            "extend": lambda: RescheduleError(2, extend_expiration_seconds=10),
        }
        if ending in ends:
            raise ends[ending]()


def _options(act: Act) -> Any:
    options: dict[str, Any] = {"max_retries": act.retries, "retry_policy": QUICK}
    if act.ttl is not None:
        options["ttl_seconds"] = act.ttl
    if act.delay is not None:
        options["delay"] = timedelta(seconds=act.delay)
    return options
