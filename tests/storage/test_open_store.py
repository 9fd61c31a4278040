from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import ColdParquetError, InvalidInputError, StorageError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.open import open_store
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.urls import name_url
from coldparquet.storage.web import WebStore
from coldparquet_testing.simulator import ColdStoreServer
from coldparquet_testing.store_contract import request_for
from tests.support.questdb_tables import PARTITIONS


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/data/trades/", "/data/trades"),
        ("/data/a b%20c", "/data/a b%20c"),
        ("/data/a?b#c", "/data/a?b#c"),
        ("file:///data/trades/", "/data/trades"),
        ("local:///data/trades", "/data/trades"),
        ("trades", str(Path.cwd() / "trades")),
        ("~/trades", str(Path.home() / "trades")),
        ("/", "/"),
        ("/data/a::b:/c", "/data/a::b:/c"),
        ("~no-such-user-here", str(Path.cwd() / "~no-such-user-here")),
    ],
)
def test_local_urls(url: str, expected: str) -> None:
    store, path = open_store(url)
    assert isinstance(store, LocalStore)
    assert path == expected


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
async def test_s3_urls(scheme: str) -> None:
    store, path = open_store(f"{scheme}://bucket/db/trades/?x#y/", storage_options={"key": "k", "secret": "s"})
    assert type(store).__name__ == "S3Store"
    assert path == "bucket/db/trades/?x#y"
    await store.aclose()


@pytest.mark.parametrize(
    ("url", "package", "remedy"),
    [
        ("s3://bucket/key", "aiohttp", r"pip install 'coldparquet\[s3\]'"),
        ("s3://bucket/key", "botocore", r"pip install 'coldparquet\[s3\]'"),
        ("https://host/path", "aiohttp", r"pip install 'coldparquet\[s3\]'"),
        ("sftp://host/path", "paramiko", "sftp"),
    ],
)
async def test_a_url_without_its_package(monkeypatch: pytest.MonkeyPatch, url: str, package: str, remedy: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=remedy) as caught:
        open_store(url)
    assert caught.value.kind == "MissingPackage"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "empty"),
        ("s3://", "bucket"),
        ("s3:///key", "bucket"),
        ("s3://AKIA:hunter2@bucket/key", "storage_options"),
        ("https://user:hunter2@host/key", "storage_options"),
        ("simplecache::https://user:hunter2@host/key", "storage_options"),
        ("filecache::http://user:hunter2@host/key?x=1", "storage_options"),
        ("blockcache::ftp://user:hunter2@host/key", "storage_options"),
        ("zip://a::simplecache::sftp://user:hunter2@host/a.zip", "storage_options"),
        ("simplecache::https://host/key?sig=hunter2", "query string of a chained URL"),
        ("blockcache::HTTP://host/key?sig=hunter2", "query string of a chained URL"),
        ("s3://bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=hunter2", "presigned URLs begin with https"),
        ("s3://bucket/key?versionId=1&x-amz-security-token=hunter2", "presigned URLs begin with https"),
        ("s3:/AKIA:hunter2@bucket/key", "begins with s3://, with two slashes"),
        ("HTTPS:/host/key?sig=hunter2", "begins with HTTPS://, with two slashes"),
        ("https://host:hunter2/key", "no sound host and port"),
        ("http://[::1/key?sig=hunter2", "no sound host and port"),
        ("http://host:99999/key?sig=hunter2", "no sound host and port"),
        ("nonsense://host/path", "nonsense"),
        ("/a\0b", "cannot be a file path"),
    ],
)
def test_urls_that_cannot_be_opened(url: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value.as_dict())


def test_a_filesystem_that_connects_at_once_and_fails() -> None:
    with pytest.raises(StorageError, match="ConnectionRefusedError") as caught:
        open_store("ftp://user:hunter2@127.0.0.1:1/data")
    assert caught.value.path == "ftp://127.0.0.1:1/data"
    assert "hunter2" not in str(caught.value.as_dict())


def test_a_signed_url_inside_of_a_chain_stays_secret() -> None:
    with pytest.raises(StorageError) as caught:
        open_store("zip://key::http://127.0.0.1:1/a.zip?sig=hunter2")
    error = caught.value
    assert error.__context__ is None
    assert "hunter2" not in f"{error!r} {error.as_dict()}"


