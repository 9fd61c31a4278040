"""The ranged GET of HTTP, as S3 and web servers share it: what is asked, and what an answer to it may be."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.requests import FetchedRange
from coldparquet.storage.s3.answers import take_range

if TYPE_CHECKING:
    import aiohttp

    from coldparquet.storage.requests import RangeRequest

_WHOLE_SIZE = re.compile(r"/(\d{1,18})$", re.ASCII)

RANGE_ANSWERS = frozenset(
    {
        HTTPStatus.OK,
        HTTPStatus.PARTIAL_CONTENT,
        HTTPStatus.NOT_MODIFIED,
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    }
)


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


async def take_ranged_answer(
    response: aiohttp.ClientResponse, request: RangeRequest, *, stall_timeout_s: float
) -> FetchedRange:
    """Return the bytes of an answer with one of the statuses :data:`RANGE_ANSWERS`. Errors as for ``take_range``."""
    if response.status == HTTPStatus.NOT_MODIFIED and request.if_none_match is not None:
        start = request.byte_range.start if isinstance(request.byte_range, ByteRange) else 0
        etag = response.headers.get("ETag", request.if_none_match)
        return FetchedRange(data=b"", start=start, etag=etag, object_size_bytes=None, is_unchanged=True)
    return await take_range(response, request, stall_timeout_s=stall_timeout_s)


def may_be_whole(request: RangeRequest) -> bool:
    """Tell whether the answer may be the whole object, as far as is known before it comes."""
    return isinstance(request.byte_range, SuffixRange) or request.byte_range.start == 0


def object_size(response: aiohttp.ClientResponse) -> int | None:
    """Return the size of the whole object that the head of an answer tells; None where it does not."""
    if response.status == HTTPStatus.OK:
        return response.content_length
    match = _WHOLE_SIZE.search(response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
