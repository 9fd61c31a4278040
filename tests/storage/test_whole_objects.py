"""Objects that are read as a whole are compared with the checksum that the store keeps of them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage import checked
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.checked import CheckedStore, read_whole
from coldparquet.storage.open import stack_store
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from coldparquet_testing.store_contract import request_for
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.request_logs import finished_requests

CONTENT = bytes(range(256)) * 1024
PATH = "bucket/object"


@pytest.fixture(params=["CRC32", "CRC32C", "CRC64NVME"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / PATH).write_bytes(CONTENT)
    with ColdStoreServer(tmp_path, ColdStoreOptions(checksum_of_files=request.param)) as server:
        yield server


@pytest.fixture
async def store(server: ColdStoreServer) -> AsyncIterator[ObjectStore]:
    store = S3Store(storage_options=server.storage_options)
    # A hedged request would take the fault that was meant for another.
    yield stack_store(store, store_options=StoreOptions(hedging=False), max_concurrency=4).store
    await store.aclose()


async def test_a_whole_object_comes_without_a_range(store: ObjectStore, server: ColdStoreServer) -> None:
    assert (await read_whole(store, PATH)).data == CONTENT
    assert [(request.method, request.status) for request in await finished_requests(server)] == [("GET", 200)]


async def test_an_empty_object_is_read(store: ObjectStore, server: ColdStoreServer, tmp_path: Path) -> None:
    (tmp_path / PATH).write_bytes(b"")
    assert (await read_whole(store, PATH)).data == b""
    assert [request.status for request in await finished_requests(server)] == [200]


async def test_one_flipped_bit_is_found(store: ObjectStore, server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("damaged-body", times=1))
    with pytest.raises(StorageError, match="not the bytes that were stored") as caught:
        await read_whole(store, PATH)
    assert (caught.value.kind, caught.value.path) == ("ChecksumMismatch", PATH)
    assert (await read_whole(store, PATH)).data == CONTENT


async def test_a_body_that_is_put_together_is_compared(store: ObjectStore, server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("cut-body", times=1))
    assert (await read_whole(store, PATH)).data == CONTENT
    assert [request.status for request in await finished_requests(server)] == [200, 206]
    server.set_faults(FaultRule("cut-body", times=1), FaultRule("damaged-body", skip=1, times=1))
    with pytest.raises(StorageError, match="not the bytes that were stored"):
        await read_whole(store, PATH)


async def test_a_long_object_is_compared_after_its_last_range(
    store: ObjectStore, server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "_REQUEST_BYTES", 100_000)
    assert (await read_whole(store, PATH)).data == CONTENT
    assert [request.status for request in await finished_requests(server)] == [200, 206, 206]
    server.set_faults(FaultRule("damaged-body", skip=2, times=1))
    with pytest.raises(StorageError, match="not the bytes that were stored"):
        await read_whole(store, PATH)


async def test_what_head_told_is_compared_with_a_whole_range(store: ObjectStore, server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("damaged-body"))
    whole, part = request_for(PATH, ByteRange(0, len(CONTENT))), request_for(PATH, ByteRange(0, len(CONTENT) - 1))
    unasked = CheckedStore(store)
    assert (await unasked.get(whole)).data != CONTENT  # S3 tells no checksum with a range
    asked = CheckedStore(store)
    await asked.info(PATH)
    await asked.get(part)
    with pytest.raises(StorageError, match="not the bytes that were stored"):
        await asked.get(whole)


async def test_a_checksum_is_that_of_one_version(store: ObjectStore, server: ColdStoreServer, tmp_path: Path) -> None:
    checked = CheckedStore(store)
    await checked.info(PATH)
    (tmp_path / PATH).write_bytes(CONTENT[::-1])
    checked.versions.forget(PATH)
    assert (await checked.get(request_for(PATH, ByteRange(0, len(CONTENT))))).data == CONTENT[::-1]
    assert [request.method for request in await finished_requests(server)] == ["HEAD", "GET"]


@pytest.mark.parametrize("file", ["_txn", "_meta", "2024-01-02.5/data.parquet", "2024-01-01.8/data.parquet"])
async def test_a_scan_refuses_what_it_read_whole_and_damaged(tmp_path: Path, file: str) -> None:
    table = tmp_path / "bucket" / "symbols"
    shutil.copytree(GOLDEN / "symbols" / "table", table)
    with ColdStoreServer(tmp_path, ColdStoreOptions(checksum_of_files="CRC32C")) as server:
        options = server.storage_options
        async with cp.open_table("s3://bucket/symbols", storage_options=options) as opened:
            assert_same_rows(await opened.scan().to_arrow(), expected_rows("symbols"))
        cp.clear_caches()
        server.set_faults(FaultRule("damaged-body", path=f"bucket/symbols/{file}"))
        with pytest.raises(StorageError) as caught:
            async with cp.open_table("s3://bucket/symbols", storage_options=options) as opened:
                await opened.scan().to_arrow()
    assert caught.value.kind == "ChecksumMismatch"
