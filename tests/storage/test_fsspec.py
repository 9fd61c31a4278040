from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import fsspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.fsspec_store import FsspecStore, without_secrets
from coldparquet.storage.open_store import open_store
from coldparquet.testing.store_contract import CONTENT, StoreContract, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from coldparquet.storage.base import ObjectStore

SIGNED = "?X-Amz-Credential=AKIASECRET&X-Amz-Signature=abc123"


class TestMemoryFileSystem(StoreContract):
    knows_versions = False

    @pytest.fixture
    def store(self) -> Iterator[FsspecStore]:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        yield FsspecStore(MemoryFileSystem(), label="memory")
        MemoryFileSystem.store.clear()

    @pytest.fixture
    def root(self) -> str:
        return "/bucket/trades"


class TestLocalFileSystemInThreads(StoreContract):
    knows_versions = False
    replaces_atomically = False

    @pytest.fixture
    def store(self) -> FsspecStore:
        return FsspecStore(LocalFileSystem(auto_mkdir=True, skip_instance_cache=True), label="local")

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "table")


@pytest.fixture
async def web_server(tmp_path: Path) -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.StreamResponse:
        status = request.match_info["status"]
        match status:
            case "hang":
                await asyncio.Event().wait()
            case "ignores_ranges":
                return web.Response(body=CONTENT)
        return web.Response(status=int(status), text="no")

    async def signed(request: web.Request) -> web.StreamResponse:
        if "X-Amz-Signature" not in request.query:
            return web.Response(status=403)
        return web.FileResponse(tmp_path / "table" / "data.parquet")

    (tmp_path / "table" / "2024-03-01").mkdir(parents=True)
    (tmp_path / "table" / "data.parquet").write_bytes(CONTENT)
    application = web.Application()
    application.router.add_static("/files", tmp_path, show_index=True)
    application.router.add_get("/status/{status}/{name}", answer)
    application.router.add_get("/signed/{name}", signed)
    server = TestServer(application)
    await server.start_server()
    yield server
    await server.close()


async def fetch(url: str, byte_range: ByteRange | SuffixRange, **options: Any) -> bytes:
    store, path = open_store(url, storage_options=options)
    try:
        return (await CheckedStore(store).get(request_for(path, byte_range, may_be_short=True))).data
    finally:
        await store.aclose()


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (ByteRange(10, 20), CONTENT[10:20]),
        (ByteRange(1000, 5000), CONTENT[1000:]),
        (ByteRange(2000, 2001), b""),
        (SuffixRange(8), CONTENT[-8:]),
        (SuffixRange(5000), CONTENT),
    ],
)
async def test_web_server_ranges(web_server: TestServer, byte_range: ByteRange | SuffixRange, expected: bytes) -> None:
    assert await fetch(str(web_server.make_url("/files/table/data.parquet")), byte_range) == expected


async def test_web_server_listing(web_server: TestServer) -> None:
    store, path = open_store(str(web_server.make_url("/files/table/")))
    listing = await store.list(path)
    await store.aclose()
    assert f"{path}/2024-03-01" in {*listing.directories, *(info.path for info in listing.objects)}
    assert [(info.path, info.size_bytes) for info in listing.objects if "data" in info.path] == [
        (f"{path}/data.parquet", None)
    ]


@pytest.mark.parametrize(
    ("status", "error_class"),
    [("404", NotFoundError), ("403", AccessError), ("401", AccessError), ("503", StorageError), ("500", StorageError)],
)
async def test_web_server_errors_hold_no_signature(
    web_server: TestServer, status: str, error_class: type[ColdParquetError]
) -> None:
    url = str(web_server.make_url(f"/status/{status}/data.parquet"))
    with pytest.raises(error_class) as caught:
        await fetch(url + SIGNED, ByteRange(0, 4))
    assert caught.value.path == url
    everything = "".join(traceback.format_exception(caught.value)) + repr(pickle.dumps(caught.value))
    assert "X-Amz" not in everything
    assert "abc123" not in everything
    assert caught.value.__context__ is None
    assert error_class is not StorageError or caught.value.details["status"] == int(status)


async def test_web_server_that_ignores_ranges(web_server: TestServer) -> None:
    with pytest.raises(StorageError) as caught:
        await fetch(str(web_server.make_url("/status/ignores_ranges/data.parquet")), ByteRange(10, 20))
    assert caught.value.kind == "RangeIgnored"


