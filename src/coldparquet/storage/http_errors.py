"""What refusals of S3 mean, and how long a server may keep us waiting, as our errors.

A server that sends a byte now and then is never silent, so that silence alone is no limit.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import aiohttp
from msgspec import Struct

from coldparquet.errors import AccessError, ArchivedObjectError, ColdParquetError, NotFoundError, StorageError
from coldparquet.storage.refusals import object_replaced
from coldparquet.storage.retry import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from coldparquet.options import StoreOptions


_SLOWEST_UPLOAD_BYTES_PER_S = 100_000
"""The stall timer also runs while a PUT is sent, so it is extended by the time that a slow line may need."""
_LEAST_BYTES_PER_STALL = 16 * 1024
"""A body of which not even this arrives in the time in which a silence is a stall has stalled as well."""


class StalledError(TimeoutError):
    """A server sends something, but too little to ever come to an end."""


class NoConnectionError(StalledError):
    """There was no connection in time, so that nothing was sent."""


class _Wait(Struct):
    """One request that waits for the head of its answer."""

    limit: asyncio.Timeout
    connect_s: float
    head_s: float
    is_connected: bool = False


_WAIT: ContextVar[_Wait | None] = ContextVar("coldparquet_wait", default=None)


def request_timeout(store_options: StoreOptions, *, body_bytes: int = 0) -> aiohttp.ClientTimeout:
    """Return how long a connection and the next byte may take. There is no limit for the whole of a transfer."""
    return aiohttp.ClientTimeout(
        total=None, sock_connect=store_options.connect_timeout_s, sock_read=_head_s(store_options, body_bytes)
    )


async def head_in_time(
    request: Awaitable[aiohttp.ClientResponse], store_options: StoreOptions, *, body_bytes: int = 0
) -> aiohttp.ClientResponse:
    """Wait for the head of an answer, whatever informational answers and single header lines come before its end.

    The time of waiting for a free connection does not count.
    """
    wait = _Wait(asyncio.timeout(None), store_options.connect_timeout_s, _head_s(store_options, body_bytes))
    token = _WAIT.set(wait)
    try:
        async with wait.limit:
            return await request
    except TimeoutError:
        if not wait.limit.expired():
            raise
        if not wait.is_connected:
            raise NoConnectionError(f"no connection in {wait.connect_s:g} s") from None
        raise StalledError(f"the head of the answer was not complete after {wait.head_s:.1f} s") from None
    finally:
        _WAIT.reset(token)


def watch_heads(session: aiohttp.ClientSession) -> None:
    """Let a session tell :func:`head_in_time` when a request begins to connect, and when it has its connection."""
    if _WATCH not in session.trace_configs:
        session.trace_configs.append(_WATCH)


async def read_blocks(
    response: aiohttp.ClientResponse, most_bytes: int, stall_s: float, take: Callable[[bytes], object]
) -> None:
    """Read at most so many bytes and hand them over as they come."""
    clock = asyncio.get_running_loop().time
    missing_bytes = most_bytes
    checked_s, missing_then_bytes = clock(), missing_bytes
    while missing_bytes:
        block = await response.content.read(missing_bytes)
        if not block:
            return
        take(block)
        missing_bytes -= len(block)
        now_s = clock()
        if now_s - checked_s >= stall_s:
            arrived_bytes = missing_then_bytes - missing_bytes
            if missing_bytes and arrived_bytes < _LEAST_BYTES_PER_STALL:
                raise StalledError(f"only {arrived_bytes} bytes arrived in {now_s - checked_s:.1f} s")
            checked_s, missing_then_bytes = now_s, missing_bytes


async def read_up_to(response: aiohttp.ClientResponse, limit_bytes: int, *, stall_s: float) -> bytes:
    """Return the body, at most ``limit_bytes`` of it. Errors as for :func:`read_blocks`."""
    blocks: list[bytes] = []
    await read_blocks(response, limit_bytes, stall_s, blocks.append)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _head_s(store_options: StoreOptions, body_bytes: int) -> float:
    return store_options.stall_timeout_s + body_bytes / _SLOWEST_UPLOAD_BYTES_PER_S


async def _connecting(*_: Any) -> None:
    _restart(is_connected=False)


async def _connected(*_: Any) -> None:
    _restart(is_connected=True)


def _restart(*, is_connected: bool) -> None:
    wait = _WAIT.get()
    if wait is not None:
        wait.is_connected = is_connected
        wait.limit.reschedule(asyncio.get_running_loop().time() + (wait.head_s if is_connected else wait.connect_s))


_WATCH = aiohttp.TraceConfig()
_WATCH.on_connection_create_start.append(_connecting)
_WATCH.on_connection_create_end.append(_connected)
_WATCH.on_connection_reuseconn.append(_connected)
_WATCH.freeze()


MAX_ERROR_BODY_BYTES = 64 * 1024
"""S3's error documents have about 500 bytes; what is longer is not read."""

EXPIRED_CODES = frozenset({"ExpiredToken", "TokenRefreshRequired"})
"""The credentials were good once; newer ones may be at hand."""

