"""Limits: few row groups are read ahead, and nothing more once enough rows are certain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.stores import FaultStore, Hang
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.scan.stream import BatchStream
    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.requests import RangeRequest

ROW_GROUPS, ROW_GROUP_ROWS = 20, 100
ROWS = ROW_GROUPS * ROW_GROUP_ROWS
OWN_REQUESTS = cp.ReadOptions(coalesce_gap_bytes=0, max_request_bytes=1000, late_materialisation="never")


@pytest.fixture
async def store() -> MemoryStore:
    """``late`` is 1 in every third row from the second row group on, which minima and maxima do not tell."""
    x = np.arange(ROWS)
    late = np.where((x < ROW_GROUP_ROWS) & (x % 3 == 1), 0, x % 3)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": x, "late": late}), sink, row_group_size=ROW_GROUP_ROWS)
    store = MemoryStore({"t/data.parquet": sink.getvalue().to_pybytes()})
    await index_table("t", store=store)
    return store


def row_groups_read(log: Sequence[RequestRecord]) -> set[int]:
    of_data = [record.reason for record in log if record.role == "data"]
    return {int(reason.split(":")[0].removeprefix("row group ")) for reason in of_data}


async def xs(stream: BatchStream) -> list[Any]:
    return [x async for batch in stream for x in batch.column("x").to_pylist()]


async def test_a_limit_with_a_predicate_reads_little_ahead(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=OWN_REQUESTS) as partition:
        before = len(partition.request_log)
        found = await partition.scan(["x"], "late = 2", limit=3).to_arrow()
        assert found.column("x").to_pylist() == [2, 5, 8]
        assert row_groups_read(partition.request_log[before:]) <= {0, 1, 2}


async def test_reading_ahead_grows_while_too_little_is_found(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=OWN_REQUESTS) as partition:
        before = len(partition.request_log)
        found = await partition.scan(["x"], "late = 1", limit=400).to_arrow()
        assert found.column("x").to_pylist() == [x for x in range(100, ROWS) if x % 3 == 1][:400]
        assert set(range(13)) <= row_groups_read(partition.request_log[before:])


async def test_requests_in_flight_are_cancelled_once_enough_rows_are_certain(store: MemoryStore) -> None:
    def hang(_: int, request: RangeRequest) -> Hang | None:
        return Hang() if request.reason.startswith("row group 2:") else None

    faults = FaultStore(store, hang)
    async with (
        cp.open_partition("t", store=faults, options=OWN_REQUESTS) as partition,
        partition.scan(["x"], "late = 1", limit=3).batches() as batches,
    ):
        assert await xs(batches) == [100, 103, 106]
        await eventually(lambda: faults.hanging_count == 0)
        assert await batches.next_batch() is None


async def test_a_limit_without_a_predicate_needs_no_careful_start(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=OWN_REQUESTS) as partition:
        scan = partition.scan(["x"], limit=ROWS - 50)
        async with scan.batches() as batches:
            await batches.next_batch()
            await eventually(lambda: len(row_groups_read(partition.request_log)) == ROW_GROUPS)
            assert len(await xs(batches)) == ROWS - 50 - ROW_GROUP_ROWS
