"""Two more S3 servers, not written by us: the contract of every store, and rows that come back as they went."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

import pytest

import coldparquet as cp
from coldparquet.errors import ArchivedObjectError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.transfer import read_whole
from coldparquet_testing.store_contract import StoreContract
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.random_tables import assert_identical, random_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.live_servers import LiveS3

pytestmark = pytest.mark.integration

_places = itertools.count()


@pytest.fixture(scope="module", params=["versitygw", "localstack"])
def server(request: pytest.FixtureRequest) -> LiveS3:
    return cast("LiveS3", request.getfixturevalue(request.param))


@pytest.fixture
async def store(server: LiveS3) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


@pytest.fixture
def root(server: LiveS3) -> str:
    return f"{server.bucket}/db/trades{next(_places)}"


class TestS3StoreOnOtherServers(StoreContract):
    """The contract of every store; ``store`` and ``root`` are the module's fixtures."""


@pytest.mark.parametrize("seed", [0, 6])
async def test_random_tables_are_indexed_and_read(server: LiveS3, tmp_path: Path, seed: int) -> None:
    table = await random_table(seed)
    for partition in (await table.store.list("table")).directories:
        target = tmp_path / partition / "data.parquet"
        target.parent.mkdir(parents=True)
        target.write_bytes((await read_whole(table.store, f"{partition}/data.parquet")).data)
    server.upload(tmp_path / "table", f"random{seed}")
    url, keys = f"s3://{server.bucket}/random{seed}", server.storage_options
    await index_table(url, storage_options=keys)
    assert any(key.endswith("/_pm") for key in server.keys(f"random{seed}/"))
    async with cp.open_table(url, storage_options=keys) as opened:
        assert_identical(await opened.scan().to_arrow(), table.rows)


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
async def test_localstack_archives_and_restores(localstack: LiveS3, tmp_path: Path, storage_class: str) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path / "table")
    await index_table(table)
    async with cp.open_table(table) as opened:
        expected = await opened.scan().to_arrow()
    url, keys = f"s3://{localstack.bucket}/{storage_class.lower()}", localstack.storage_options
    store = S3Store(storage_options=keys)
    for file in [path for path in table.rglob("*") if path.is_file()]:
        key = f"{url.removeprefix('s3://')}/{file.relative_to(table).as_posix()}"
        in_class = storage_class if file.name == "data.parquet" else None
        await store.put(key, file.read_bytes(), overwrite=False, storage_class=in_class)
    await store.aclose()
    async with cp.open_table(url, storage_options=keys) as opened:
        with pytest.raises(ArchivedObjectError) as refused:
            await opened.scan().to_arrow()
        assert refused.value.details["storage_classes"] == [storage_class]
        ticket = await opened.scan().restore(cp.RestoreTerms(tier="Bulk", days=1))
        await ticket.wait(storage_options=keys, first_pause_s=0.01)
        assert_identical(await opened.scan().to_arrow(), expected)
