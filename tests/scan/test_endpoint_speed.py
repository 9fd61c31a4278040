"""What one table has measured of an endpoint serves the next one that is opened there, also for how it coalesces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS, FIRST_BYTE_S = 9, 0.01


@pytest.fixture
async def bucket(tmp_path: Path) -> Path:
    for day in range(1, PARTITIONS + 1):
        directory = tmp_path / "bucket" / "trades" / f"2024-03-{day:02}.1"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"size": np.arange(100)}), directory / "data.parquet")
    await index_table(str(tmp_path / "bucket" / "trades"))
    return tmp_path


async def test_a_new_table_knows_how_fast_its_endpoint_is(bucket: Path) -> None:
    with ColdStoreServer(bucket, ColdStoreOptions(first_byte_s=FIRST_BYTE_S)) as server:
        async with cp.open_table("s3://bucket/trades", storage_options=server.storage_options) as table:
            plan = await table.scan(["size"]).plan()
            assert "(published for S3; not measured yet)" in plan.explain()
            assert (await table.scan(["size"]).to_arrow()).num_rows == 100 * PARTITIONS
        async with cp.open_table("s3://bucket/trades", storage_options=server.storage_options) as another:
            speed = (await another.scan(["size"]).plan()).speed
    assert speed.is_first_byte_measured
    assert speed.first_byte_s >= FIRST_BYTE_S
    assert not speed.is_throughput_measured  # nothing was long enough
