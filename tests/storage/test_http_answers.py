"""What stores make of every kind of HTTP answer, honest or not: of S3 and of web servers, which share one client."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from coldparquet.errors import ColdParquetError, ObjectChangedError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.open import open_store
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.requests import FetchedRange, Upload, UploadedPart
from coldparquet.storage.retry import RetryStore
from coldparquet.storage.s3 import xml
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import Answer, Script, client_has_gone, raw, refuse, respond, scripted_server

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


# --- Servers that never come to an end, drip by drip: every wait has an end that stall_timeout_s decides --------------


STALL_S = 0.1
LONGEST_S = 20.0
"""Far below what the drips would take, far above what a busy machine adds."""
HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: "1"\r\n'


def endless_header_lines() -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in itertools.count():
        yield b"x-%d: 1\r\n" % (number % 100)


def one_header_line_byte_by_byte() -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nx: "
    yield from itertools.repeat(b"1")


def endless_continues() -> Iterable[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


def body_byte_by_byte() -> Iterable[bytes]:
    yield HEAD + b"Content-Length: 1000000\r\n\r\n<"
    yield from itertools.repeat(b"a")


def refusal_byte_by_byte() -> Iterable[bytes]:
    yield b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\n<"
    yield from itertools.repeat(b"a")


@asynccontextmanager
async def dripping_server(pieces: Callable[[], Iterable[bytes]]) -> AsyncIterator[str]:
    """Answer every request with these pieces, one by one, as long as the client stays."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(STALL_S / 5)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


UPLOAD = Upload(path="bucket/key", upload_id="1", storage_class=None)
CALLS: dict[str, Callable[[S3Store], Awaitable[object]]] = {
    "get": lambda store: store.get(request_for("bucket/key", ByteRange(0, 10))),
    "info": lambda store: store.info("bucket/key"),
    "list": lambda store: store.list("bucket/db"),
    "list between": lambda store: store.list_between("bucket/db", start="bucket/db/a", stop="bucket/db/b"),
    "put": lambda store: store.put("bucket/key", b"abc", overwrite=True),
    "start upload": lambda store: store.start_upload("bucket/key"),
    "finish upload": lambda store: store.finish_upload(
        UPLOAD, [UploadedPart(number=1, size_bytes=1, etag="1", crc32=1)], overwrite=True
    ),
    "remove unfinished": lambda store: store.remove_unfinished("bucket/db", started_before_s=0.0),
    "delete": lambda store: store.delete(["bucket/key"]),
}
DRIPS = [
    endless_header_lines,
    one_header_line_byte_by_byte,
    endless_continues,
    body_byte_by_byte,
    refusal_byte_by_byte,
]


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize("call", CALLS)
async def test_drips_are_stalls(drip: Callable[[], Iterable[bytes]], call: str) -> None:
    if call == "info" and drip in (body_byte_by_byte, refusal_byte_by_byte):
        pytest.skip("answers to HEAD have no body")
    async with dripping_server(drip) as endpoint_url:
        store = S3Store(
            storage_options={"anon": True, "endpoint_url": endpoint_url},
            store_options=StoreOptions(stall_timeout_s=STALL_S),
        )
        started_s = time.monotonic()
        with pytest.raises(ColdParquetError) as caught:
            await asyncio.wait_for(CALLS[call](store), LONGEST_S)
        await store.aclose()
    assert isinstance(caught.value, StorageError)
    if drip not in (endless_header_lines, body_byte_by_byte):  # aiohttp refuses many headers; no XML is not waited for
        assert caught.value.kind == "Timeout", caught.value
    assert time.monotonic() - started_s < LONGEST_S


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize("call", ["get", "info", "list"])
async def test_drips_of_web_servers(drip: Callable[[], Iterable[bytes]], call: str) -> None:
    async with dripping_server(drip) as url:
        options = StoreOptions(stall_timeout_s=STALL_S)
        store, path = open_store(f"{url}/db", store_options=options)
        asked: dict[str, Any] = {
            "get": lambda: store.get(request_for(path, ByteRange(0, 10))),
            "info": lambda: store.info(path),
            "list": lambda: store.list(path),
        }
        try:
            async with asyncio.timeout(LONGEST_S):
                await asked[call]()
        except ColdParquetError as error:
            assert error.kind != "NotFound"  # noqa: PT017 - some answers are fine as far as they are looked at
        await store.aclose()


async def test_an_upload_that_takes_long_to_finish_is_waited_for() -> None:
    def blanks() -> Iterable[bytes]:
        yield HEAD + b"\r\n<?xml version='1.0'?>"
        yield from itertools.repeat(b" ", 20)  # four times as long as a stall
        yield b"<CompleteMultipartUploadResult><ETag>2</ETag></CompleteMultipartUploadResult>"

    async with dripping_server(blanks) as endpoint_url:
        store = S3Store(
            storage_options={"anon": True, "endpoint_url": endpoint_url},
            store_options=StoreOptions(stall_timeout_s=STALL_S),
        )
        assert await CALLS["finish upload"](store) == "2"
        await store.aclose()


def _page(names: Iterable[str], token: str) -> bytes:
    entries = "".join(f"<Contents><Key>{name}</Key><Size>1</Size></Contents>" for name in names)
    return (
        f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        f"{entries}</ListBucketResult>"
    ).encode()


@pytest.mark.parametrize("call", ["list", "list between"])
@pytest.mark.parametrize("names", ["same", "new"])
async def test_listings_that_never_end(monkeypatch: pytest.MonkeyPatch, call: str, names: str) -> None:
    monkeypatch.setattr(xml, "_MOST_PAGES", 50)
    async with scripted_server() as script:

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            number = len(script.requests)
            name = "db/aa" if names == "same" else f"db/a{number:09}"
            return web.Response(body=_page([name], f"token-{number}"))

        script.answers = [answer]
        store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url})
        with pytest.raises(StorageError) as caught:
            await CALLS[call](store)
        await store.aclose()
    assert (caught.value.kind, len(script.requests)) == (
        ("BadListing", 2) if names == "same" else ("ListingTooLong", 50)
    )


def test_a_listing_keeps_so_much_in_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "_MOST_KEPT_BYTES", 10_000)
    progress = xml.ListingProgress("bucket/db")
    progress.note(["a" * 5_000])
    with pytest.raises(StorageError, match="2 pages with 2 names"):
        progress.note(["b" * 5_000])


@pytest.mark.parametrize("body", [b"<a>" * 5_000_000, b"<a/>" * 4_000_000, b"<ListBucketResult>" + b" " * 16_777_216])
async def test_documents_of_many_elements(body: bytes) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body)

    async with scripted_server() as script:
        script.answers = [answer]
        store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url})
        started_s = time.process_time()
        with pytest.raises(StorageError, match="cannot be understood"):
            await store.list("bucket/db")
        await store.aclose()
    assert time.process_time() - started_s < 2.0
