"""Servers that never come to an end, drip by drip: every wait has an end that stall_timeout_s decides."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from coldparquet.errors import ColdParquetError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import Upload, UploadedPart
from coldparquet.storage.s3 import xml
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import scripted_server

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
