"""The ranged GET of HTTP, as S3 and web servers share it: its connections, and the checks of its answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import time
import urllib.request
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from msgspec import Struct, field

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.checksums import CHECKSUM_BYTES
from coldparquet.storage.http_errors import (
    CONNECTION_FAILURES,
    MAX_ERROR_BODY_BYTES,
    Refusal,
    XmlReader,
    connection_error,
    head_in_time,
    parse_refusal,
    read_blocks,
    read_up_to,
    request_timeout,
    watch_heads,
)
from coldparquet.storage.log import note_answer, note_received
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.requests import FetchedRange, RangeRequest, StoredChecksum, clipped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import aiohttp

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import Answer
    from coldparquet.storage.requests import ChecksumAlgorithm


_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_WHOLE_SIZE = re.compile(r"/(\d{1,18})$", re.ASCII)
_MAX_REFUSAL_BYTES = 64 * 1024


RANGE_ANSWERS = frozenset(
    {
        HTTPStatus.OK,
        HTTPStatus.PARTIAL_CONTENT,
        HTTPStatus.NOT_MODIFIED,
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    }
)


async def take_ranged_answer(
    response: aiohttp.ClientResponse, request: RangeRequest, *, stall_timeout_s: float
) -> FetchedRange:
    """Return the bytes of an answer of :data:`RANGE_ANSWERS`, after its headers were compared with the request."""
    if response.status == HTTPStatus.NOT_MODIFIED and request.if_none_match is not None:
        start = request.byte_range.start if isinstance(request.byte_range, ByteRange) else 0
        etag = response.headers.get("ETag", request.if_none_match)
        modified_s = seconds_of_date(response.headers.get("Last-Modified"))
        return FetchedRange(
            data=b"", start=start, etag=etag, object_size_bytes=None, is_unchanged=True, modified_s=modified_s
        )
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        # So that the connection can serve again.
        await read_up_to(response, _MAX_REFUSAL_BYTES, stall_s=stall_timeout_s)
        return _nothing(response, request)
    if response.status == HTTPStatus.OK:
        return await _whole_object(response, request, stall_timeout_s)
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not match:
        raise _failure("a 206 answer without a readable Content-Range", "WrongRange", response, request)
    start, last, size_bytes = (int(number) for number in match.groups())
    expected = clipped(request.byte_range, object_size_bytes=size_bytes)
    if ByteRange(start, max(start, last + 1)) != expected:
        raise _failure(
            f"the answer holds bytes {start}-{last} of {size_bytes} instead of {expected}",
            "WrongRange",
            response,
            request,
        )
    return await _take(response, request, expected, size_bytes, stall_timeout_s)


async def read_xml(response: aiohttp.ClientResponse, limit_bytes: int, *, stall_s: float) -> XmlReader:
    """Parse a body as it comes, at most ``limit_bytes`` of it, and no more where it cannot be parsed."""
    reader = XmlReader()
    with suppress(ET.ParseError, ValueError):  # which the reader raises again
        await read_blocks(response, limit_bytes, stall_s, reader.feed)
    return reader


async def _whole_object(
    response: aiohttp.ClientResponse, request: RangeRequest, stall_timeout_s: float
) -> FetchedRange:
    """Accept a 200 answer only when the request covers the object, or begins with it; its length must be known beforehand."""
    size_bytes = response.content_length
    expected = ByteRange(0, 0) if size_bytes is None else clipped(request.byte_range, object_size_bytes=size_bytes)
    is_expected = expected.start == 0 and (request.wants_whole or expected.stop == size_bytes)
    if size_bytes is None or not is_expected:
        raise _failure(
            "the store ignored the Range header and sends the whole object; it is not read. Does the server "
            "know ranges, or does a proxy strip the header?",
            "RangeIgnored",
            response,
            request,
        )
    return await _take(response, request, expected, size_bytes, stall_timeout_s)


async def _take(
    response: aiohttp.ClientResponse,
    request: RangeRequest,
    expected: ByteRange,
    size_bytes: int,
    stall_timeout_s: float,
) -> FetchedRange:
    length, is_ranged = response.content_length, response.status != HTTPStatus.OK
    if is_ranged and length is not None and length > expected.length_bytes:
        raise _failure(
            f"the body has {length} bytes, its Content-Range {expected.length_bytes}", "WrongRange", response, request
        )
    blocks: list[bytes] = []
    failure = await _read(response, expected.length_bytes, stall_timeout_s, blocks, path=request.path)
    # With a range, S3 tells at best the checksum of a part.
    tells_checksum = not is_ranged or expected.length_bytes == size_bytes
    fetched = FetchedRange(
        data=blocks[0] if len(blocks) == 1 else b"".join(blocks),
        start=expected.start,
        etag=response.headers.get("ETag"),
        object_size_bytes=size_bytes,
        checksum=checksum_from_headers(response.headers) if tells_checksum else None,
        modified_s=seconds_of_date(response.headers.get("Last-Modified")),
    )
    if failure is None:
        return fetched
    note_received(len(fetched.data))
    raise BrokenBodyError(
        f"after {len(fetched.data)} of {expected.length_bytes} bytes: {failure.message}",
        kind=failure.kind,
        path=request.path,
        received=fetched,
        **_facts(response, request),
    )


async def _read(
    response: aiohttp.ClientResponse, size_bytes: int, stall_timeout_s: float, blocks: list[bytes], *, path: str
) -> StorageError | None:
    """Read so many bytes into ``blocks``; return what went wrong before they were all there."""
    try:
        await read_blocks(response, size_bytes, stall_timeout_s, blocks.append)
    except CONNECTION_FAILURES as error:
        return connection_error(error, path=path)
    if sum(map(len, blocks)) < size_bytes:
        return StorageError("the body ended early; try again", kind="ShortRead")
    return None


def _nothing(response: aiohttp.ClientResponse, request: RangeRequest) -> FetchedRange:
    """Turn a 416 into no bytes: the range begins behind the end, or the object is empty."""
    size = response.headers.get("Content-Range", "").removeprefix("bytes */")
    size_bytes = int(size) if re.fullmatch(r"\d{1,18}", size, re.ASCII) else None
    start = request.byte_range.start if isinstance(request.byte_range, ByteRange) else 0
    if size_bytes is not None and clipped(request.byte_range, object_size_bytes=size_bytes).length_bytes:
        raise _failure(f"416 for a range inside an object of {size_bytes} bytes", "WrongRange", response, request)
    return FetchedRange(data=b"", start=start, etag=response.headers.get("ETag"), object_size_bytes=size_bytes)


def _failure(message: str, kind: str, response: aiohttp.ClientResponse, request: RangeRequest) -> StorageError:
    return StorageError(message, path=request.path, kind=kind, **_facts(response, request))


def _facts(response: aiohttp.ClientResponse, request: RangeRequest) -> dict[str, Any]:
    return {
        "byte_range": request.byte_range,
        "status": response.status,
        "request_id": response.headers.get("x-amz-request-id"),
    }


def range_headers(request: RangeRequest) -> dict[str, str]:
    """Return the headers that ask for a range, and for the version that is wanted."""
    asked = request.byte_range
    if request.wants_whole:
        headers = {}
    elif isinstance(asked, ByteRange):
        headers = {"Range": f"bytes={asked.start}-{asked.stop - 1}"}
    else:
        headers = {"Range": f"bytes=-{asked.length_bytes}"}
    if request.if_match is not None:
        headers["If-Match"] = request.if_match
    if request.if_none_match is not None:
        headers["If-None-Match"] = request.if_none_match
    return headers


def may_be_whole(request: RangeRequest) -> bool:
    """Tell whether the answer may be the whole object, as far as is known before it comes."""
    return isinstance(request.byte_range, SuffixRange) or request.byte_range.start == 0


def object_size(response: aiohttp.ClientResponse) -> int | None:
    """Return the size of the whole object that the head of an answer tells; None where it does not."""
    if response.status == HTTPStatus.OK:
        return response.content_length
    match = _WHOLE_SIZE.search(response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


CRC32_HEADER = "x-amz-checksum-crc32"


_CHECKSUM_HEADERS: dict[ChecksumAlgorithm, str] = {
    "CRC32": CRC32_HEADER,
    "CRC32C": "x-amz-checksum-crc32c",
    "CRC64NVME": "x-amz-checksum-crc64nvme",
}


_CHECKSUM_TYPE_HEADER = "x-amz-checksum-type"


_CHECKSUM = re.compile(r"([A-Za-z0-9+/=]{8,12})(?:-(\d{1,5}))?", re.ASCII)


_ETAG_OF_PARTS = re.compile(r'"[0-9a-f]{32}-(\d{1,5})"', re.ASCII)


def checksum_from_headers(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return the checksum of an object. Where it does not say whether it is one of parts, the ETag does."""
    for algorithm, name in _CHECKSUM_HEADERS.items():
        checksum = parse_checksum(headers.get(name), algorithm)
        if checksum is not None:
            break
    else:
        return None
    in_parts = _ETAG_OF_PARTS.fullmatch(headers.get("ETag", ""))
    if checksum.algorithm == "CRC64NVME":  # always that of all bytes
        return checksum
    if checksum.part_count or not in_parts or headers.get(_CHECKSUM_TYPE_HEADER) == "FULL_OBJECT":
        return checksum
    return replace(checksum, part_count=int(in_parts[1]))


