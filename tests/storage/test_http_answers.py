"""What stores make of every kind of HTTP answer, honest or not: of S3 and of web servers, which share one client."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.open import open_store
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.requests import FetchedRange
from coldparquet.storage.retry import RetryStore
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import Answer, Script, client_has_gone, raw, refuse, respond

CONTENT = bytes(range(256)) * 400
ETAG = '"version-1"'
ASKED = ByteRange(1_000, 91_000)


class Object:
    """One object of a server, as a store sees it."""

    def __init__(self, kind: str, endpoint_url: str) -> None:
        url, storage_options = f"{endpoint_url}/bucket/key", dict[str, Any]()
        if kind == "s3":
            url, storage_options = "s3://bucket/key", {"anon": True, "endpoint_url": endpoint_url}
        self.kind = kind
        self.store, self.path = open_store(
            url, storage_options=storage_options, store_options=StoreOptions(stall_timeout_s=0.5)
        )

    async def get(self, byte_range: ByteRange | SuffixRange) -> FetchedRange:
        return await self.store.get(request_for(self.path, byte_range))


@pytest.fixture(params=["s3", "web"])
async def found(request: pytest.FixtureRequest, script: Script) -> AsyncIterator[Object]:
    found = Object(request.param, script.endpoint_url)
    yield found
    await found.store.aclose()


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
    ],
)
async def test_lying_content_range(
    script: Script, found: Object, asked: ByteRange, content_range: str, body: bytes
) -> None:
    script.answers = [respond(206, body, Content_Range=content_range)]
    with pytest.raises(StorageError) as caught:
        await found.get(asked)
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
async def test_body_that_ends_early(script: Script, found: Object, head: str) -> None:
    script.answers = [raw(head, b"abcd")]
    with pytest.raises(StorageError) as caught:
        await found.get(ByteRange(0, 10))
    assert caught.value.kind == "ShortRead"
    assert caught.value.path == found.path


async def test_body_without_length_is_read_as_far_as_it_was_asked_for(script: Script, found: Object) -> None:
    head = "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-3/100\nConnection: close"
    script.answers = [raw(head, b"abcd" * 100)]
    assert (await found.get(ByteRange(0, 4))).data == b"abcd"


async def test_compressed_answer_is_not_unpacked(script: Script, found: Object) -> None:
    script.answers = [respond(206, b"\x1f\x8bzz", Content_Range="bytes 0-3/9", Content_Encoding="gzip")]
    assert (await found.get(ByteRange(0, 4))).data == b"\x1f\x8bzz"
    assert script.requests[0].headers["Accept-Encoding"] == "identity"


async def test_whole_object_is_taken_only_for_a_range_that_covers_it(script: Script, found: Object) -> None:
    script.answers = [respond(200, b"0123456789", ETag='"1"')]
    for asked in (ByteRange(0, 10), ByteRange(0, 64), SuffixRange(10), SuffixRange(64)):
        fetched = await found.get(asked)
        assert (fetched.data, fetched.start, fetched.object_size_bytes) == (b"0123456789", 0, 10)
        assert fetched.etag == '"1"'
    for asked in (ByteRange(0, 9), ByteRange(1, 10)):
        with pytest.raises(StorageError) as caught:
            await found.get(asked)
        assert caught.value.kind == "RangeIgnored"


async def test_endless_answer_to_a_range_is_not_read(script: Script, found: Object) -> None:
    script.answers = [raw("HTTP/1.1 200 OK\nContent-Length: 10000000000000", b"x" * 100)]
    with pytest.raises(StorageError) as caught:
        await found.get(ByteRange(0, 10))
    assert caught.value.kind == "RangeIgnored"


async def test_range_behind_the_end_is_empty(script: Script, found: Object) -> None:
    script.answers = [refuse(416, "InvalidRange", Content_Range="bytes */10")]
    fetched = await found.get(ByteRange(10, 20))
    assert (fetched.data, fetched.start, fetched.object_size_bytes) == (b"", 10, 10)
    with pytest.raises(StorageError) as caught:
        await found.get(ByteRange(9, 20))
    assert caught.value.kind == "WrongRange"
    script.answers = [refuse(416, "InvalidRange")]
    assert (await found.get(SuffixRange(8))).data == b""


async def test_no_connection_means_that_nothing_was_sent(found: Object) -> None:
    nowhere = Object(found.kind, "http://127.0.0.1:9")
    calls: list[Awaitable[object]] = [nowhere.get(ByteRange(0, 4))]
    if found.kind == "s3":
        calls.append(nowhere.store.put(found.path, b"abc", overwrite=False))
    option = "endpoint_url" if found.kind == "s3" else "the URL"
    for call in calls:
        with pytest.raises(StorageError, match=f"check {option} and network") as caught:
            await call
        assert (caught.value.kind, caught.value.details["was_sent"]) == ("ConnectionFailed", False)
    await nowhere.store.aclose()


async def test_server_that_hangs_up(script: Script, found: Object) -> None:
    async def hang_up(request: web.BaseRequest) -> web.Response:
        assert request.transport
        request.transport.close()
        return web.Response()

    script.answers = [hang_up]
    with pytest.raises(StorageError) as caught:
        await found.get(ByteRange(0, 4))
    assert caught.value.kind == "ConnectionFailed"


async def test_answer_that_is_no_http(script: Script, found: Object) -> None:
    script.answers = [raw("SSH-2.0-OpenSSH", b"")]
    with pytest.raises(StorageError):
        await found.get(ByteRange(0, 4))


async def test_cancelled_get_closes_its_connection(script: Script, found: Object) -> None:
    async def wait(request: web.BaseRequest) -> web.Response:
        await client_has_gone(request)
        return web.Response()

    script.answers = [wait]
    reader = asyncio.create_task(found.get(ByteRange(0, 10)))
    await script.arrived.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    async with asyncio.timeout(60):
        while script.requests[0].transport:  # noqa: ASYNC110 - a transport has no event to wait for
            await asyncio.sleep(0.01)


def asked_range(request: web.BaseRequest) -> ByteRange:
    first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
    return ByteRange(int(first), int(last) + 1)


def serve(*, etag: str = ETAG) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("If-Match", etag) != etag:
            return web.Response(status=412)
        asked = asked_range(request)
        return web.Response(status=206, body=CONTENT[asked.start : asked.stop], headers=head(asked, etag))

    return answer


def head(asked: ByteRange, etag: str = ETAG) -> dict[str, str]:
    return {"Content-Range": f"bytes {asked.start}-{asked.stop - 1}/{len(CONTENT)}", "ETag": etag}


def cut(after_bytes: int, *, how: str, etag: str = ETAG) -> Answer:
    """Send the head and so many bytes; then reset or close the connection, or say nothing any more."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = asked_range(request)
        response = web.StreamResponse(status=206, headers=head(asked, etag))
        response.content_length = asked.length_bytes
        await response.prepare(request)
        await response.write(CONTENT[asked.start : asked.start + after_bytes])
        await asyncio.sleep(0.05)  # so that a reset does not overtake the bytes
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        if how == "reset":
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        elif how == "closed":
            transport.close()
        else:
            await client_has_gone(request)
        return response

    return answer


