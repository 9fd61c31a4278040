"""Takes a successful answer to a ranged GET apart, and believes none of it before it is checked."""

from __future__ import annotations

import re
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from coldparquet.errors import StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.http.broken_body import BrokenBodyError
from coldparquet.storage.http.patience import read_blocks, read_up_to
from coldparquet.storage.requests import FetchedRange, RangeRequest, clipped
from coldparquet.storage.s3.errors import CONNECTION_FAILURES, XmlReader, connection_error
from coldparquet.storage.s3.object_facts import checksum_from_headers, seconds_of_date
from coldparquet.storage.wrappers.ledger import note_received

if TYPE_CHECKING:
    import aiohttp

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_MAX_REFUSAL_BYTES = 64 * 1024


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