async def test_chained_url(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("2024-03-01/_pm", b"sidecar")
    store, path = open_store(f"zip://2024-03-01/_pm::{tmp_path}/table.zip")
    assert isinstance(store, FsspecStore)
    assert (await store.get(request_for(path, ByteRange(0, 4)))).data == b"side"
    await store.aclose()


async def test_each_web_store_has_its_own_connections() -> None:
    first, _ = open_store("https://example.org/a")
    second, _ = open_store("https://example.org/a")
    assert first is not second
    assert isinstance(first, WebStore)
    assert isinstance(second, WebStore)
    assert isinstance(first._store, FsspecStore)
    assert isinstance(second._store, FsspecStore)
    assert first._store._filesystem is not second._store._filesystem


async def test_a_version_of_one_object() -> None:
    for url, path, versions in (
        (
            "s3://bucket/db/key?versionId=3sL4kqtJlcpXroDTDmJ.xa-_1",
            "bucket/db/key",
            {"bucket/db/key": "3sL4kqtJlcpXroDTDmJ.xa-_1"},
        ),
        ("s3://bucket/db/key?versionId=null", "bucket/db/key", {"bucket/db/key": "null"}),
        ("s3://bucket/db/key?versionId=", "bucket/db/key?versionId=", {}),
        ("s3://bucket/db/key?versionId=a/b", "bucket/db/key?versionId=a/b", {}),
    ):
        store, found = open_store(url, storage_options={"anon": True})
        assert isinstance(store, S3Store)
        assert (found, store._versions) == (path, versions)


# --- Errors that leave an open store name objects by URLs, which can be pasted into the next command ------------------


GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
DIRECTORY = f"s3://bucket/db/{GOLDEN.directory.name}"
DATA = f"{DIRECTORY}/data.parquet"


@pytest.mark.parametrize(
    ("url", "opened", "path", "shown"),
    [
        ("s3://b/t", "b/t", "b/t/p/_pm", "s3://b/t/p/_pm"),
        ("s3://b/t/", "b/t", "b/t", "s3://b/t/"),
        ("s3://b/t/p/data.parquet", "b/t/p/data.parquet", "b/t/_txn", "s3://b/t/_txn"),
        ("s3://b/k?versionId=v1", "b/k", "b/k", "s3://b/k?versionId=v1"),
        ("gs://b/t", "b/t", "b/t/p/_pm", "gs://b/t/p/_pm"),
        ("simplecache::s3://b/t", "b/t", "b/t/p", "simplecache::s3://b/t/p"),
        ("s3://b/t", "b/t", "other/t/p", "other/t/p"),
        ("s3://b/t", "b/t", "/home/prices.json", "/home/prices.json"),
        ("s3://b/t", "b/t", "s3://b/t/p", "s3://b/t/p"),
        ("s3://b/t", "b/t", None, None),
        ("https://host/t?signature=secret", "https://host/t", "https://host/t/p", "https://host/t/p"),
        ("https://host/t?signature=secret", "https://host/t", "https://host/t", "https://host/t"),
        ("sftp://host/t", "/t", "/t/p", "/t/p"),
        ("/data/t", "/data/t", "/data/t/p", "/data/t/p"),
        ("b/t", "b/t", "b/t/p", "b/t/p"),
    ],
)
def test_the_path_of_an_error_becomes_a_url(url: str, opened: str, path: str | None, shown: str | None) -> None:
    error = ColdParquetError("wrong", path=path)
    name_url(error, url, opened)
    assert error.path == shown
    name_url(error, url, opened)
    assert error.path == shown, "a second time changes nothing"


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """The only partition of the table ``s3://bucket/db``, with a sidecar."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory, pages=False, pack=False)
    return directory


async def test_errors_of_the_store_and_of_the_format(partition: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        with pytest.raises(cp.errors.NotFoundError, match=r"^s3://bucket/absent: "):
            await cp.open_table("s3://bucket/absent", storage_options=server.storage_options)

        async def read_what_is_gone() -> None:
            async with cp.open_table("s3://bucket/db", storage_options=server.storage_options) as opened:
                (partition / "data.parquet").unlink()
                await opened.scan().to_arrow()

        with pytest.raises(cp.errors.NotFoundError) as gone:
            await read_what_is_gone()
        assert gone.value.path == DATA
        assert gone.value.as_dict()["path"] == DATA
        sidecar = partition / "_pm"
        sidecar.write_bytes(sidecar.read_bytes()[:-1])
        with pytest.raises(cp.errors.FormatError) as damaged:
            await cp.open_table("s3://bucket/db", storage_options=server.storage_options)
        assert damaged.value.path == f"{DIRECTORY}/_pm"


def test_blocking_calls(partition: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:

        def read_what_is_gone() -> None:
            with cp.sync.open_table("s3://bucket/db", storage_options=server.storage_options) as opened:
                (partition / "data.parquet").unlink()
                opened.scan().to_arrow()

        with pytest.raises(cp.errors.NotFoundError) as caught:
            read_what_is_gone()
        assert caught.value.path == DATA


async def test_pieces_and_jobs(partition: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_table("s3://bucket/db", storage_options=server.storage_options) as opened:
            [piece] = await opened.scan(["id"]).pieces(1)
        (partition / "data.parquet").unlink()

        async def read_what_is_gone() -> None:
            async with cp.pieces.read_piece(piece, storage_options=server.storage_options) as batches:
                await batches.next_batch()

        with pytest.raises(cp.errors.NotFoundError) as caught:
            await read_what_is_gone()
        assert caught.value.path == DATA
        with pytest.raises(cp.errors.NotFoundError, match=r"^s3://bucket/absent: "):
            await index_table("s3://bucket/absent", storage_options=server.storage_options, pages=False, pack=False)
