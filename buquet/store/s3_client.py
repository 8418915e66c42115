"""The boto3 client of a store: made late, one per process, and watched on the wire.

boto3 is imported here and in `s3_errors` on first use: importing it takes half a second.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import md5
from typing import Any
from weakref import finalize

from buquet.clock import Clock, StoreClock
from buquet.errors import ConfigurationError
from buquet.store.fork import watch_forks
from buquet.store.patience import share

CONNECT_TIMEOUT = 5
READ_TIMEOUT = 10
CONNECTIONS_BESIDE_THREADS = 8  # heartbeat, poller, sweeper, and what the caller does

MOST_THREADS = 1000
"""As many as a worker may have. Connections are made as they are needed, so room costs nothing;
with too little of it, busy threads throw theirs away."""

OPERATIONS = {
    "GetObject": "get",
    "PutObject": "put",
    "ListObjectsV2": "list",
    "DeleteObjects": "delete",
}

WITH_ETAG = ("GetObject", "PutObject")
ROOTS = {"ListObjectsV2": b"<ListBucketResult", "DeleteObjects": b"<DeleteResult"}
"""How the document begins that answers a request, behind its declaration."""

SHOWN = 60
"""How much of an answer that is none an error shows, in bytes."""

BODILESS = (204, 304)

AWS = ".amazonaws.com"

SIGNED_AT = "%Y%m%dT%H%M%SZ"


class Wire:
    """What the store sees of its own requests as they leave and of the answers as they arrive.

    It hooks into a client's events. A client that the user handed in carries other requests too;
    those are left alone.
    """

    def __init__(self, clock: Clock, on_request: Callable[[str], None] | None) -> None:
        self.store_clock = StoreClock(clock)
        self.signing_shift = timedelta(0)
        self._clock = clock
        self._on_request = on_request
        self._here = threading.local()

    def attach(self, client: Any) -> None:
        """Hook into the events of a client."""
        events = client.meta.events
        # Not `register`: botocore's own handler, which adds the header, would come later.
        events.register_last("before-call.s3", self._prepare)
        events.register_first("before-sign.s3", self._shift_the_signature)
        events.register_first("before-send.s3", self._see_request)
        events.register_first("before-parse.s3", self._refuse_what_is_no_answer)
        events.register_first("response-received.s3", self._see_answer)

    def detach(self, client: Any) -> None:
        """Let go of a client that lives on."""
        events = client.meta.events
        events.unregister("before-call.s3", self._prepare)
        events.unregister("before-sign.s3", self._shift_the_signature)
        events.unregister("before-send.s3", self._see_request)
        events.unregister("before-parse.s3", self._refuse_what_is_no_answer)
        events.unregister("response-received.s3", self._see_answer)

    def watch(self, call: Callable[..., Any], params: dict[str, Any]) -> Any:
        """Make a call with the hooks active, and read the body of its answer."""
        self._here.is_ours = True
        try:
            answer = call(**params)
            if "Body" in answer:
                answer["Body"] = answer["Body"].read()
            return answer
        finally:
            self._here.is_ours = False

    def learn_signing_shift(self) -> bool:
        """Date signatures by the store's clock from now on, as the last answer showed it.

        Returns whether it could be seen.

        botocore dates them by the machine's clock, and a store refuses what is over 15 minutes off.
        """
        signed_at, answered_at = self._here.signed_at, self._here.answered_at
        if signed_at is None or answered_at is None:
            return False
        # Several threads may learn it at once: so it is set, not added to.
        self.signing_shift = self._here.shift + (answered_at - _parse_signed_at(signed_at))
        return True

    def forget_clock(self) -> None:
        """Learn the store's time anew: after a fork the old clock may be locked for good."""
        self.store_clock = StoreClock(self._clock)

    def _is_ours(self) -> bool:
        return getattr(self._here, "is_ours", False)

    def _prepare(
        self, params: dict[str, Any], context: dict[str, Any], event_name: str, **_: Any
    ) -> None:
        if not self._is_ours():
            return
        params["headers"].pop("Expect", None)  # it would cost each write a round trip more
        if event_name.endswith(".DeleteObjects"):  # some stores know no other checksum
            params["headers"]["Content-MD5"] = content_md5(params["body"])
        redirect = context.get("s3_redirect")
        if redirect and AWS not in params["url"]:
            # No other store has regions to be redirected to, and botocore would ask it for ever.
            redirect["redirected"] = True

    def _shift_the_signature(self, request: Any, **_: Any) -> None:
        if self._is_ours():
            shift = self._here.shift = self.signing_shift
            request.context = _ShiftedContext(request.context, shift) if shift else request.context

    def _see_request(self, request: Any, event_name: str, **_: Any) -> None:
        if not self._is_ours():
            return
        self._here.signed_at = _as_text(request.headers.get("X-Amz-Date"))
        self._here.answered_at = None
        self._here.sent = self._clock.monotonic()
        if self._on_request:
            operation = event_name.rpartition(".")[2]
            self._on_request(OPERATIONS.get(operation, operation))

    def _refuse_what_is_no_answer(
        self, response_dict: dict[str, Any], event_name: str, **_: Any
    ) -> None:
        """Raise what botocore raises of a broken connection if an answer was cut short.

        Neither http.client nor botocore looks closely, and what is left would pass for another
        answer: a listing without keys, or a bucket that is missing. So would the page of a proxy.
        """
        from botocore.exceptions import ConnectionClosedError
        from botocore.parsers import ResponseParserError

        if not self._is_ours():
            return
        operation = event_name.rpartition(".")[2]
        if not _is_whole(response_dict, operation):
            raise ConnectionClosedError(endpoint_url=f"{operation}, in the midst of an answer")
        if not _is_of_s3(response_dict, operation):
            raise ResponseParserError(
                f"what answered {operation} is not S3, it sent {_described(response_dict)}"
            )

    def _see_answer(self, response_dict: dict[str, Any] | None, **_: Any) -> None:
        if response_dict is None or not self._is_ours():
            return
        date = response_dict["headers"].get("date")
        answered_at = _parse_date(date) if date else None
        if answered_at is None:
            self.store_clock.observe_no_date()
        else:
            self._here.answered_at = answered_at
            self.store_clock.observe(answered_at, self._here.sent, self._clock.monotonic())


