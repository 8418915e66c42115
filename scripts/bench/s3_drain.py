"""Submitting and draining no-op tasks on S3, and the floor: the requests alone, made with boto3."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter
from typing import Any

from attrs import frozen

from buquet import Queue, Task, Worker
from buquet.core import keys
from scripts.bench.s3_site import Site, Spent, spent_on
from tests.s3_servers import new_prefix

SUBMITTERS = 8
"""How many threads submit tasks one by one."""


@frozen
class Drain:
    """What it took to submit tasks and to run them all."""

    tasks: int
    submit: Spent
    drain: Spent
    seconds: float
    """From the start of the worker until the last result was written."""
    keys: tuple[str, ...]
    """Of the batches, in the bucket."""

    @property
    def rate(self) -> float:
        """How many tasks were run in a second."""
        return self.tasks / self.seconds

    @property
    def requests(self) -> Counter[str]:
        """The requests of both."""
        return self.submit.requests + self.drain.requests


def drain(site: Site, tasks: int, *, batch_size: int, threads: int) -> Drain:
    """Submit tasks that do nothing, and run them on so many threads of one worker."""
    prefix = new_prefix()
    with site.queue(prefix) as queue:
        queue.now()  # makes the client
        stored: list[Task] = []
        submit = spent_on(site, lambda: stored.extend(_submit(queue, tasks, batch_size)))
        seconds: list[float] = []
        drained = spent_on(site, lambda: seconds.append(_run(queue, tasks, threads)))
    batches = sorted({keys.batch_key(task.batch_id) for task in stored})
    return Drain(tasks, submit, drained, seconds[0], tuple(f"{prefix}/{key}" for key in batches))


def _submit(queue: Queue, tasks: int, batch_size: int) -> list[Task]:
    """Submit tasks one by one, on as many threads as the floor does, or in batches."""
    if batch_size > 1:
        return queue.submit_many(
            (("noop", number) for number in range(tasks)), batch_size=batch_size
        )
    stored: list[Task] = []
    _on_threads(
        lambda number: stored.append(queue.submit("noop", number)), range(tasks), SUBMITTERS
    )
    return stored


def _run(queue: Queue, tasks: int, threads: int) -> float:
    """Run a worker until nothing is left; return the seconds until the last result was written."""
    worker = Worker(queue, threads=threads, check=False)
    worker.task("noop")(_do_nothing)
    written: list[float] = []
    worker.on_success(lambda _: written.append(perf_counter()))
    begun = perf_counter()
    worker.run(burst=True)
    if len(written) != tasks:
        raise RuntimeError(f"{len(written)} tasks were completed, not {tasks}.")
    return max(written) - begun


def _do_nothing(input: int) -> None:
    pass


def body_of(site: Site, key: str) -> bytes:
    """Return what an object of the bucket holds."""
    with closing(site.raw_client()) as client:
        body: bytes = client.get_object(Bucket=site.server.bucket, Key=key)["Body"].read()
        return body


def raw_submit(site: Site, tasks: int, body: bytes) -> Spent:
    """Make the two requests that each submit takes: an empty entry, and a body."""
    client, bucket, prefix = site.raw_client(), site.server.bucket, new_prefix()

    def submit(number: int) -> None:
        client.put_object(Bucket=bucket, Key=f"{prefix}/ready/{number}", Body=b"")
        client.put_object(Bucket=bucket, Key=f"{prefix}/tasks/{number}", Body=body, IfNoneMatch="*")

    return _spent_on_each(site, client, submit, range(tasks), SUBMITTERS)


def raw_drain(site: Site, keys: Iterable[str], *, puts: int, threads: int) -> Spent:
    """Make the requests that each batch takes: read it, and write it so many times."""
    client, bucket = site.raw_client(), site.server.bucket

    def rewrite(key: str) -> None:
        found = client.get_object(Bucket=bucket, Key=key)
        body, etag = found["Body"].read(), found["ETag"]
        for _ in range(puts):
            put = client.put_object(Bucket=bucket, Key=key, Body=body, IfMatch=etag)
            etag = put["ETag"]

    return _spent_on_each(site, client, rewrite, keys, threads)


def raw_rate(site: Site, client: Any, requests: int, *, threads: int) -> float:
    """Write an object again and again; return how many requests are served in a second."""
    bucket, key = site.server.bucket, f"{new_prefix()}/object"

    def write(_: int) -> None:
        client.put_object(Bucket=bucket, Key=key, Body=b"x" * 500)

    return requests / _spent_on_each(site, client, write, range(requests), threads).seconds


def _spent_on_each(
    site: Site, client: Any, act: Callable[[Any], None], items: Iterable[Any], threads: int
) -> Spent:
    """Do something for each item on so many threads, and return what all of it took."""
    try:
        return spent_on(site, lambda: _on_threads(act, items, threads))
    finally:
        client.close()


def _on_threads(act: Callable[[Any], None], items: Iterable[Any], threads: int) -> None:
    """Do something for each item on so many threads; raise what any of them raises."""
    left, lock = iter(items), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                item = next(left, None)
            if item is None:
                return
            act(item)

    with ThreadPoolExecutor(threads) as pool:
        for working in [pool.submit(work) for _ in range(threads)]:
            working.result()