@pytest.mark.parametrize(
    ("how", "kinds"),
    [("reset", {"ConnectionFailed", "ShortRead"}), ("closed", {"ShortRead"}), ("silent", {"Timeout"})],
)
async def test_bytes_that_arrived_are_kept(script: Script, found: Object, how: str, kinds: set[str]) -> None:
    script.answers = [cut(40_000, how=how)]
    with pytest.raises(BrokenBodyError, match="after 40000 of 90000 bytes") as caught:
        await found.get(ASKED)
    error = caught.value
    assert error.kind in kinds
    assert error.received is not None
    assert (error.received.data, error.received.start) == (CONTENT[1_000:41_000], 1_000)
    assert (error.received.etag, error.received.object_size_bytes) == (ETAG, len(CONTENT))
    assert (error.path, error.details["byte_range"], error.details["status"]) == (found.path, ASKED, 206)
    assert error.details["elapsed_s"] < 30


@pytest.mark.parametrize("how", ["reset", "closed", "silent"])
async def test_the_rest_is_asked_for_with_the_same_version(script: Script, found: Object, how: str) -> None:
    script.answers = [cut(40_000, how=how), refuse(503, "SlowDown"), cut(10_000, how=how), serve()]
    patient = RetryStore(found.store, max_attempts=3, random=lambda: 0.0)
    fetched = await patient.get(request_for(found.path, ASKED))
    assert (fetched.data, fetched.start, fetched.etag) == (CONTENT[1_000:91_000], 1_000, ETAG)
    assert [(request.headers["Range"], request.headers.get("If-Match")) for request in script.requests] == [
        ("bytes=1000-90999", None),
        ("bytes=41000-90999", ETAG),
        ("bytes=41000-90999", ETAG),
        ("bytes=51000-90999", ETAG),
    ]


async def test_object_replaced_in_the_middle_of_its_body(script: Script, found: Object) -> None:
    script.answers = [cut(40_000, how="closed"), serve(etag='"version-2"')]
    patient = RetryStore(found.store, max_attempts=3, random=lambda: 0.0)
    with pytest.raises(ObjectChangedError):
        await patient.get(request_for(found.path, ASKED, if_match=ETAG))
    assert len(script.requests) == 2


async def test_a_trickle_of_bytes_is_a_stall(script: Script, found: Object) -> None:
    async def trickle(request: web.BaseRequest) -> web.StreamResponse:
        asked = asked_range(request)
        response = web.StreamResponse(status=206, headers=head(asked))
        response.content_length = asked.length_bytes
        await response.prepare(request)
        for position in range(asked.start, asked.stop):
            await response.write(CONTENT[position : position + 1])
            await asyncio.sleep(0.02)
        return response

    script.answers = [trickle]
    with pytest.raises(BrokenBodyError, match=r"only \d+ bytes arrived in") as caught:
        await found.get(ASKED)
    assert caught.value.kind == "Timeout"
    assert caught.value.received is not None
    assert caught.value.received.data == CONTENT[1_000 : 1_000 + len(caught.value.received.data)] != b""
    with pytest.raises(BrokenBodyError):
        await RetryStore(found.store, max_attempts=2, random=lambda: 0.0).get(request_for(found.path, ASKED))
    assert len(script.requests) == 3


async def test_hedges_have_connections_of_their_own(script: Script, found: Object) -> None:
    script.answers = [serve()]
    peers: list[Any] = []
    for is_hedge in (False, True, False, True):
        await found.store.get(replace(request_for(found.path, ASKED), is_hedge=is_hedge))
        transport = script.requests[-1].transport
        assert transport is not None
        peers.append(transport.get_extra_info("peername"))
    assert peers[0] == peers[2] != peers[1] == peers[3]
