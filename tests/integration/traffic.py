"""Traffic over a faulty network: producers and workers in threads, and what became of it all."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from attrs import define, field
from botocore.config import Config

from buquet import (
    Queue,
    RetryPolicy,
    StoreError,
    SubmitManyError,
    SubmitUnclear,
    Task,
    TaskContext,
    Worker,
)
from buquet.core.keys import batch_id_of_task
from tests.s3_servers import S3Server, new_prefix

TOTAL = 5_000
PRODUCERS = 4
WORKERS = 2

SIZES = [*4 * [100], 10, *12 * [1]]
"""How many tasks are submitted together."""

READ_TIMEOUT = 1.0
"""Seconds that a client waits for an answer, or for the rest of one."""

PATIENCE = 60.0
"""Seconds within which all is to end."""

QUICK = Config(connect_timeout=1, read_timeout=READ_TIMEOUT)
SOON = RetryPolicy(initial_seconds=0.05, factor=1)


def answer_to(number: int) -> dict[str, int]:
    """What the handler is to return."""
    return {"number": number, "square": number * number}


def ends(task: Task) -> list[str]:
    """The final statuses that a task has had."""
    return [str(each.status) for each in task.history if each.status.is_final]


@define
class Producer:
    """Submits numbers until enough are acknowledged, and notes what it is told."""

    queue: Queue
    numbers: Iterator[int]
    chance: random.Random
    acknowledged: dict[str, int] = field(factory=dict)
    """The numbers by the ids of their tasks."""
    unclear: set[str] = field(factory=set)
    refused: int = 0
    """How many submits raised and said that nothing is stored."""
    has_refused: threading.Event = field(factory=threading.Event)
    stop: threading.Event = field(factory=threading.Event)

    def run(self) -> None:
        while len(self.acknowledged) < TOTAL / PRODUCERS and not self.stop.is_set():
            size = self.chance.choice(SIZES)
            numbers = [next(self.numbers) for _ in range(size)]
            try:
                self._note(self._submit(numbers))
            except SubmitManyError as error:
                self._note(error.stored)
                self.unclear.update(error.unclear)
                self._note_refusal(len(error.stored) + len(error.unclear) < size)
            except SubmitUnclear as error:
                self.unclear.update(error.task_ids)
            except StoreError:
                self._note_refusal(True)

    def _submit(self, numbers: list[int]) -> list[Task]:
        if len(numbers) == 1:
            return [self.queue.submit("square", numbers[0], retry_policy=SOON, max_retries=50)]
        inputs = [("square", number) for number in numbers]
        return self.queue.submit_many(inputs, retry_policy=SOON, max_retries=50)

    def _note(self, tasks: Any) -> None:
        self.acknowledged.update((task.id, task.input) for task in tasks)

    def _note_refusal(self, is_refused: bool) -> None:
        if is_refused:
            self.refused += 1
            self.has_refused.set()


@define
class Traffic:
    """Producers and workers on a server, all under one prefix."""

    server: S3Server
    """What producers and workers reach, maybe over a faulty network."""
    behind: S3Server
    """The same server, without anything in between: to see what is in it."""
    seed: int
    lease: timedelta = timedelta(seconds=15)
    prefix: str = field(factory=new_prefix)
    producers: list[Producer] = field(factory=list)
    runs: Counter[str] = field(factory=Counter)
    """How often the handler was called for each task."""
    _stack: ExitStack = field(factory=ExitStack)
    _running: list[Any] = field(factory=list)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Have producers submit and workers drain; at the end, until all has been submitted."""
        numbers = count()
        chances = [random.Random(self.seed + number) for number in range(PRODUCERS)]
        self.producers = [Producer(self._queue(), numbers, chance) for chance in chances]
        workers = [self._worker() for _ in range(WORKERS)]
        with ThreadPoolExecutor(PRODUCERS + WORKERS) as pool, self._stack:
            working = [pool.submit(worker.run) for worker in workers]
            submitting = [pool.submit(producer.run) for producer in self.producers]
            try:
                yield
                for each in submitting:
                    each.result(PATIENCE)
                self._await_end()
            finally:
                for producer in self.producers:
                    producer.stop.set()
                for worker in workers:
                    worker.stop()
            for each in working:
                each.result(PATIENCE)

    def _await_end(self) -> None:
        """Wait until all tasks have ended that are stored."""
        with Queue(self.behind.store(self.prefix)) as queue:
            stored = self.unclear & {task.id for task in queue.list()}
            queue.wait([*self.acknowledged, *stored], timeout=PATIENCE)

    def audit(self) -> None:
        """See that nothing was lost, that nothing ended twice, and that no answer is wrong."""
        with Queue(self.behind.store(self.prefix)) as queue:
            tasks = {task.id: task for task in queue.list()}
        acknowledged = self.acknowledged
        assert len(acknowledged) >= TOTAL
        assert acknowledged.keys() - tasks.keys() == set(), "lost"
        assert tasks.keys() - acknowledged.keys() - self.unclear == set(), "refused, and yet stored"
        assert {task.input for task in tasks.values()} >= set(acknowledged.values())
        assert [each for each in tasks.values() if ends(each) != ["completed"]] == []
        assert [each for each in tasks.values() if each.output != answer_to(each.input)] == []
        assert self.runs.keys() == tasks.keys()

    @property
    def acknowledged(self) -> dict[str, int]:
        return {k: v for each in self.producers for k, v in each.acknowledged.items()}

    @property
    def lone(self) -> int:
        """How many of the acknowledged tasks were submitted alone."""
        sizes = Counter(batch_id_of_task(task_id) for task_id in self.acknowledged)
        return sum(size == 1 for size in sizes.values())

    @property
    def unclear(self) -> set[str]:
        return {task_id for each in self.producers for task_id in each.unclear}

    @property
    def refused(self) -> int:
        return sum(each.refused for each in self.producers)

    def _queue(self) -> Queue:
        queue = Queue(self.server.store(self.prefix, config=QUICK))
        self._stack.callback(queue.close)
        return queue

    def _worker(self) -> Worker:
        worker = Worker(
            self._queue(),
            threads=4,
            lease=self.lease,
            poll_min=timedelta(seconds=0.02),
            poll_max=timedelta(seconds=0.2),
            sweep_interval=timedelta(seconds=1),
        )

        @worker.task("square")
        def square(number: int, context: TaskContext) -> dict[str, int]:
            self.runs[context.task.id] += 1
            return answer_to(number)

        return worker