async def test_web_server_that_hangs(web_server: TestServer) -> None:
    import aiohttp  # noqa: PLC0415 - only this test sets a timeout

    options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.1)}}
    with pytest.raises(StorageError) as caught:
        await fetch(str(web_server.make_url("/status/hang/data.parquet")), ByteRange(0, 4), **options)
    assert caught.value.kind == "Timeout"


async def test_signed_url_signs_requests_but_stays_out_of_the_path(web_server: TestServer) -> None:
    url = str(web_server.make_url("/signed/data.parquet"))
    assert await fetch(url + SIGNED, ByteRange(0, 4)) == CONTENT[:4]
    store, path = open_store(url + SIGNED)
    assert path == url
    assert "X-Amz" not in store.label


class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A filesystem whose every read raises what the test puts here."""

    cachable = False
    error: Exception

    def cat_file(self, *_arguments: Any, **_options: Any) -> bytes:
        raise self.error


def botocore_error(status: int, code: str) -> Exception:
    error = Exception(f"An error occurred ({code}) at https://user:pw@host/key{SIGNED}")
    error.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
    return error


def error_with(**attributes: Any) -> Exception:
    error = RuntimeError("it went wrong")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "error_class", "kind"),
    [
        (FileNotFoundError("x"), NotFoundError, "NotFound"),
        (NotADirectoryError("x"), NotFoundError, "NotFound"),
        (IsADirectoryError("x"), NotFoundError, "IsADirectory"),
        (PermissionError("x"), AccessError, "AccessDenied"),
        (TimeoutError(), StorageError, "Timeout"),
        (NotImplementedError("x"), UnsupportedError, "Unsupported"),
        (ConnectionResetError("reset"), StorageError, "StorageFailed"),
        (KeyError("bug of a filesystem"), StorageError, "StorageFailed"),
        (botocore_error(404, "NoSuchKey"), NotFoundError, "NotFound"),
        (botocore_error(403, "AccessDenied"), AccessError, "AccessDenied"),
        (botocore_error(403, "InvalidObjectState"), ArchivedObjectError, "ObjectArchived"),
        (botocore_error(503, "SlowDown"), StorageError, "StorageFailed"),
        (error_with(status_code=404), NotFoundError, "NotFound"),
        (error_with(code="403"), AccessError, "AccessDenied"),
        (error_with(status=502), StorageError, "StorageFailed"),
        (error_with(code="NoSuchThing"), StorageError, "StorageFailed"),
        (NotFoundError("already ours", kind="NoBucket"), NotFoundError, "NoBucket"),
    ],
)
async def test_errors_of_other_libraries(error: Exception, error_class: type[ColdParquetError], kind: str) -> None:
    filesystem = Refusing()
    filesystem.error = error
    with pytest.raises(error_class) as caught:
        await FsspecStore(filesystem, label="refusing").get(request_for("bucket/key", ByteRange(0, 4)))
    assert caught.value.kind == kind
    assert not any(secret in str(caught.value.as_dict()) for secret in ("X-Amz", "AKIASECRET", "pw"))
    if kind == "StorageFailed":
        assert caught.value.details["byte_range"] == ByteRange(0, 4)
        assert caught.value.details["attempts"] == 1


async def test_range_past_the_end_that_a_filesystem_refuses() -> None:
    filesystem = Refusing()
    filesystem.error = error_with(status=416)
    fetched = await FsspecStore(filesystem, label="refusing").get(request_for("key", ByteRange(10, 20)))
    assert (fetched.data, fetched.start) == (b"", 10)


async def test_suffix_where_nobody_knows_the_size() -> None:
    filesystem = Mock(async_impl=False, **{"info.return_value": {"size": None, "type": "file"}})
    with pytest.raises(UnsupportedError) as caught:
        await FsspecStore(filesystem, label="sizeless").get(request_for("key", SuffixRange(8)))
    assert caught.value.kind == "NoObjectSize"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("url='https://host/key?sig=1' failed", "url='https://host/key' failed"),
        ("https://user:pass@host/key#frag, then", "https://host/key then"),
        ("is it so? yes", "is it so? yes"),
        ("gs://bucket/a and https://h/b?x=1&y=2 end", "gs://bucket/a and https://h/b end"),
    ],
)
def test_without_secrets(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


async def test_memory_url_and_closing() -> None:
    MemoryFileSystem.store.clear()
    store: ObjectStore
    store, path = open_store("memory://table/2024-03-01/")
    assert path == "/table/2024-03-01"
    await store.put(f"{path}/_pm", CONTENT, overwrite=False)
    assert (await store.get(request_for(f"{path}/_pm", ByteRange(4, 8)))).data == CONTENT[4:8]
    await store.aclose()
    MemoryFileSystem.store.clear()
