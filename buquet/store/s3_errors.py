"""Turns what boto3 raises into errors of our own.

`judge` says what an exception means for the call, `explain` makes the error that the caller sees.
No exception of boto3, botocore or urllib3 goes past these two.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from attrs import frozen

from buquet.errors import (
    ConfigurationError,
    StoreAccessDenied,
    StoreError,
    StoreNotFound,
    StoreRefused,
    StoreUnavailable,
    StoreUnclear,
    StoreUnsuitable,
)


class Verdict(Enum):
    """What an exception means."""

    MISSING = auto()
    """There is no such object."""
    UNCHANGED = auto()
    """The object is the one that the reader has."""
    LOST = auto()
    """The condition of a write does not hold."""
    RACING = auto()
    """Another write was under way: nothing was written, and the winner is not known yet."""
    BUSY = auto()
    """Turned away before anything was done."""
    UNREACHED = auto()
    """There was no connection, so nothing was done."""
    BROKEN = auto()
    """It broke off or went wrong in the store: it may or may not be done."""
    STALE_CREDENTIALS = auto()
    SKEWED = auto()
    """The signature is dated too far from the store's time."""
    DENIED = auto()
    FULL = auto()
    """There is no room left, or a quota is used up: nothing was done."""
    NO_BUCKET = auto()
    MISPLACED = auto()
    """The bucket is in another region, or behind another endpoint."""
    LACKING = auto()
    """The store does not have what was asked for."""
    REFUSED = auto()
    """Refused for another reason."""
    SETTINGS = auto()
    """boto3 itself can't work with what it is given."""


TRIES_WHEN_UNDONE = {Verdict.BUSY: 7, Verdict.RACING: 7, Verdict.UNREACHED: 4}
"""How often to try in all where nothing was done, whatever the call."""

TRIES = TRIES_WHEN_UNDONE | {Verdict.BROKEN: 7}
"""How often to try in all where doing it twice does no harm."""

BY_CODE = {
    "NoSuchBucket": Verdict.NO_BUCKET,
    "NoSuchKey": Verdict.MISSING,
    "NotModified": Verdict.UNCHANGED,
    "PreconditionFailed": Verdict.LOST,
    "ConditionalRequestConflict": Verdict.RACING,
    "OperationAborted": Verdict.RACING,
    "SlowDown": Verdict.BUSY,
    "SlowDownRead": Verdict.BUSY,
    "SlowDownWrite": Verdict.BUSY,
    "ServiceUnavailable": Verdict.BUSY,
    "Throttling": Verdict.BUSY,
    "ThrottlingException": Verdict.BUSY,
    "ThrottledException": Verdict.BUSY,
    "RequestThrottled": Verdict.BUSY,
    "RequestThrottledException": Verdict.BUSY,
    "TooManyRequests": Verdict.BUSY,
    "TooManyRequestsException": Verdict.BUSY,
    "RequestLimitExceeded": Verdict.BUSY,
    "BandwidthLimitExceeded": Verdict.BUSY,
    "RequestTimeout": Verdict.BUSY,  # the body did not arrive in time
    "ExpiredToken": Verdict.STALE_CREDENTIALS,
    "ExpiredTokenException": Verdict.STALE_CREDENTIALS,
    "TokenRefreshRequired": Verdict.STALE_CREDENTIALS,
    "RequestTimeTooSkewed": Verdict.SKEWED,
    "PermanentRedirect": Verdict.MISPLACED,
    "TemporaryRedirect": Verdict.MISPLACED,
    "AuthorizationHeaderMalformed": Verdict.MISPLACED,
    "IllegalLocationConstraintException": Verdict.MISPLACED,
    "NotImplemented": Verdict.LACKING,
    "InvalidBucketName": Verdict.SETTINGS,
    "XMinioStorageFull": Verdict.FULL,
    "InvalidObjectState": Verdict.REFUSED,  # in an archive, and has to be restored first
    "AccessDenied": Verdict.DENIED,
    "InvalidToken": Verdict.DENIED,
    "InvalidAccessKeyId": Verdict.DENIED,
    "SignatureDoesNotMatch": Verdict.DENIED,
}

BY_STATUS = {
    301: Verdict.MISPLACED,
    302: Verdict.MISPLACED,
    307: Verdict.MISPLACED,
    304: Verdict.UNCHANGED,
    401: Verdict.DENIED,
    403: Verdict.DENIED,
    404: Verdict.NO_BUCKET,  # a missing object says NoSuchKey
    405: Verdict.LACKING,
    408: Verdict.BUSY,
    412: Verdict.LOST,
    429: Verdict.BUSY,
    501: Verdict.LACKING,
    507: Verdict.FULL,
}

# By the name of the class or of one above it: so a class that some botocore lacks does no harm.
BY_CLASS = {
    "EndpointConnectionError": Verdict.UNREACHED,
    "ConnectTimeoutError": Verdict.UNREACHED,
    "ProxyConnectionError": Verdict.UNREACHED,
    "HTTPClientError": Verdict.BROKEN,
    "HTTPError": Verdict.BROKEN,  # of urllib3, when the body of an error breaks off
    "IncompleteReadError": Verdict.BROKEN,
    "ResponseParserError": Verdict.BROKEN,
    "ChecksumError": Verdict.BROKEN,
    "FlexibleChecksumError": Verdict.BROKEN,
    "NoCredentialsError": Verdict.DENIED,
    "PartialCredentialsError": Verdict.DENIED,
    "CredentialRetrievalError": Verdict.DENIED,
    "MetadataRetrievalError": Verdict.DENIED,
    "NoAuthTokenError": Verdict.DENIED,
    "TokenRetrievalError": Verdict.DENIED,
    "RefreshWithMFAUnsupportedError": Verdict.DENIED,
    "SSOError": Verdict.DENIED,
    "LoginError": Verdict.DENIED,
}

