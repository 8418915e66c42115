"""A store in an S3 bucket: AWS, MinIO, SeaweedFS, R2, Ceph or any other with conditional writes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from buquet.clock import Clock, StoreClock, SystemClock
from buquet.errors import BuquetError, StoreUnsuitable
from buquet.store.base import PAGE, Change, Conflict, Listed, Stored, commit_in_steps
from buquet.store.fork import watch_forks
from buquet.store.patience import TIME_LIMIT, Patience, share
from buquet.store.s3_client import MOST_THREADS, S3Client, Wire, content_md5
from buquet.store.s3_errors import (
    TRIES,
    TRIES_WHEN_UNDONE,
    Place,
    Request,
    Verdict,
    expected_errors,
    explain,
    judge,
    retry_after,
)

logger = logging.getLogger(__name__)

DROP_AFTER = 1.0
"""Seconds that a dropped key waits for others to be deleted with it."""

BULK = 1000
"""How many keys one DeleteObjects takes."""

Page = list[Listed]

NO_KEY = "locks/none"
"""A key under which there is nothing. To read it shows the time, and takes no other right."""

NO_ANSWERS: frozenset[Verdict] = frozenset()
ANSWERS_TO_READS = frozenset({Verdict.MISSING, Verdict.UNCHANGED})


class S3Store:
    """Objects in a bucket, all under an optional prefix.

    Credentials, region, endpoint and proxies come from boto3's own chain, unless they are given
    here. Commits delete what they drop in bulk, within a second or so of the next commit or
    listing; `flush` does it at once.

    Args:
        bucket: its name.
        prefix: what all keys begin with, for several queues in one bucket.
        client: a ready boto3 client, used for everything. After a fork the child must not use it.
        session: a boto3 session to make the client with.
        config: a botocore `Config`, for proxies and the like; it wins over the settings made here,
            but for the retries.
        endpoint_url: where the store is, if it is not AWS.
        region_name: the region of the bucket.
        threads: how many threads use the store at the same time; sizes the pool of connections.
        give_up_after: how many seconds an act, such as a submit, waits for a store that does not
            answer; then `StoreUnavailable` is raised. Without it some twenty.
        clock: the local clock.
        on_request: called with `get`, `put`, `list` or `delete` for each request sent.
    """

    def __init__(  # noqa: PLR0913 -- one keyword for each thing that may be settled
        self,
        bucket: str,
        prefix: str = "",
        *,
        client: Any = None,
        session: Any = None,
        config: Any = None,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        threads: int = MOST_THREADS,
        give_up_after: float | None = None,
        clock: Clock | None = None,
        on_request: Callable[[str], None] | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._wire = Wire(self.clock, on_request)
        self._client = S3Client(
            self._wire,
            client=client,
            session=session,
            config=config,
            endpoint_url=endpoint_url,
            region_name=region_name,
            threads=threads,
            give_up_after=give_up_after,
        )
        self._drops = Drops(self.delete, self.clock)
        self._give_up_after = give_up_after
        self._asking_time = threading.Lock()
        self._time_problem: BuquetError | None = None
        watch_forks(self)

    def __repr__(self) -> str:
        return f"<S3Store s3://{self.bucket}/{self.prefix}>"

    @property
    def client(self) -> Any:
        """The boto3 client of this process; made on first use."""
        return self._client.current()

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        """Read an object; None if there is none, or if its etag is `unless`."""
        condition = {"IfNoneMatch": unless} if unless else {}
        params = {"Key": self.prefix + key} | condition
        answer = self._ask("get_object", params, answers=ANSWERS_TO_READS)
        return None if isinstance(answer, Verdict) else Stored(answer["Body"], answer["ETag"])

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        """Write an object, on a condition if one is given; return its new etag.

        A conditional write is sent once, unless the store says that it did nothing.
        """
        condition, answers = _condition(if_match, if_absent)
        params = {"Key": self.prefix + key, "Body": body} | _digest(body) | condition
        answer = self._ask("put_object", params, answers=answers, conditional=bool(condition))
        if isinstance(answer, Verdict):
            return Conflict()
        etag: str = answer["ETag"]
        return etag

    def commit(self, change: Change) -> str | Conflict:
        """Add the entries, put the object on its condition, have the entries dropped soon."""
        etag = commit_in_steps(self, change, self._drops.add)
        self._drops.flush_if_due()
        return etag

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects in bulk; missing ones are fine."""
        objects = [{"Key": self.prefix + key} for key in keys]
        for begin in range(0, len(objects), BULK):
            bulk = {"Objects": objects[begin : begin + BULK], "Quiet": True}
            answer = self._ask("delete_objects", {"Delete": bulk})
            self._raise_undeleted(answer.get("Errors", []))

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        """Return the keys that start with `prefix` and sort after `after`, in order."""
        self._drops.flush_if_due()
        found: Page = []
        limit = min(limit, PAGE)
        is_truncated = True
        while is_truncated and len(found) < limit:  # a page may be short and not the last
            page, is_truncated = self._list_page(prefix, after, limit - len(found))
            if is_truncated and not (page and page[-1].key > after):
                raise StoreUnsuitable(
                    "paging through listings",
                    f"The {self._place()} says that there are more keys under {prefix!r} after "
                    f"{after!r}, and gives none.",
                )
            found += page
            after = page[-1].key if page else after
        return found

    def now(self) -> datetime:
        """Return the store's time. It is asked for only until there is an answer."""
        clock = self._wire.store_clock
        if not clock.has_answer:
            self._learn_time(clock)
        return clock.now()

    def latest(self) -> datetime:
        """Return the latest that the store's time may be, by the answers seen so far."""
        self.now()
        return self._wire.store_clock.latest()

    def _learn_time(self, clock: StoreClock) -> None:
        seen = self._time_problem
        with self._asking_time:
            if self._time_problem is not None and self._time_problem is not seen:
                raise self._time_problem  # another thread has just asked in vain
            try:
                while not clock.has_answer:
                    self.get(NO_KEY)
            except BuquetError as error:
                self._time_problem = error
                raise

    def flush(self) -> None:
        """Delete what commits have dropped and has not been deleted yet."""
        self._drops.flush()

    def close(self) -> None:
        """Flush, and let go of connections; the store can be used again."""
        self.flush()
        self._client.close()

    def before_fork(self) -> None:
        """Do nothing: the client gets itself ready."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Leave the drops to the parent, and locks that another thread of it may have held."""
        self._drops = Drops(self.delete, self.clock)
        self._asking_time = threading.Lock()

    def _ask(
        self,
        operation: str,
        params: dict[str, Any],
        *,
        answers: frozenset[Verdict] = NO_ANSWERS,
        conditional: bool = False,
    ) -> Any:
        """Make a request, again and again where that helps and does no harm.

        Returns what boto3 returns, or the verdict on what it raised if that is among `answers`.
        """
        tries = TRIES_WHEN_UNDONE if conditional else TRIES
        patience = Patience(self.clock, share(self._give_up_after, TIME_LIMIT))
        mended: set[Verdict] = set()
        while True:
            try:
                return self._client(operation, Bucket=self.bucket, **params)
            except expected_errors() as error:
                verdict = judge(error)
                if verdict in answers:
                    return verdict
                if self._mend(verdict, mended) or patience.wait(
                    tries.get(verdict, 1), at_least=retry_after(error)
                ):
                    continue
                call = Request(operation, self._place(), conditional)
                raise explain(error, verdict, call) from error

    def _mend(self, verdict: Verdict, mended: set[Verdict]) -> bool:
        """Remove the cause of a refusal, once per call; return whether to try again at once."""
        if verdict in mended or verdict not in (Verdict.STALE_CREDENTIALS, Verdict.SKEWED):
            return False
        mended.add(verdict)
        if verdict is Verdict.SKEWED:
            return self._wire.learn_signing_shift()
        self._client.renew()
        return True

    def _list_page(self, prefix: str, after: str, limit: int) -> tuple[Page, bool]:
        params = {"Prefix": self.prefix + prefix, "MaxKeys": limit}
        start = {"StartAfter": self.prefix + after} if after else {}
        answer = self._ask("list_objects_v2", params | start)
        strip = len(self.prefix)
        page = [
            Listed(each["Key"][strip:], each["LastModified"].astimezone(UTC))
            for each in answer.get("Contents", ())
        ]
        return page, answer.get("IsTruncated", False)

    def _raise_undeleted(self, undeleted: Sequence[Any]) -> None:
        """Judge the first of the keys that a bulk delete left, as if it had been alone."""
        from botocore.exceptions import ClientError

        for each in undeleted:
            error = ClientError({"Error": each}, "DeleteObjects")
            verdict = judge(error)
            if verdict is not Verdict.MISSING:
                raise explain(error, verdict, Request("delete_objects", self._place())) from error

    def _place(self) -> Place:
        return Place(self.bucket, *self._client.where())


