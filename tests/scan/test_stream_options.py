"""Whatever the limits, gaps and techniques: the same rows, and the memory limit holds but for one row group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.scan.stream import BatchStream
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from coldparquet_testing.stores import FaultStore, Hang
from tests.support.parquet_footers import parquet_bytes
from tests.support.waiting import eventually

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 3_000, 1_000, 100
DECODED_ROW_GROUP_BYTES = ROW_GROUP_ROWS * 60


def partition() -> tuple[pa.Table, MemoryStore]:
    random = np.random.default_rng(11)
    table = pa.table(
        {
            "x": pa.array(random.permutation(ROWS)),
            "text": pa.array(np.array([f"text {number}" for number in range(50)])[random.integers(0, 50, ROWS)]),
            "maybe": pa.array(random.normal(size=ROWS), mask=random.random(ROWS) < 0.5),
        }
    )
    store = MemoryStore(
        {
            "t/data.parquet": parquet_bytes(
                table,
                row_group_size=ROW_GROUP_ROWS,
                write_batch_size=PAGE_ROWS,
                data_page_size=1,
                write_page_index=True,
            )
        }
    )
    asyncio.run(index_table("t", store=store, pages=False, pack=False))
    return table, store


TABLE, STORE = partition()


@settings(max_examples=25)
@given(
    memory_limit_bytes=st.sampled_from([1, 5_000, 50_000, 1_000_000]),
    gap_bytes=st.sampled_from([0, 500, 1 << 20]),
    max_request_bytes=st.sampled_from([2_000, 1 << 20]),
    batch_rows=st.sampled_from([70, 1 << 20]),
    late=st.sampled_from(["always", "never"]),
    pages=st.sampled_from(["always", "never"]),
    strings=st.sampled_from(["dictionary", "string", "view"]),
    below=st.sampled_from([None, 0, 3, 400, 2_900]),
    limit=st.sampled_from([None, 1, 250, 2_000]),
    pauses=st.lists(st.booleans(), max_size=5),
)
def test_streams_bring_the_same_rows(  # noqa: PLR0917 - every knob of a stream
    memory_limit_bytes: int,
    gap_bytes: int,
    max_request_bytes: int,
    batch_rows: int,
    late: cp.options.When,
    pages: cp.options.When,
    strings: Literal["dictionary", "string", "view"],
    below: int | None,
    limit: int | None,
    pauses: list[bool],
) -> None:
    options = cp.ReadOptions(
        memory_limit_bytes=memory_limit_bytes,
        coalesce_gap_bytes=gap_bytes,
        max_request_bytes=max_request_bytes,
        batch_rows=batch_rows,
        late_materialisation=late,
        page_index=pages,
        strings=strings,
    )

    async def read() -> tuple[pa.Table, int]:
        found = []
        async with (
            cp.open_partition("t", store=STORE, options=options) as opened,
            opened.scan(where=None if below is None else f"x < {below}", limit=limit).batches() as batches,
        ):
            for number in range(ROWS + 1):
                if number < len(pauses) and pauses[number]:
                    await asyncio.sleep(0.002)
                batch = await batches.next_batch()
                if batch is None:
                    break
                assert 0 < batch.num_rows <= batch_rows
                found.append(batch)
            return pa.Table.from_batches(found, opened.scan().schema), batches.most_held_bytes

    found, held_bytes = asyncio.run(asyncio.wait_for(read(), timeout=120))
    expected = TABLE if below is None else TABLE.filter(pc.field("x") < below)
    assert found.cast(TABLE.schema).equals(expected if limit is None else expected[:limit])
    assert held_bytes <= memory_limit_bytes + 6 * DECODED_ROW_GROUP_BYTES


# --- Limits: few row groups are read ahead, and nothing more once enough rows are certain -----------------------------


ROW_GROUPS, STOPPED_GROUP_ROWS = 20, 100
STOPPED_ROWS = ROW_GROUPS * STOPPED_GROUP_ROWS
OWN_REQUESTS = cp.ReadOptions(coalesce_gap_bytes=0, max_request_bytes=1000, late_materialisation="never")


@pytest.fixture
async def store() -> MemoryStore:
    """``late`` is 1 in every third row from the second row group on, which minima and maxima do not tell."""
    x = np.arange(STOPPED_ROWS)
    late = np.where((x < STOPPED_GROUP_ROWS) & (x % 3 == 1), 0, x % 3)
    store = MemoryStore(
        {"t/data.parquet": parquet_bytes(pa.table({"x": x, "late": late}), row_group_size=STOPPED_GROUP_ROWS)}
    )
    await index_table("t", store=store, pages=False, pack=False)
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
        assert found.column("x").to_pylist() == [x for x in range(100, STOPPED_ROWS) if x % 3 == 1][:400]
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
        scan = partition.scan(["x"], limit=STOPPED_ROWS - 50)
        async with scan.batches() as batches:
            await batches.next_batch()
            await eventually(lambda: len(row_groups_read(partition.request_log)) == ROW_GROUPS)
            assert len(await xs(batches)) == STOPPED_ROWS - 50 - STOPPED_GROUP_ROWS
