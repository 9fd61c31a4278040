"""Takes a successful answer to a ranged GET apart, and believes none of it before it is checked."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coldparquet.errors import StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import FetchedRange, RangeRequest, clipped

if TYPE_CHECKING:
    import aiohttp

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_MAX_REFUSAL_BYTES = 64 * 1024


async def take_range(response: aiohttp.ClientResponse, request: RangeRequest) -> FetchedRange:
    """Return the bytes of a 200, 206 or 416 answer, after its headers were compared with the request.

    Raises:
        StorageError: ``RangeIgnored``: the whole object comes instead of the range (its body is not read);
            ``WrongRange``: other bytes than those asked for; ``ShortRead``: the body ends early.
    """
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        await read_up_to(response, _MAX_REFUSAL_BYTES)  # so that the connection can serve again
        return _nothing(response, request)
    if response.status == HTTPStatus.OK:
        return await _whole_object(response, request)
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
    return await _take(response, request, expected, size_bytes)


async def read_up_to(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Return the body, at most ``limit_bytes`` of it."""
    try:
        return await response.content.readexactly(limit_bytes)
    except asyncio.IncompleteReadError as complete:
        return complete.partial


async def _whole_object(response: aiohttp.ClientResponse, request: RangeRequest) -> FetchedRange:
    """Accept a 200 answer only when the request covers the object, whose length must be known beforehand."""
    size_bytes = response.content_length
    if size_bytes is None or clipped(request.byte_range, object_size_bytes=size_bytes) != ByteRange(0, size_bytes):
        raise _failure(
            "the store ignored the Range header and sends the whole object; it is not read. Is this an S3 store, or "
            "does a proxy strip the header?",
            "RangeIgnored",
            response,
            request,
        )
    return await _take(response, request, ByteRange(0, size_bytes), size_bytes)


async def _take(
    response: aiohttp.ClientResponse, request: RangeRequest, expected: ByteRange, size_bytes: int
) -> FetchedRange:
    length = response.content_length
    if length is not None and length > expected.length_bytes:
        raise _failure(
            f"the body has {length} bytes, its Content-Range {expected.length_bytes}", "WrongRange", response, request
        )
    try:
        data = await response.content.readexactly(expected.length_bytes)
    except asyncio.IncompleteReadError as error:
        short = len(error.partial)
    else:
        return FetchedRange(
            data=data, start=expected.start, etag=response.headers.get("ETag"), object_size_bytes=size_bytes
        )
    raise _failure(
        f"the body ended after {short} of {expected.length_bytes} bytes; try again", "ShortRead", response, request
    )


def _nothing(response: aiohttp.ClientResponse, request: RangeRequest) -> FetchedRange:
    """Turn a 416 into no bytes: the range begins behind the end, or the object is empty."""
    size = response.headers.get("Content-Range", "").removeprefix("bytes */")
    size_bytes = int(size) if re.fullmatch(r"\d{1,18}", size, re.ASCII) else None
    start = request.byte_range.start if isinstance(request.byte_range, ByteRange) else 0
    if size_bytes is not None and clipped(request.byte_range, object_size_bytes=size_bytes).length_bytes:
        raise _failure(f"416 for a range inside an object of {size_bytes} bytes", "WrongRange", response, request)
    return FetchedRange(data=b"", start=start, etag=response.headers.get("ETag"), object_size_bytes=size_bytes)


def _failure(message: str, kind: str, response: aiohttp.ClientResponse, request: RangeRequest) -> StorageError:
    details: dict[str, Any] = {
        "byte_range": request.byte_range,
        "status": response.status,
        "request_id": response.headers.get("x-amz-request-id"),
    }
    return StorageError(message, path=request.path, kind=kind, **details)
