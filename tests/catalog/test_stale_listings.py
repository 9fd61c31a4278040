"""Listings that are not up to date: right rows, or an error that says what helps, and then it helps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.cli.demo_data import write_trades
from coldparquet.errors import ObjectChangedError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from pathlib import Path

DAYS = 14
"""So many that one listing is in place of a HEAD for each."""
URL = "s3://bucket/trades"


def replace_data(table: Path, day: int) -> str:
    """Give one day's data another ETag; return its path in the store."""
    directory = sorted(path for path in table.iterdir() if path.is_dir())[day]
    data = directory / "data.parquet"
    content = data.read_bytes()
    data.unlink()
    data.write_bytes(content)
    os.utime(data, (1, 1))
    return f"bucket/trades/{directory.name}/data.parquet"


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_refreshed_table_asks_for_what_an_old_listing_got_wrong(tmp_path: Path, *, is_packed: bool) -> None:
    table_path = tmp_path / "bucket" / "trades"
    write_trades(table_path, days=DAYS, on_day=lambda: None)
    await index_table(table_path)
    if is_packed:
        with ColdStoreServer(tmp_path) as server:
            await pack_table(URL, storage_options=server.storage_options)
    with ColdStoreServer(tmp_path, ColdStoreOptions(stale_listing_s=3600)) as server:
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            rows = await table.scan(["price"]).to_arrow()
        replaced = replace_data(table_path, 1)
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            with pytest.raises(ObjectChangedError, match=r"a listing that is not up to date.*refresh the table"):
                await table.scan(["price", "symbol"]).to_arrow()
            for _ in range(2):
                await table.refresh()
                server.reset()
                assert (await table.scan(["price"]).to_arrow()).equals(rows)
                heads = [request.path for request in server.requests if request.method == "HEAD"]
                assert heads == [replaced], "only the object of which the listing is wrong costs a request"
