"""One run of a plan: trouble, calm, and then a look at whether all has ended as it must."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from unittest import mock

from attrs import define, field, frozen

from buquet import TaskStatus
from buquet.core import keys
from buquet.core.keys import READY
from buquet.sweeper import Sweeper
from tests.simulation.actors import Part
from tests.simulation.engine import Engine, Process, SimExecutor, SimThreading, Stuck, sleep_until
from tests.simulation.network import SimStore
from tests.simulation.plan import Actor, Plan, make
from tests.simulation.witness import Violation, Witness

PATIENCE = 5000.0
"""Seconds of calm in which workers that live must have ended all there is: once an hour they look
for what was written where nobody writes."""

OVERDUE = timedelta(seconds=900)
"""For how long something may be due that was written in time."""

ROUNDS = 60
"""How often fresh workers and sweepers look, two minutes apart, before a task is taken for lost."""


@frozen
class Outcome:
    """What came of a run."""

    plan: Plan
    violation: str | None
    trace: tuple[str, ...]
    calls: int
    tasks: int

    @property
    def guarantee(self) -> str:
        """Which guarantee was broken: `G5`, `index`, …"""
        return (self.violation or "").partition(":")[0]


def run(plan: Plan) -> Outcome:
    """Run a plan to its end, or to the first thing that is wrong."""
    with simulated():
        world = _World(plan)
        violation = None
        try:
            world.play()
        except (Violation, Stuck) as error:
            violation = str(error)
        finally:
            world.engine.end()
    return Outcome(
        plan,
        violation,
        tuple(world.trace),
        sum(part.store.calls for part in world.parts),
        len(world.server.tasks()),
    )


def run_seed(seed: int) -> Outcome:
    """Run the plan of a seed."""
    return run(make(seed))


@contextmanager
def simulated() -> Iterator[None]:
    """Give those parts of the worker that make threads, or wait in them, the simulated ones."""
    threading = SimThreading()
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            for module in ("worker.dispatcher", "worker.pool", "worker.service"):
                stack.enter_context(mock.patch(f"buquet.{module}.threading", threading))
            for module in ("client.fan_out",):
                stack.enter_context(mock.patch(f"buquet.{module}.ThreadPoolExecutor", SimExecutor))
            yield
    finally:
        logging.disable(logging.NOTSET)


@define
class _World:
    plan: Plan
    engine: Engine = field(factory=Engine)
    server: Witness = field(init=False)
    parts: list[Part] = field(factory=list)
    trace: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.server = Witness(self.engine.now)
        self.server.tell = lambda what: self._tell("", "", what)

    def play(self) -> None:
        for actor in self.plan.actors:
            part = self._part(actor)
            self.engine.start(part.process, "main", part.live)
        self._go(self.plan.calm_at)
        self._calm_down()
        self.engine.end()
        self._close()

    def _part(self, actor: Actor) -> Part:
        process = Process(self.engine, actor.name, actor.offset, actor.drift)
        fates = {fate.call: fate for fate in self.plan.fates if fate.process == actor.name}
        store = SimStore(process, self.server, self.plan.seed, fates, self._note)
        part = Part(actor, process, store, self.server)
        self.parts.append(part)
        return part

    def _note(self, process: Process, op: str, key: str, fate: str) -> None:
        self._tell(process.name, op, f"{key}  {fate}")

    def _tell(self, who: str, op: str, what: str) -> None:
        self.trace.append(f"{self.engine.time:9.3f}  {who:10} {op:6} {what}".rstrip())

    def _go(self, until: float) -> None:
        self.engine.run(until)
        for failure in self.engine.failures:
            raise failure

    def _calm_down(self) -> None:
        """Let those who live go on undisturbed: they must end all that is due."""
        for part in self.parts:
            part.store.fates = {}
        working = [part.process for part in self.parts if self._works_on(part)]
        last = max((part.process.paused_until for part in self.parts), default=0.0)
        end = max(self.engine.time, last) + PATIENCE
        since = self.engine.now()
        while self.engine.time < end and (self._unfinished() or self._are_paused()):
            self._go(self.engine.time + 5)
            late = self._overdue(since) if self.engine.time < end else self._unfinished()
            if late and any(not process.is_dead for process in working):
                raise Violation(f"G2: {late[0]} was forgotten by the workers that live")

    def _are_paused(self) -> bool:
        now = self.engine.time
        return any(
            part.process.paused_until > now and not part.process.is_dead for part in self.parts
        )

    def _works_on(self, part: Part) -> bool:
        process, plan = part.process, part.plan
        is_there = not process.is_dead and process.paused_until <= self.engine.time
        return is_there and plan.kind == "worker" and plan.stops is None

    def _overdue(self, since: datetime) -> list[str]:
        """The tasks that somebody should have seen to by now, but for those of late writers."""
        return [
            task.id
            for task in self.server.tasks()
            if not task.status.is_final
            and keys.batch_id_of_task(task.id) not in self.server.were_late
            and self.engine.now() - max(self.server.due(task), since) > OVERDUE
        ]

    def _unfinished(self) -> list[str]:
        return [task.id for task in self.server.tasks() if not task.status.is_final]

    # --- the end

    def _close(self) -> None:
        """Have fresh processes end what is left, and see that they find all of it."""
        closer = self._part(Actor("closer", "worker", threads=1, lease=60.0))
        self.engine.start(closer.process, "main", lambda: self._finish_all(closer))
        self._go(self.engine.time + 120.0 * (ROUNDS + 5) + 3 * 3600)
        if not closer.process.is_dead:
            raise RuntimeError("the closing did not end")

    def _finish_all(self, closer: Part) -> None:
        engine = self.engine
        sleep_until(engine.time + 100)  # what is still under way arrives
        Sweeper(closer.queue, threads=1).sweep_once(full=bool(self.server.owed))
        self._check_deadlines()
        for _ in range(ROUNDS):
            closer.worker().drain()
            Sweeper(closer.queue, threads=1).sweep_once()
            if not self._unfinished():
                break
            sleep_until(engine.time + 120)
        if left := self._unfinished():
            raise Violation(f"G2: {left[0]} is lost")
        self._check_ends()
        sleep_until(engine.time + 7200)
        Sweeper(closer.queue, threads=1).sweep_once(full=True)
        closer.store.flush()
        if left := [each.key for each in self.server.list(READY)]:
            raise Violation(f"index: {left[0]} is of no use, and stays")
        self._check_cost(closer)
        closer.process.die()

    def _check_deadlines(self) -> None:
        now = self.engine.now()
        for task in self.server.tasks():
            if task.status is TaskStatus.PENDING and task.is_expired_at(now):
                raise Violation(f"G6: {task.id} is past its deadline, and a sweep left it pending")

    def _check_ends(self) -> None:
        for task_id in self.server.acknowledged:
            task = self.server.task(task_id)
            if task.status is TaskStatus.COMPLETED and task.output["token"] != task.input["token"]:
                raise Violation(f"G8: {task_id} has the output of another")

    def _check_cost(self, closer: Part) -> None:
        """With nothing due, a poll is one LIST, whatever has ended or is for later."""
        closer.queue.submit("job", {"token": "later"}, delay=timedelta(days=30))
        gets, lists = closer.store.gets, closer.store.lists
        closer.worker().drain()
        if (closer.store.gets - gets, closer.store.lists - lists) != (0, 1):
            raise Violation(
                f"G7: an idle poll cost {closer.store.lists - lists} LIST "
                f"and {closer.store.gets - gets} GET"
            )
        sweeper = Sweeper(closer.queue, threads=1)
        for _ in range(2):
            sweeper.sweep_once()
        gets, lists = closer.store.gets, closer.store.lists
        sweeper.sweep_once()
        if (closer.store.gets - gets, closer.store.lists - lists) != (0, 2):
            raise Violation(
                f"G7: an idle sweep cost {closer.store.lists - lists} LIST "
                f"and {closer.store.gets - gets} GET"
            )