def _digest(body: bytes) -> dict[str, str]:
    """Return what lets the store refuse a body that was cut short.

    SeaweedFS 4.48 takes a write whose sender died behind the head for an empty object: the tasks in
    the old one would be gone.
    """
    return {"ContentMD5": content_md5(body)} if body else {}


def _condition(if_match: str | None, if_absent: bool) -> tuple[dict[str, str], frozenset[Verdict]]:
    """Return the condition of a write, and the answers that say that it does not hold."""
    if if_match:  # what is gone is 404 on AWS, 412 elsewhere
        return {"IfMatch": if_match}, frozenset({Verdict.LOST, Verdict.MISSING})
    if if_absent:
        return {"IfNoneMatch": "*"}, frozenset({Verdict.LOST})
    return {}, NO_ANSWERS


class Drops:
    """Keys that commits have dropped, waiting to be deleted in bulk.

    They may be lost, with the process or by a failing store: a worker or sweeper that finds a key
    that is left over deletes it. So nothing is raised here.
    """

    def __init__(self, delete: Callable[[Sequence[str]], None], clock: Clock) -> None:
        self._delete = delete
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: list[str] = []
        self._due = 0.0

    def add(self, keys: Sequence[str]) -> None:
        """Have keys deleted before long."""
        with self._lock:
            if not self._keys:
                self._due = self._clock.monotonic() + DROP_AFTER
            self._keys += keys

    def flush_if_due(self) -> None:
        """Delete them if the oldest has waited long enough, or one request could not take more."""
        if self._keys and (len(self._keys) >= BULK or self._clock.monotonic() >= self._due):
            self.flush()

    def flush(self) -> None:
        """Delete them now."""
        with self._lock:
            keys, self._keys = self._keys, []
        try:
            self._delete(keys)
        except BuquetError as error:
            logger.warning(
                "%d entries that are no longer wanted could not be deleted. A sweep will do it: %s",
                len(keys),
                error,
            )
