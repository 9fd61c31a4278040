"""A second real S3 server, not written by us: the contract of every store, and rows that come back as they went."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.whole_object import read_whole
from coldparquet.testing.store_contract import StoreContract
from tests.support.random_tables import assert_identical, random_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.live_servers import LiveS3

pytestmark = pytest.mark.integration

_places = itertools.count()


@pytest.fixture
async def store(versitygw: LiveS3) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=versitygw.storage_options)
    yield store
    await store.aclose()


@pytest.fixture
def root(versitygw: LiveS3) -> str:
    return f"{versitygw.bucket}/db/trades{next(_places)}"


class TestS3StoreOnVersitygw(StoreContract):
    """The contract of every store; ``store`` and ``root`` are the module's fixtures."""


@pytest.mark.parametrize("seed", [0, 6])
async def test_random_tables_are_indexed_and_read(versitygw: LiveS3, tmp_path: Path, seed: int) -> None:
    table = await random_table(seed)
    for partition in (await table.store.list("table")).directories:
        target = tmp_path / partition / "data.parquet"
        target.parent.mkdir(parents=True)
        target.write_bytes((await read_whole(table.store, f"{partition}/data.parquet")).data)
    versitygw.upload(tmp_path / "table", f"random{seed}")
    url, keys = f"s3://{versitygw.bucket}/random{seed}", versitygw.storage_options
    await index_table(url, storage_options=keys)
    assert any(key.endswith("/_pm") for key in versitygw.keys(f"random{seed}/"))
    async with cp.open_table(url, storage_options=keys) as opened:
        assert_identical(await opened.scan().to_arrow(), table.rows)