def _refuse_password(endpoint: str | None) -> None:
    """Refuse an endpoint with a password, which errors and logs would show; it serves nobody."""
    if endpoint is not None and "@" in endpoint:
        raise ConfigurationError(
            "The endpoint has a user or a password before an '@'. Leave them out: credentials come "
            "from where boto3 looks for them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )


class _ShiftedContext(dict[str, Any]):
    """A request's context in which the time of signing comes out shifted."""

    def __init__(self, context: dict[str, Any], shift: timedelta) -> None:
        super().__init__(context)
        self._shift = shift

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "timestamp":
            value = (_parse_signed_at(value) + self._shift).strftime(SIGNED_AT)
        super().__setitem__(name, value)


def _parse_signed_at(text: str) -> datetime:
    return datetime.strptime(text, SIGNED_AT).replace(tzinfo=UTC)


def _as_text(header: bytes | str | None) -> str | None:
    return header.decode() if isinstance(header, bytes) else header


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:  # a store with odd dates is judged by the others of its answers
        return None
    return date.astimezone(UTC) if date.tzinfo else None  # one that was cut has no zone


def _is_whole(answer: dict[str, Any], operation: str) -> bool:
    """Return whether nothing is missing from an answer; a stream is seen to where it is read."""
    headers, status, body = answer["headers"], answer["status_code"], answer["body"]
    length = headers.get("Content-Length", "")
    is_measured = length.isdigit() and (not isinstance(body, bytes) or len(body) == int(length))
    has_end = is_measured or headers.get("Transfer-Encoding") == "chunked" or status in BODILESS
    is_half = headers.get("ETag", "").count('"') == 1
    return has_end and not (status == 200 and operation in WITH_ETAG and is_half)


def _is_of_s3(answer: dict[str, Any], operation: str) -> bool:
    """Return whether an answer of success is that of an S3 server."""
    if answer["status_code"] != 200:
        return True
    if operation in WITH_ETAG:
        return bool(answer["headers"].get("ETag"))
    body = answer["body"]
    return isinstance(body, bytes) and ROOTS.get(operation, b"") in body[:1000]


def _described(answer: dict[str, Any]) -> str:
    kind = answer["headers"].get("Content-Type", "no Content-Type")
    body = answer["body"]
    return f"{kind}: {body[:SHOWN]!r}" if isinstance(body, bytes) else f"{kind} without an ETag"


def content_md5(body: bytes) -> str:
    """Return the header with which the store refuses a body that is not this one."""
    return b64encode(md5(body, usedforsecurity=False).digest()).decode()


def _new_session() -> Any:
    """Make a session of our own: the default one belongs to the caller, and is not thread-safe."""
    import boto3
    import botocore.session

    core = botocore.session.get_session()
    parsers = core.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=_parse_timestamp)
    return boto3.Session(botocore_session=core)