CONNECTION_FAILURES = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""What aiohttp raises where no answer came, or half of one."""

_MOST_TAGS = 100_000
"""S3's longest answer, a page of 1,000 keys, has about 20,000."""
_MAX_MESSAGE_CHARACTERS = 300
_MAX_WORD_CHARACTERS = 64
"""S3's longest error code has 40."""
_REGION = re.compile(r"[a-z0-9-]{1,32}")
_TOO_MANY = frozenset({"SlowDown", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ThrottlingException"})
_REDIRECTIONS = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"})

_ACCESS_ADVICE = {
    "AccessDenied": "check that the credentials allow it; S3 also answers so for a missing object when listing the "
    "bucket is not allowed",
    "AccountProblem": "see the account's billing page",
    "AllAccessDisabled": "the bucket's owner has switched it off",
    "ExpiredToken": "the session token has expired: log in again or fetch new credentials",
    "InvalidAccessKeyId": "the store does not know this access key id: check key and endpoint_url",
    "InvalidToken": "the session token is malformed or belongs to other credentials",
    "NotSignedUp": "the account is not signed up for S3",
    "RequestTimeTooSkewed": "this machine's clock differs too much from the store's: set it",
    "SignatureDoesNotMatch": "the secret does not belong to the key",
    "TokenRefreshRequired": "the session token must be refreshed",
}


_OWN_KEY = "stored using a form of Server Side Encryption"
"""What S3 says of an object that is encrypted with a key that comes with each request."""


class Refusal(Struct, frozen=True, kw_only=True):
    """An answer that is not a success."""

    status: int
    code: str
    """S3's error code; the name of the status where the body does not say."""
    message: str
    """The server's own words, shortened."""
    request_id: str | None
    region: str | None
    """Region of the bucket, where the answer names it."""
    storage_class: str | None
    retry_after_s: float | None = None
    """How long the server wants to be left alone; None where it does not say."""

    def redirects_from(self, region: str) -> bool:
        """Tell whether the answer says that the bucket lies in another region than ``region``."""
        return self.region not in (None, region) and (
            self.code in _REDIRECTIONS or self.status in (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.TEMPORARY_REDIRECT)
        )


class XmlReader:
    """Parses an XML answer as it comes; of one that is not XML, or has too many elements, the rest is not looked at."""

    def __init__(self) -> None:
        self._parser = ET.XMLParser(target=_Elements())  # noqa: S314 - bounded, and entities are refused
        self._tag_count = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._parsed_bytes = 0
        self._failure: ET.ParseError | ValueError | None = None

    def feed(self, block: bytes) -> None:
        """Take what comes next, and parse it once it is as long as all before it. Errors as for :meth:`root`.

        Some parsers begin a token anew with every block that it goes on in (CVE-2023-52425): parsed block by block, a long
        one would take a time that grows with the square of its length.
        """
        self._tag_count += block.count(b"<")  # counted before they become elements, however they are nested
        if self._tag_count > _MOST_TAGS:
            self._failure = ET.ParseError(f"more than {_MOST_TAGS} tags")
            raise self._failure
        self._waiting.append(block)
        self._waiting_bytes += len(block)
        if self._waiting_bytes >= self._parsed_bytes:
            self._parse()

    def root(self) -> ET.Element:
        """Return the root, its tags without namespaces."""
        if self._failure is not None:
            raise self._failure
        self._parse()
        root: ET.Element = self._parser.close()
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        return root

    def _parse(self) -> None:
        block = b"".join(self._waiting)
        self._waiting.clear()
        self._parsed_bytes += self._waiting_bytes
        self._waiting_bytes = 0
        try:
            self._parser.feed(block)
        except (ET.ParseError, ValueError) as error:
            self._failure = error
            raise
        except LookupError:  # an encoding that Python does not know, or knows but not as one of text
            self._failure = ValueError("the encoding is unknown")
            raise self._failure from None


class _Elements(ET.TreeBuilder):
    def doctype(self, *_names: str | None) -> None:
        raise ET.ParseError("document type declarations are refused")


def parse_xml(body: bytes) -> ET.Element:
    """Return the root of an XML answer; see :class:`XmlReader`."""
    reader = XmlReader()
    reader.feed(body)
    return reader.root()


def parse_refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, redact: Callable[[str], str] = str
) -> Refusal:
    """Return what the server says went wrong."""
    try:
        root = parse_xml(body)
    except (ET.ParseError, ValueError):
        root = ET.Element("Error")

    def text(name: str) -> str:
        return redact(root.findtext(name) or "")

    region = headers.get("x-amz-bucket-region") or text("Region") or text("BucketRegion")
    return Refusal(
        status=status,
        code=text("Code")[:_MAX_WORD_CHARACTERS] or _status_name(status),
        message=" ".join(text("Message").split())[:_MAX_MESSAGE_CHARACTERS],
        request_id=headers.get("x-amz-request-id") or text("RequestId") or None,
        region=region if _REGION.fullmatch(region) else None,
        storage_class=(text("StorageClass") or headers.get("x-amz-storage-class", ""))[:_MAX_WORD_CHARACTERS] or None,
        retry_after_s=parse_retry_after(headers.get("Retry-After"), now_s=time.time()),
    )


def refusal_error(refusal: Refusal, *, path: str, **facts: Any) -> ColdParquetError:
    """Return our error for a refusal."""
    status, code = refusal.status, refusal.code
    details = {"status": status, "code": code, "request_id": refusal.request_id, **facts}
    if refusal.retry_after_s is not None:
        details["retry_after_s"] = refusal.retry_after_s
    if code == "InvalidObjectState":
        return _archived(refusal, path, details)
    if status == HTTPStatus.NOT_FOUND:
        return _not_found(code, path, details)
    if status == HTTPStatus.PRECONDITION_FAILED:
        return object_replaced(path, **details)
    said = f"S3 answered {status} {code}" + (f" ({refusal.message})" if refusal.message else "")
    if code in _ACCESS_ADVICE or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        kind = code if code in _ACCESS_ADVICE else "AccessDenied"
        return AccessError(f"{said}: {_ACCESS_ADVICE[kind]}", path=path, kind=kind, **details)
    kind, advice = _cause_and_advice(refusal)
    return StorageError(f"{said}: {advice}", path=path, kind=kind, region=refusal.region, **details)


def _cause_and_advice(refusal: Refusal) -> tuple[str, str]:
    """Return kind and advice for a refusal that is neither about the object nor about access."""
    if refusal.region and refusal.code in _REDIRECTIONS:
        region = refusal.region
        return "WrongRegion", f"the bucket lies in {region}; give client_kwargs={{'region_name': '{region}'}}"
    if refusal.status == HTTPStatus.TOO_MANY_REQUESTS or refusal.code in _TOO_MANY:
        return "SlowDown", "too many requests; try again later"
    if refusal.code == "RequestTimeout":  # 400: the body of a request did not arrive
        return "Timeout", "try again"
    if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "ServerError", "try again"
    advice = "check the path and endpoint_url"
    if refusal.status < HTTPStatus.BAD_REQUEST:
        advice = "it points to another address; check the bucket's region and endpoint_url"
    elif refusal.status == HTTPStatus.BAD_REQUEST and not refusal.message:  # to a HEAD it never says why
        advice = (
            "check whether the session token has expired, then region, endpoint_url and path; an object that is encrypted with a key"
            " of its owner (SSE-C) cannot be read"
        )
    elif _OWN_KEY in refusal.message:
        advice = "it is encrypted with a key of its owner (SSE-C), which this library cannot send; copy it with another encryption"
    return "RequestRefused", advice


def connection_error(
    error: aiohttp.ClientError | TimeoutError | ConnectionError,
    *,
    path: str,
    check: str = "endpoint_url",
    authority_option: str = "client_kwargs={'verify': file}",
    **facts: Any,
) -> StorageError:
    """Return our error for a request that got no answer, or half of one. It repeats nothing of the request itself.

    Where no connection was made, so that nothing can have been written, its details hold ``was_sent=False``.
    """
    if isinstance(error, TimeoutError):
        if isinstance(error, NoConnectionError):
            facts["was_sent"] = False
        why = str(error) if isinstance(error, StalledError) else type(error).__name__
        return StorageError(f"the store did not answer in time ({why}); try again", path=path, kind="Timeout", **facts)
    if isinstance(error, aiohttp.ClientPayloadError):
        return StorageError("the body ended early; try again", path=path, kind="ShortRead", **facts)
    if isinstance(error, aiohttp.ClientSSLError):
        return StorageError(
            f"no trusted connection ({type(error).__name__}); name the store's certificate authority in {authority_option}",
            path=path,
            kind="CertificateInvalid",
            **facts,
        )
    reason = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, aiohttp.ClientConnectorError):
        facts["was_sent"] = False
        is_name = isinstance(error.os_error, socket.gaierror)
        reason = f"no host {error.host!r} ({reason})" if is_name else f"{_reason(error)} at {error.host}:{error.port}"
    return StorageError(
        f"the connection failed: {reason or type(error).__name__}; check {check} and network, or try again",
        path=path,
        kind="ConnectionFailed",
        **facts,
    )


def _reason(error: aiohttp.ClientConnectorError) -> str:
    number = error.os_error.errno
    return os.strerror(number) if number else error.strerror or type(error).__name__


def _archived(refusal: Refusal, path: str, details: dict[str, Any]) -> ArchivedObjectError:
    return ArchivedObjectError(
        f"the object lies in {refusal.storage_class or 'an archive class'} and must be restored before it can be read:"
        " 'coldparquet restore' of its table or partition shows the prices and asks for it",
        path=path,
        storage_class=refusal.storage_class,
        **details,
    )


def _not_found(code: str, path: str, details: dict[str, Any]) -> NotFoundError:
    if code == "NoSuchBucket":
        bucket = path.partition("/")[0]
        return NotFoundError(
            f"there is no bucket {bucket!r}; check its name and endpoint_url", path=path, kind=code, **details
        )
    if code == "NoSuchUpload":
        return NotFoundError("this upload was finished or aborted; begin it again", path=path, kind=code, **details)
    return NotFoundError("there is no such object; check the path", path=path, **details)


def _status_name(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"