FEATURES = {
    "put_object": "writing objects",
    "get_object": "reading objects",
    "delete_objects": "deleting many objects with one request (DeleteObjects)",
    "list_objects_v2": "listing objects (ListObjectsV2)",
}


@frozen
class Place:
    """Where a request went, for messages."""

    bucket: str
    region: str
    endpoint: str

    def __str__(self) -> str:
        return f"bucket {self.bucket!r} (region {self.region!r}, endpoint {self.endpoint!r})"


@frozen
class Request:
    """What was asked of the store."""

    operation: str
    place: Place
    conditional: bool = False

    @property
    def feature(self) -> str:
        """What the store must have for this call."""
        return "conditional writes" if self.conditional else FEATURES[self.operation]


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the roots of what a boto3 client raises; boto3 has long been imported then."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    return (ClientError, BotoCoreError, Boto3Error, ResponseParserError, HTTPError)


def judge(error: Exception) -> Verdict:
    """Say what an exception of boto3 means for the call that raised it."""
    if _error_of(error):
        return _judge_answer(_response_of(error))
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Verdict.SETTINGS
    names = (each.__name__ for each in type(error).__mro__)
    return next((BY_CLASS[name] for name in names if name in BY_CLASS), Verdict.SETTINGS)


def _judge_answer(response: dict[str, Any]) -> Verdict:
    code = response["Error"].get("Code") or ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in BY_CODE:
        return BY_CODE[code]
    if "quota" in code.lower():
        return Verdict.FULL
    if status in BY_STATUS:
        return BY_STATUS[status]
    return Verdict.BROKEN if status >= 500 or status < 300 else Verdict.REFUSED


def explain(error: Exception, verdict: Verdict, call: Request) -> Exception:
    """Make the error that the caller sees."""
    explained = _explain(str(error).rstrip("."), verdict, call)
    if isinstance(explained, StoreError):
        explained.code = _error_of(error).get("Code")
    return explained


def _explain(detail: str, verdict: Verdict, call: Request) -> Exception:
    if verdict is Verdict.LACKING:
        return StoreUnsuitable(call.feature, f"The {call.place} answered: {detail}.")
    if verdict in (Verdict.BROKEN, Verdict.RACING) and call.conditional:
        return StoreUnclear(_tell(_UNCLEAR, call, detail))
    kind, text = _WORDS.get(verdict, _REFUSED)
    return kind(_tell(text, call, detail))


def retry_after(error: Exception) -> float:
    """Return for how many seconds the store asks to be left alone; 0 if it does not."""
    headers = _response_of(error).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return max(float(headers.get("retry-after", 0)), 0.0)
    except ValueError:  # a date, which S3 does not send
        return 0.0


def _response_of(error: Exception) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def _error_of(error: Exception) -> dict[str, Any]:
    found: dict[str, Any] = _response_of(error).get("Error", {})
    return found


def _tell(text: str, call: Request, detail: str) -> str:
    return text.format(place=call.place, detail=detail)


_UNCLEAR = (
    "The {place} gave no clear answer to a write, which may or may not have taken effect: {detail}."
)

_REFUSED = (StoreRefused, "The {place} refused a request: {detail}.")

_RIGHTS = "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"

_WORDS: dict[Verdict, tuple[type[Exception], str]] = {
    Verdict.RACING: (
        StoreUnavailable,
        "The {place} is busy with other writes to the same object: {detail}. Try again later.",
    ),
    Verdict.BUSY: (
        StoreUnavailable,
        "The {place} is too busy: {detail}. Try again later, and with fewer requests at a time.",
    ),
    Verdict.UNREACHED: (
        StoreUnavailable,
        (
            "The {place} can't be reached: {detail}. Check the endpoint and the network, or try "
            "again later."
        ),
    ),
    Verdict.BROKEN: (
        StoreUnavailable,
        "The {place} does not answer as it should: {detail}. Try again later.",
    ),
    Verdict.STALE_CREDENTIALS: (
        StoreAccessDenied,
        (
            "The credentials for {place} have run out: {detail}. Get new ones, or give boto3 a "
            "source that renews them, such as a role or a profile."
        ),
    ),
    Verdict.SKEWED: (
        StoreAccessDenied,
        (
            "The {place} refuses requests dated by this machine's clock, which is too far off: "
            "{detail}. Set the clock."
        ),
    ),
    Verdict.DENIED: (
        StoreAccessDenied,
        (
            "Access to the {place} was denied: {detail}. Check the credentials that boto3 finds "
            f"(AWS_PROFILE, AWS_ACCESS_KEY_ID or a role) and that they allow {_RIGHTS}."
        ),
    ),
    Verdict.FULL: (
        StoreUnavailable,
        "The {place} takes no more: {detail}. Free some space, or raise its quota.",
    ),
    Verdict.NO_BUCKET: (
        StoreNotFound,
        "There is no {place}. Create it, or mend its name, the region or the endpoint.",
    ),
    Verdict.MISPLACED: (
        ConfigurationError,
        (
            "The {place} was asked for in the wrong place: {detail}. Set its region ("
            "AWS_DEFAULT_REGION or region_name) and endpoint (BUQUET_ENDPOINT_URL or endpoint_url)."
        ),
    ),
    Verdict.SETTINGS: (
        ConfigurationError,
        (
            "boto3 can't talk to the {place} as it is set up: {detail}. Mend the settings; for a "
            "private certificate authority set AWS_CA_BUNDLE."
        ),
    ),
}
