"""Answers in the place of a server, through an event that botocore itself offers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from email.utils import format_datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import boto3
from attrs import field, frozen
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict

from buquet.store.s3 import S3Store
from buquet.testing.clock import START, FakeClock

ENDPOINT = "http://s3.example.test:9000"


class RecordingClock(FakeClock):
    """A fake clock that knows how long was slept each time."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)


@frozen
class Answer:
    """What a server answers."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)
    is_cut: bool = False
    """Whether the connection broke before all headers had arrived."""


def error(status: int, code: str, extra: str = "", **headers: str) -> Answer:
    """Return an error as S3 words it."""
    body = f"<Error><Code>{escape(code)}</Code><Message>So it is.</Message>{extra}</Error>"
    return Answer(status, body.encode(), headers)


def written(etag: str = '"1"') -> Answer:
    """Return the answer to a PUT."""
    return Answer(200, b"", {"ETag": etag})


def listing(*keys: str, is_truncated: bool = False) -> Answer:
    """Return the answer to a LIST."""
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
        "</Contents>"
        for key in keys
    )
    truncated = str(is_truncated).lower()
    body = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{contents}</ListBucketResult>"
    return Answer(200, body.encode())


class Stub:
    """Gives its answers one after another, the last again and again; errors are raised.

    `requests` holds what would have gone over the wire.
    """

    def __init__(self, *answers: Answer | Exception) -> None:
        self.requests: list[AWSPreparedRequest] = []
        self.operations: list[str] = []
        self.clock = RecordingClock()
        self.seconds_per_answer = 0.0
        self.session = _session_of(self)
        self._answers = self._one_after_another(answers)

    def store(self, **options: Any) -> S3Store:
        """Return a store that gets its answers from here."""
        defaults = {"session": self.session, "clock": self.clock, "endpoint_url": ENDPOINT}
        return S3Store("bucket", **defaults | options)

    def sent(self, header: str) -> list[str | None]:
        """Return what each request had in a header."""
        values = [request.headers.get(header) for request in self.requests]
        return [value.decode() if isinstance(value, bytes) else value for value in values]

    def answer(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        self.requests.append(request)
        self.operations.append(event_name.rpartition(".")[2])
        self.clock.advance(self.seconds_per_answer)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        headers = {"Date": format_datetime(START, usegmt=True)} | answer.headers
        if not answer.is_cut:
            headers = {"Content-Length": str(len(answer.body))} | headers
        return AWSResponse(request.url, answer.status, HeadersDict(headers), Raw(answer.body))

    @staticmethod
    def _one_after_another(
        answers: tuple[Answer | Exception, ...],
    ) -> Iterator[Answer | Exception]:
        yield from answers
        while True:
            yield answers[-1]


_in_charge: list[Stub] = []


@cache
def _session() -> boto3.Session:
    """One for all stubs: the first client of a session takes ten times as long as the others."""
    session = boto3.Session()
    session.events.register("before-send.s3", _answer_for_who_is_in_charge)
    return session


def _answer_for_who_is_in_charge(**sent: Any) -> AWSResponse:
    return _in_charge[-1].answer(**sent)


def _session_of(stub: Stub) -> boto3.Session:
    _in_charge[:] = [stub]
    return _session()


class Raw(io.BytesIO):
    """A body that comes over a wire."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
