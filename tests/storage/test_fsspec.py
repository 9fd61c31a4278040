from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest
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
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.fsspec_store import FsspecStore, without_secrets
from coldparquet.storage.open import open_store
from coldparquet_testing.store_contract import CONTENT, StoreContract, request_for

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


async def test_suffix_where_the_size_is_unknown() -> None:
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