def parse_checksum(text: str | None, algorithm: ChecksumAlgorithm = "CRC32") -> StoredChecksum | None:
    """Parse a checksum as S3 writes it; None where it says nothing that we know."""
    match = _CHECKSUM.fullmatch(text or "")
    if not match:
        return None
    try:
        value = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None
    if len(value) != CHECKSUM_BYTES[algorithm]:
        return None
    return StoredChecksum(
        value=int.from_bytes(value, "big"), algorithm=algorithm, part_count=int(match[2]) if match[2] else None
    )


def seconds_of_date(http_date: str | None) -> float | None:
    """Return the seconds since 1970 of a date as HTTP writes it; None where it is none."""
    try:
        return parsedate_to_datetime(http_date).timestamp() if http_date else None
    except (ValueError, OverflowError):
        return None


USER_AGENT = "coldparquet"


class HttpCall(Struct, frozen=True, kw_only=True):
    """One HTTP request, before it is addressed."""

    path: str
    """What it is about, for messages."""
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    accepted: frozenset[int] = frozenset({HTTPStatus.OK})
    is_hedge: bool = False
    """Whether it is the second request for something slow, which goes over connections of its own."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Details for the errors."""


class HttpClient:
    """Connections of aiohttp: one pool for requests, and one for the second requests of hedging.

    Args:
        make_session: Called once per pool, in the loop of the first request, with ``is_hedge`` for that of second requests.
        label: Which store it is, for the error of a request from another event loop.
        store_options: How long a connection and a silence may take.
        class_header: Where answers tell the storage class of an object; None where they do not.
        owns_sessions: Whether the sessions are closed with the client; those that stores share stay open.
    """

    def __init__(
        self,
        make_session: Callable[..., Awaitable[aiohttp.ClientSession]],
        *,
        label: str,
        store_options: StoreOptions,
        class_header: str | None = None,
        owns_sessions: bool = True,
    ) -> None:
        self._make_session = make_session
        self._label = label
        self._store_options = store_options
        self._class_header = class_header
        self._owns_sessions = owns_sessions
        self._opening = asyncio.Lock()
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; the next request opens new ones."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if self._owns_sessions:
                await session.close()

    def timeout(self, call: HttpCall) -> aiohttp.ClientTimeout:
        """Return how long a connection and the next byte may take."""
        return request_timeout(self._store_options, body_bytes=len(call.body))

    async def exchange(  # noqa: PLR0913 - mostly keyword arguments
        self,
        call: HttpCall,
        send: Callable[[aiohttp.ClientSession], Awaitable[aiohttp.ClientResponse]],
        take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]],
        *,
        started_s: float,
        redact: Callable[[str], str] = str,
        has_own_timeout: bool = False,
        advice: Mapping[str, str] | None = None,
    ) -> Answer | Refusal:
        """Let ``send`` send a request and ``take`` read an accepted answer; return what any other answer says.

        What breaks off becomes an error, see ``connection_error`` and its ``advice``. Errors of aiohttp are not kept as
        ``__context__``: they hold the request with its signature.
        """
        session = await self._session(is_hedge=call.is_hedge)
        head = send(session)
        if not has_own_timeout:
            head = head_in_time(head, self._store_options, body_bytes=len(call.body))
        try:
            response = await head
            try:
                storage_class = response.headers.get(self._class_header) if self._class_header else None
                note_answer(http_status=response.status, storage_class=storage_class)
                if response.status in call.accepted:
                    return await take(response)
                stall_s = self._store_options.stall_timeout_s
                body = await read_up_to(response, MAX_ERROR_BODY_BYTES, stall_s=stall_s)
                return parse_refusal(response.status, response.headers, body, redact=redact)
            finally:
                # Gives the connection back, or closes it where the body was not read to its end.
                response.release()
        except BrokenBodyError as error:
            error.details["elapsed_s"] = time.monotonic() - started_s
            raise
        except CONNECTION_FAILURES as error:
            elapsed_s = time.monotonic() - started_s
            failure = connection_error(error, path=call.path, elapsed_s=elapsed_s, **(advice or {}), **call.facts)
        raise failure

    async def _session(self, *, is_hedge: bool) -> aiohttp.ClientSession:
        """Return a session, made by the first request."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop) and self._sessions:
            raise InvalidInputError(
                f"this {self._label} store was opened in another event loop; open one store per loop",
                kind="WrongEventLoop",
            )
        session = self._sessions.get(is_hedge)
        if session is not None and not session.closed:
            return session
        async with self._opening:
            session = self._sessions.get(is_hedge)
            if session is None or session.closed:
                self._sessions[is_hedge] = await self._make_session(is_hedge=is_hedge)
                watch_heads(self._sessions[is_hedge])
                self._loop = loop
        return self._sessions[is_hedge]


_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "REQUEST_METHOD")


def environment_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host; None goes straight."""
    if urllib.request.getproxies is not urllib.request.getproxies_environment:  # settings of the system count, too
        return _proxy(scheme, host)
    environment = tuple(os.environ.get(key) for name in _PROXY_VARIABLES for key in (name, name.upper()))
    return _proxy_of_environment(scheme, host, environment)


@lru_cache(maxsize=64)
def _proxy_of_environment(scheme: str, host: str, _environment: tuple[str | None, ...]) -> str | None:
    return _proxy(scheme, host)


def _proxy(scheme: str, host: str) -> str | None:
    # Looked up here and not by aiohttp's trust_env, which would also read ~/.netrc for every request.
    proxy = urllib.request.getproxies().get(scheme)
    return None if proxy is None or urllib.request.proxy_bypass(host) else proxy
