"""Moving an object to another storage class: a copy onto itself, on the condition that it is still the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldparquet.errors import (
    ArchivedObjectError,
    ColdParquetError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.options import StoreOptions
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import stack_store
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - AWS's own example
NAME = "bucket/a day/öl+data.parquet"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    path = tmp_path / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")
    options = ColdStoreOptions(secret_key=SECRET, storage_classes={"bucket/cold": "GLACIER"})
    (tmp_path / "bucket" / "cold").write_bytes(b"frozen")
    with ColdStoreServer(tmp_path, options) as server:
        yield server


@pytest.fixture
async def store(server: ColdStoreServer) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


async def etag_of(store: S3Store, path: str) -> str:
    return (await store.info(path)).etag or ""


async def test_an_object_moves(store: S3Store, server: ColdStoreServer) -> None:
    before = await etag_of(store, NAME)
    etag = await store.change_class(NAME, storage_class="STANDARD_IA", if_match=before)
    after = await store.info(NAME)
    assert (after.etag, after.storage_class, after.size_bytes) == (etag, "STANDARD_IA", 4)
    assert [request.operation for request in server.requests] == ["HeadObject", "CopyObject", "HeadObject"]
    assert {request.bytes_sent for request in server.requests if request.operation == "HeadObject"} == {0}


@pytest.mark.parametrize(
    ("path", "error"),
    [(NAME, ObjectChangedError), ("bucket/absent", NotFoundError), ("bucket/cold", ArchivedObjectError)],
)
async def test_objects_that_do_not_move(store: S3Store, path: str, error: type[ColdParquetError]) -> None:
    with pytest.raises(error):
        await store.change_class(path, storage_class="STANDARD_IA", if_match='"another"')


async def test_a_move_that_was_turned_away_is_asked_for_again(store: S3Store, server: ColdStoreServer) -> None:
    before = await etag_of(store, NAME)
    server.set_faults(FaultRule("slow-down", operation="CopyObject", times=1))
    stack = stack_store(store, store_options=StoreOptions(), max_concurrency=2)
    await stack.store.change_class(NAME, storage_class="STANDARD_IA", if_match=before)
    assert [record.operation for record in stack.trace.records] == ["change class"] * 2


async def test_on_moto() -> None:
    with moto_server() as url, boto3_client(url) as client:
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="a b", Body=b"rows")
        store = S3Store(storage_options={**MOTO_KEYS, "endpoint_url": url})
        try:
            await store.change_class(
                "bucket/a b", storage_class="STANDARD_IA", if_match=await etag_of(store, "bucket/a b")
            )
            found = await store.info("bucket/a b")
        finally:
            await store.aclose()
        assert (found.storage_class, found.size_bytes) == ("STANDARD_IA", 4)


@pytest.mark.parametrize("store", [MemoryStore({"k": b""}), LocalStore()])
async def test_stores_without_classes(store: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        await store.change_class("k", storage_class="STANDARD_IA", if_match='"x"')
    assert caught.value.kind == "NoStorageClasses"
