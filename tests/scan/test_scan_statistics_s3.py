"""What `Scan.stats` says, beside what the server saw and would put on its invoice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.prices import PriceTable
from coldparquet.scan.stats import request_dollars
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
DATA = "*/data.parquet"
UNKEPT = cp.StoreOptions(cache_limit_bytes=0, hedging=False)


@pytest.fixture
async def url(tmp_path: Path) -> str:
    partition = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(partition)
    return f"s3://bucket/db/{partition.name}"


@pytest.mark.parametrize("storage_class", ["STANDARD", "STANDARD_IA", "GLACIER_IR"])
async def test_dollars_are_those_of_the_invoice(url: str, tmp_path: Path, storage_class: str) -> None:
    options = ColdStoreOptions(storage_classes={"*": storage_class})
    with ColdStoreServer(tmp_path, options) as server:
        async with cp.open_partition(url, storage_options=server.storage_options, store_options=UNKEPT) as table:
            opened = [request_dollars(record, PriceTable.default()) for record in table.request_log]
            scan = table.scan(["id", "half"], "id >= 300")
            await scan.to_arrow()
            assert await scan.count() > 0
            assert scan.stats.dollars is not None
            assert sum(dollars or 0 for dollars in opened) + scan.stats.dollars == pytest.approx(
                server.invoice().dollars
            )
            classes = {record.storage_class for record in scan.request_log if record.operation == "get"}
            assert classes == {None if storage_class == "STANDARD" else storage_class}


async def test_what_goes_wrong_is_counted_and_what_the_store_spoils_is_free(url: str, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes={"*": "STANDARD_IA"})) as server:
        async with cp.open_partition(url, storage_options=server.storage_options, store_options=UNKEPT) as table:
            scan = table.scan(["id", "half"], "id >= 300")
            await scan.plan()
            planned = scan.stats
            server.reset()
            server.set_faults(
                FaultRule("slow-down", path=DATA, times=1),
                FaultRule("too-many-requests", path=DATA, times=1),
                FaultRule("cut-body", path=DATA, times=1),
            )
            rows = await scan.to_arrow()
            stats, log = scan.stats, scan.request_log
    assert rows.column("id").to_pylist() == list(range(300, GOLDEN.row_count + 1))
    assert stats.request_count - planned.request_count == len(server.requests)
    assert stats.retries == 3
    assert max(record.attempt for record in log) > 1
    assert {record.http_status for record in log if record.status != "ok"} == {503, 429, 206}
    assert (stats.dollars or 0) - (planned.dollars or 0) == pytest.approx(server.invoice().dollars)
    assert stats.fetched_bytes - planned.fetched_bytes == sum(
        served.bytes_sent for served in server.requests if served.status == 206
    )


async def test_first_bytes_are_noted_when_they_come(tmp_path: Path) -> None:
    file = tmp_path / "bucket" / "large.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"value": np.random.default_rng(1).normal(size=100_000)}), file, compression="none")
    with ColdStoreServer(tmp_path, ColdStoreOptions(first_byte_s=0.05, bandwidth_bytes_per_s=1e6)) as server:
        async with cp.open_partition(
            "s3://bucket/large.parquet", storage_options=server.storage_options, store_options=UNKEPT
        ) as table:
            scan = table.scan(options=cp.ReadOptions(goal="few-requests"))
            await scan.to_arrow()
    [data] = [record for record in scan.request_log if record.role == "data"]
    assert data.first_byte_s is not None
    assert data.first_byte_s - data.started_s >= 0.05
    transfer_s = data.fetched_bytes / 1e6
    assert data.finished_s - data.first_byte_s >= 0.3 * transfer_s  # busy machines notice the first byte late
    assert data.fetched_bytes >= 800_000


async def test_what_the_cache_answers_is_a_hit_and_no_request(url: str, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_partition(url, storage_options=server.storage_options) as table:
            first, again = (table.scan(["id", "half"], "id >= 300") for _ in range(2))
            rows = await first.to_arrow()
            assert (await again.to_arrow()).equals(rows)
    assert first.stats.cache_hits == 0
    assert (again.stats.request_count, again.stats.fetched_bytes, again.stats.dollars) == (0, 0, 0.0)
    assert again.stats.cache_hits > 0
    assert again.stats.cache_hit_bytes == again.stats.wanted_bytes + again.stats.gap_bytes
    assert again.stats.times_physical_limit is None
