"""What S3Store makes of every kind of answer, honest or not: a scripted server that says what each test wants."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import Script, client_has_gone, raw, refuse, respond, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.http_servers import Answer


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def store(script: Script) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url})
    yield store
    await store.aclose()


async def get(store: S3Store, byte_range: ByteRange | SuffixRange) -> Any:
    return await store.get(request_for("bucket/db/key", byte_range))


@pytest.mark.parametrize(
    ("asked", "content_range", "body"),
    [
        (ByteRange(10, 20), "bytes 11-20/100", b"x" * 10),
        (ByteRange(10, 20), "bytes 10-20/100", b"x" * 11),
        (ByteRange(10, 20), "bytes 10-18/100", b"x" * 9),
        (ByteRange(10, 20), "bytes 10-19/15", b"x" * 10),
        (ByteRange(10, 20), "bytes 10-9/100", b""),
        (ByteRange(10, 20), "bytes 10-19/*", b"x" * 10),
        (ByteRange(10, 20), "bytes 10-19/100x", b"x" * 10),
        (ByteRange(10, 20), "", b"x" * 10),
        (ByteRange(10, 20), f"bytes 10-19/{10**30}", b"x" * 10),
        (ByteRange(10, 20), "bytes 10-19/100", b"x" * 11),
        (SuffixRange(10), "bytes 0-9/100", b"x" * 10),
    ],
)
async def test_lying_content_range(
    script: Script, store: S3Store, asked: ByteRange | SuffixRange, content_range: str, body: bytes
) -> None:
    script.answers = [respond(206, body, Content_Range=content_range)]
    with pytest.raises(StorageError) as caught:
        await get(store, asked)
    assert caught.value.kind == "WrongRange"
    assert caught.value.details["byte_range"] == asked


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-9/100\nContent-Length: 10",
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-9/100\nContent-Length: 4",
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-9/100\nConnection: close",
        "HTTP/1.1 200 OK\nContent-Length: 10",
    ],
)
async def test_body_that_ends_early(script: Script, store: S3Store, head: str) -> None:
    script.answers = [raw(head, b"abcd")]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 10))
    assert caught.value.kind == "ShortRead"
    assert caught.value.path == "bucket/db/key"


async def test_body_without_length_is_read_as_far_as_it_was_asked_for(script: Script, store: S3Store) -> None:
    head = "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-3/100\nConnection: close"
    script.answers = [raw(head, b"abcd" * 100)]
    assert (await get(store, ByteRange(0, 4))).data == b"abcd"


async def test_compressed_answer_is_not_unpacked(script: Script, store: S3Store) -> None:
    script.answers = [respond(206, b"\x1f\x8bzz", Content_Range="bytes 0-3/9", Content_Encoding="gzip")]
    assert (await get(store, ByteRange(0, 4))).data == b"\x1f\x8bzz"
    assert script.requests[0].headers["Accept-Encoding"] == "identity"


async def test_whole_object_is_taken_only_for_a_range_that_covers_it(script: Script, store: S3Store) -> None:
    script.answers = [respond(200, b"0123456789", ETag='"1"')]
    for asked in (ByteRange(0, 10), ByteRange(0, 64), SuffixRange(10), SuffixRange(64)):
        fetched = await get(store, asked)
        assert (fetched.data, fetched.start, fetched.object_size_bytes) == (b"0123456789", 0, 10)
        assert fetched.etag == '"1"'
    for asked in (ByteRange(0, 9), ByteRange(1, 10), SuffixRange(9)):
        with pytest.raises(StorageError) as caught:
            await get(store, asked)
        assert caught.value.kind == "RangeIgnored"


async def test_endless_answer_to_a_range_is_not_read(script: Script, store: S3Store) -> None:
    script.answers = [raw("HTTP/1.1 200 OK\nContent-Length: 10000000000000", b"x" * 100)]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 10))
    assert caught.value.kind == "RangeIgnored"


async def test_range_behind_the_end_is_empty(script: Script, store: S3Store) -> None:
    script.answers = [refuse(416, "InvalidRange", Content_Range="bytes */10")]
    fetched = await get(store, ByteRange(10, 20))
    assert (fetched.data, fetched.start, fetched.object_size_bytes) == (b"", 10, 10)
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(9, 20))
    assert caught.value.kind == "WrongRange"
    script.answers = [refuse(416, "InvalidRange")]
    assert (await get(store, SuffixRange(8))).data == b""


REFUSALS: list[tuple[int, str, tuple[type[ColdParquetError], str]]] = [
    (400, "ExpiredToken", (AccessError, "ExpiredToken")),
    (400, "InvalidRequest", (StorageError, "RequestRefused")),
    (401, "Whatever", (AccessError, "AccessDenied")),
    (403, "AccessDenied", (AccessError, "AccessDenied")),
    (403, "InvalidAccessKeyId", (AccessError, "InvalidAccessKeyId")),
    (403, "SignatureDoesNotMatch", (AccessError, "SignatureDoesNotMatch")),
    (403, "RequestTimeTooSkewed", (AccessError, "RequestTimeTooSkewed")),
    (403, "InvalidObjectState", (ArchivedObjectError, "ObjectArchived")),
    (404, "NoSuchKey", (NotFoundError, "NotFound")),
    (404, "NoSuchBucket", (NotFoundError, "NoSuchBucket")),
    (412, "PreconditionFailed", (ObjectChangedError, "ObjectChanged")),
    (429, "TooManyRequests", (StorageError, "SlowDown")),
    (500, "InternalError", (StorageError, "ServerError")),
    (503, "SlowDown", (StorageError, "SlowDown")),
    (503, "ServiceUnavailable", (StorageError, "ServerError")),
    (302, "Found", (StorageError, "RequestRefused")),
]


@pytest.mark.parametrize(("status", "code", "expected"), REFUSALS)
async def test_refusals(
    script: Script, store: S3Store, status: int, code: str, expected: tuple[type[ColdParquetError], str]
) -> None:
    script.answers = [refuse(status, code)]
    with pytest.raises(expected[0]) as caught:
        await get(store, ByteRange(0, 4))
    error = caught.value
    assert (error.kind, error.path) == (expected[1], "bucket/db/key")
    assert (error.details["status"], error.details["code"]) == (status, code)
    assert error.details["request_id"] == "4442587FB7D0A2F9"
    assert error.details["byte_range"] == ByteRange(0, 4)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Bad gateway", b"<Error>", b"\xff\xfe\x00", b'<!DOCTYPE x [<!ENTITY a "b">]><Error>&a;</Error>'],
)
async def test_refusal_without_a_document(script: Script, store: S3Store, body: bytes) -> None:
    script.answers = [respond(502, body)]
    with pytest.raises(StorageError, match="502 BadGateway") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "ServerError"


async def test_an_object_with_a_key_of_its_owner(script: Script, store: S3Store) -> None:
    words = "The object was stored using a form of Server Side Encryption. The correct parameters must be provided"
    body = f"<Error><Code>InvalidRequest</Code><Message>{words}</Message></Error>"
    script.answers = [respond(400, body.encode())]
    with pytest.raises(StorageError, match=r"SSE-C.*copy it with another encryption") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "RequestRefused"


async def test_refusal_of_a_look_names_what_may_be_behind_it(script: Script, store: S3Store) -> None:
    script.answers = [respond(400, b"")]
    with pytest.raises(StorageError, match="session token has expired, then region, endpoint_url and path"):
        await store.info("bucket/db/key")


async def test_refusal_with_an_endless_document(script: Script, store: S3Store) -> None:
    script.answers = [raw("HTTP/1.1 500 Oops\nContent-Length: 10000000000", b"x" * 200_000)]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "ServerError"


@pytest.mark.parametrize(
    "answer",
    [
        refuse(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1", Location="http://elsewhere.invalid/"),
        refuse(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
    ],
)
async def test_other_region_is_followed_once(script: Script, store: S3Store, answer: Answer) -> None:
    found = respond(206, b"abcd", Content_Range="bytes 0-3/4")
    script.answers = [answer, found]
    assert (await get(store, ByteRange(0, 4))).data == b"abcd"
    assert (await get(store, ByteRange(0, 4))).data == b"abcd"
    assert len(script.requests) == 3

    script.answers = [refuse(301, "PermanentRedirect", x_amz_bucket_region=f"ap-south-{turn}") for turn in range(9)]
    script.requests.clear()
    with pytest.raises(StorageError, match="ap-south-1") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "WrongRegion"
    assert len(script.requests) == 2


async def test_conditional_put(script: Script, store: S3Store) -> None:
    for status in (409, 412):
        script.answers = [refuse(status, "Conflict")]
        with pytest.raises(InvalidInputError) as caught:
            await store.put("bucket/key", b"abc", overwrite=False)
        assert caught.value.kind == "AlreadyExists"
    assert script.requests[0].headers["If-None-Match"] == "*"
    with pytest.raises(ObjectChangedError):
        await store.put("bucket/key", b"abc", overwrite=True)


async def test_listing_that_repeats_itself(script: Script, store: S3Store) -> None:
    script.answers = [
        respond(
            200,
            b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
            b"<Contents><Key>db/a</Key><Size>1</Size></Contents></ListBucketResult>",
        )
    ]
    with pytest.raises(StorageError) as caught:
        await store.list("bucket/db")
    assert caught.value.kind == "BadListing"
    assert len(script.requests) == 2


async def test_nobody_listens(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = S3Store(storage_options={"anon": True, "endpoint_url": f"http://127.0.0.1:{port}"})
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 4))
    await store.aclose()
    assert caught.value.kind == "ConnectionFailed"
    assert script.requests == []


async def test_server_that_hangs_up(script: Script, store: S3Store) -> None:
    async def hang_up(request: web.BaseRequest) -> web.Response:
        assert request.transport
        request.transport.close()
        return web.Response()

    script.answers = [hang_up]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "ConnectionFailed"


async def test_answer_that_is_no_http(script: Script, store: S3Store) -> None:
    script.answers = [raw("SSH-2.0-OpenSSH", b"")]
    with pytest.raises(StorageError):
        await get(store, ByteRange(0, 4))


async def test_stalled_body(script: Script) -> None:
    async def stall(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=206, headers={"Content-Range": "bytes 0-9/10", "Content-Length": "10"})
        await response.prepare(request)
        await response.write(b"abc")
        await client_has_gone(request)
        return response

    impatient = S3Store(
        storage_options={"anon": True, "endpoint_url": script.endpoint_url},
        store_options=StoreOptions(stall_timeout_s=0.1),
    )
    script.answers = [stall]
    with pytest.raises(BrokenBodyError) as caught:
        await get(impatient, ByteRange(0, 10))
    await impatient.aclose()
    assert caught.value.kind == "Timeout"
    assert caught.value.received is not None
    assert caught.value.received.data == b"abc"


async def test_cancelled_get_closes_its_connection(script: Script, store: S3Store) -> None:
    async def wait(request: web.BaseRequest) -> web.Response:
        await client_has_gone(request)
        return web.Response()

    script.answers = [wait]
    reader = asyncio.create_task(get(store, ByteRange(0, 10)))
    await script.arrived.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    async with asyncio.timeout(60):
        while script.requests[0].transport:  # noqa: ASYNC110 - a transport has no event to wait for
            await asyncio.sleep(0.01)
