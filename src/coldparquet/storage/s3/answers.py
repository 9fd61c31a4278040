"""Takes a successful answer to a ranged GET apart, and believes none of it before it is checked."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coldparquet.errors import StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.http.broken_body import BrokenBodyError
from coldparquet.storage.requests import FetchedRange, RangeRequest, clipped
from coldparquet.storage.s3.errors import CONNECTION_FAILURES, connection_error
from coldparquet.storage.s3.object_facts import checksum_from_headers, seconds_of_date
from coldparquet.storage.wrappers.ledger import note_received

if TYPE_CHECKING:
    import aiohttp

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_MAX_REFUSAL_BYTES = 64 * 1024

_LEAST_BYTES_PER_STALL = 16 * 1024
"""A body of which not even this arrives in the time in which a silence is a stall has stalled as well: single bytes, sent now
and then, would keep a request busy for ever."""


async def take_range(
    response: aiohttp.ClientResponse, request: RangeRequest, *, stall_timeout_s: float
) -> FetchedRange:
    """Return the bytes of a 200, 206 or 416 answer, after its headers were compared with the request.

    Args:
        response: The answer, whose body was not read yet.
        request: What was asked for.
        stall_timeout_s: Time in which a few KiB must arrive; whoever sent the request watches for silence.

    Raises:
        StorageError: ``RangeIgnored``: the whole object comes instead of the range (its body is not read);
            ``WrongRange``: other bytes than those asked for.
        BrokenBodyError: The body ends early; the error holds what arrived.
    """
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        await read_up_to(response, _MAX_REFUSAL_BYTES)  # so that the connection can serve again
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


async def read_up_to(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Return the body, at most ``limit_bytes`` of it."""
    try:
        return await response.content.readexactly(limit_bytes)
    except asyncio.IncompleteReadError as complete:
        return complete.partial


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
    clock = asyncio.get_running_loop().time
    missing_bytes = size_bytes
    checked_s, missing_then_bytes = clock(), missing_bytes
    try:
        while missing_bytes:
            block = await response.content.read(missing_bytes)
            if not block:
                return StorageError("the body ended early; try again", kind="ShortRead")
            blocks.append(block)
            missing_bytes -= len(block)
            now_s = clock()
            if now_s - checked_s >= stall_timeout_s:
                arrived_bytes = missing_then_bytes - missing_bytes
                if missing_bytes and arrived_bytes < _LEAST_BYTES_PER_STALL:
                    return StorageError(
                        f"only {arrived_bytes} bytes arrived in {now_s - checked_s:.1f} s; try again", kind="Timeout"
                    )
                checked_s, missing_then_bytes = now_s, missing_bytes
    except CONNECTION_FAILURES as error:
        return connection_error(error, path=path)
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
