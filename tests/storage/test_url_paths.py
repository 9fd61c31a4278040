"""Errors that leave an open store name objects by URLs, which can be pasted into the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import ColdParquetError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.urls import name_url
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

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
    await index_table(directory)
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
            await index_table("s3://bucket/absent", storage_options=server.storage_options)