def _parse_timestamp(text: Any) -> datetime:
    """Do what botocore does by itself in twice the time that all the rest of an answer takes."""
    from botocore.utils import parse_timestamp

    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(text)  # in a listing
    with suppress(AttributeError, TypeError, ValueError):
        return parsedate_to_datetime(text)  # in a header
    parsed: datetime = parse_timestamp(text)
    return parsed


class S3Client:
    """One boto3 client per process, made on first use; or the one that was handed in."""

    def __init__(
        self,
        wire: Wire,
        *,
        client: Any = None,
        session: Any = None,
        config: Any = None,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        threads: int = MOST_THREADS,
        give_up_after: float | None = None,
    ) -> None:
        self.wire = wire
        self._give_up_after = give_up_after
        self._given = client
        self._session = session
        self._config = config
        self._endpoint_url = endpoint_url
        self._region_name = region_name
        self._pool_size = threads + CONNECTIONS_BESIDE_THREADS
        self._lock = threading.Lock()
        self._here = threading.local()
        self._client: Any = None
        self._let_go: finalize[..., Any] | None = None
        watch_forks(self)

    def __call__(self, operation: str, **params: Any) -> Any:
        """Make one call, for example `client("get_object", Bucket=…, Key=…)`."""
        client = self._here.client = self.current()
        return self.wire.watch(getattr(client, operation), params)

    def current(self) -> Any:
        """Return the client of this process."""
        client = self._client
        if client is None:
            with self._lock:  # sessions are not thread-safe, and one client is enough
                if self._client is None:
                    self._client = self._make()
                client = self._client
        return client

    def renew(self) -> None:
        """Have the client of the last call made anew, unless another thread has done so already."""
        with self._lock:
            if self._given is None and self._client is getattr(self._here, "client", None):
                self._client = None

    def where(self) -> tuple[str, str]:
        """Return the region and the endpoint, as far as they are known."""
        meta = getattr(self._client, "meta", None)
        region = meta.region_name if meta else self._region_name
        return region or "not set", (meta.endpoint_url if meta else self._endpoint_url) or "AWS"

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            client, self._client = self._client, None
            if self._let_go is not None:
                self._let_go()
        if client is not None and self._given is None:
            client.close()

    def before_fork(self) -> None:
        """Have no other thread in the middle of making a client."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the client: its sockets are the parent's."""
        if self._given is None:
            self._client = None
        self._lock = threading.Lock()
        self.wire.forget_clock()

    def _make(self) -> Any:
        client = self._given or self._make_from_settings()
        self.wire.attach(client)
        if self._given is not None:  # it lives on: also where nobody closes the store
            self._let_go = finalize(self, self.wire.detach, client)
            self._let_go.atexit = False  # it may be used up to the very end
        return client

    def _make_from_settings(self) -> Any:
        from botocore.exceptions import BotoCoreError

        session = self._session or _new_session()
        _refuse_password(self._endpoint_url)
        try:
            client = session.client(
                "s3",
                region_name=self._region_name,
                endpoint_url=self._endpoint_url,
                config=self._merged_config(),
            )
        except BotoCoreError:  # of a region that is none it says so, and this is a ValueError too
            raise
        except ValueError as error:  # so says botocore of an endpoint that is no URL
            _refuse_password(str(error))
            raise ConfigurationError(
                f"The endpoint {self._endpoint_url!r} can't be used: {error}. Give a URL such as "
                "'https://s3.example.com'."
            ) from error
        _refuse_password(client.meta.endpoint_url)  # it may come from the environment
        return client

    def _merged_config(self) -> Any:
        from botocore.config import Config

        ours = Config(
            connect_timeout=share(self._give_up_after, CONNECT_TIMEOUT),
            read_timeout=share(self._give_up_after, READ_TIMEOUT),
            max_pool_connections=self._pool_size,
            # Older stores don't know the checksums that botocore likes to add.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # A write that is sent twice may be refused for its own first copy: `S3Store` tries again
        # where that does no harm, and botocore never does.
        once = Config(retries={"total_max_attempts": 1, "mode": "standard"})
        return ours.merge(self._config).merge(once) if self._config else ours.merge(once)
