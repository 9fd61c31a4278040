"""The memory limit: what is in flight, fetched and decoded stays within it, and a consumer that stops stops the fetching."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.stores import LatencyStore
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest

ROW_GROUPS, ROW_GROUP_ROWS = 40, 5_000
DECODED_BYTES = ROW_GROUP_ROWS * 16
"""Of one row group: two columns of 64 bits."""
LIMIT_BYTES = 20 * DECODED_BYTES


class CountedBytes(bytes):
    """An answer that tells when its memory goes."""

    alive_bytes: ClassVar[int] = 0
    most_alive_bytes: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        CountedBytes.alive_bytes += len(self)
        CountedBytes.most_alive_bytes = max(CountedBytes.most_alive_bytes, CountedBytes.alive_bytes)

    def __del__(self) -> None:
        CountedBytes.alive_bytes -= len(self)


class OutstandingStore(StoreWrapper):
    """Counts the bytes of rows that were asked for and not answered yet, and those of answers that somebody holds."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.outstanding_bytes = self.most_outstanding_bytes = self.fetched_bytes = 0
        CountedBytes.alive_bytes = CountedBytes.most_alive_bytes = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.role == "metadata":
            return await super().get(request)
        length_bytes = request.byte_range.length_bytes
        self.outstanding_bytes += length_bytes
        self.most_outstanding_bytes = max(self.most_outstanding_bytes, self.outstanding_bytes)
        try:
            fetched = await super().get(request)
        finally:
            self.outstanding_bytes -= length_bytes
        self.fetched_bytes += length_bytes
        return replace(fetched, data=CountedBytes(fetched.data))


def parquet(
    columns: dict[str, pa.Array[Any]], *, row_group_rows: int = ROW_GROUP_ROWS, page_rows: int = 5_000
) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        row_group_size=row_group_rows,
        write_batch_size=page_rows,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["text"],  # type: ignore[arg-type]  # names of columns are allowed as well
        compression="zstd",
    )
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def numbers() -> bytes:
    random = np.random.default_rng(3)
    rows = ROW_GROUPS * ROW_GROUP_ROWS
    return parquet({"x": pa.array(np.arange(rows)), "y": pa.array(random.integers(0, 1 << 62, rows))})


async def store_of(data: bytes) -> OutstandingStore:
    store = MemoryStore({"t/data.parquet": data})
    await index_table("t", store=store)
    return OutstandingStore(LatencyStore(store, first_byte_s=0.001))


async def idle(store: OutstandingStore) -> None:
    """Wait until nothing has been asked for, for a while."""
    fetched_bytes = -1
    while store.outstanding_bytes or store.fetched_bytes > fetched_bytes:
        fetched_bytes = store.fetched_bytes
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("gap_bytes", [0, 1 << 20], ids=["requests of their own", "merged requests"])
async def test_everything_held_stays_within_the_limit(numbers: bytes, gap_bytes: int) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=LIMIT_BYTES, coalesce_gap_bytes=gap_bytes, max_request_bytes=200_000)
    xs: list[Any] = []
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        async for batch in batches:
            xs += batch.column("x").to_pylist()
        assert batches.most_held_bytes <= LIMIT_BYTES
        assert batches.most_held_bytes > LIMIT_BYTES / 4, "it makes use of the memory that it may take"
    assert xs == list(range(ROW_GROUPS * ROW_GROUP_ROWS))
    assert store.most_outstanding_bytes <= LIMIT_BYTES


@pytest.mark.parametrize("gap_bytes", [0, 1 << 20], ids=["requests of their own", "merged requests"])
async def test_a_consumer_that_stops_stops_the_fetching_and_no_answer_stays(numbers: bytes, gap_bytes: int) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=LIMIT_BYTES, coalesce_gap_bytes=gap_bytes, max_request_bytes=200_000)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert await batches.next_batch() is not None
        await idle(store)
        assert 0 < store.fetched_bytes < LIMIT_BYTES
        await eventually(lambda: CountedBytes.alive_bytes == 0)  # answers are copied to their places and dropped
        rows = sum([batch.num_rows async for batch in batches])
    assert rows == (ROW_GROUPS - 1) * ROW_GROUP_ROWS
    assert CountedBytes.alive_bytes == 0


async def test_without_a_limit_everything_is_fetched_ahead(numbers: bytes) -> None:
    store = await store_of(numbers)
    async with cp.open_partition("t", store=store) as partition, partition.scan().batches() as batches:
        assert await batches.next_batch() is not None
        await eventually(lambda: store.fetched_bytes == batches.plan.bytes_fetched)


async def test_one_row_group_larger_than_the_limit_is_still_read(numbers: bytes) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(memory_limit_bytes=1_000, page_index="never")
    async with cp.open_partition("t", store=store, options=options) as partition:
        found = await asyncio.wait_for(partition.scan(["x"]).to_arrow(), timeout=60)
    assert found.column("x").to_pylist() == list(range(ROW_GROUPS * ROW_GROUP_ROWS))


async def test_estimates_are_corrected_by_what_comes_out() -> None:
    """Behind the dictionary of each row group is a long text; minima and maxima do not tell how long."""
    row_groups, rows, text_bytes = 40, 500, 4_000
    values = pa.array(["a", "z", "m" * text_bytes])
    number = np.arange(row_groups * rows)
    text = values.take(np.minimum(number % rows, 2))
    store = await store_of(parquet({"text": text, "x": pa.array(number)}, row_group_rows=rows))
    limit_bytes = 10 * rows * text_bytes
    options = cp.ReadOptions(memory_limit_bytes=limit_bytes, page_index="never", decode_threads=1, coalesce_gap_bytes=0)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert await batches.next_batch() is not None
        await idle(store)
        assert store.fetched_bytes == batches.plan.bytes_fetched, "the compressed bytes are few"
        rows_read = rows + sum([batch.num_rows async for batch in batches])
        assert batches.most_held_bytes <= limit_bytes
    assert rows_read == row_groups * rows


async def test_a_row_group_is_read_in_runs_of_pages_that_share_a_dictionary_page() -> None:
    rows = 200_000
    texts = np.array([f"text number {number:05}" for number in range(2_000)])
    text = pa.array(texts[np.random.default_rng(1).integers(0, 2_000, rows)])
    data = parquet({"text": text, "x": pa.array(np.arange(rows))}, row_group_rows=rows)
    store = await store_of(data)
    options = cp.ReadOptions(memory_limit_bytes=4_000_000, strings="dictionary", coalesce_gap_bytes=0)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan().batches() as batches,
    ):
        assert len(batches.plan.row_groups) > 3
        found = pa.Table.from_batches([batch async for batch in batches])
        assert batches.most_held_bytes <= 4_000_000
        assert store.fetched_bytes == batches.plan.bytes_fetched < len(data), "the dictionary page came once"
    assert found.column("text").cast(pa.string()).combine_chunks().equals(text)
    assert found.column("x").to_pylist() == list(range(rows))
    assert CountedBytes.alive_bytes == 0


async def test_the_last_batch_of_a_row_group_does_not_keep_the_others_in_memory(numbers: bytes) -> None:
    store = await store_of(numbers)
    options = cp.ReadOptions(batch_rows=100)
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan(where=f"x < {ROW_GROUP_ROWS}").batches() as batches,
    ):
        read = [batch async for batch in batches]
    assert [batch.num_rows for batch in read] == [100] * (ROW_GROUP_ROWS // 100)
    assert read[-1].get_total_buffer_size() < 2 * 100 * 16
    assert read[-1].column("x").to_pylist() == list(range(ROW_GROUP_ROWS - 100, ROW_GROUP_ROWS))


@pytest.mark.parametrize("batch_rows", [100, 5_000, 1 << 20])
async def test_memory_of_batches_is_given_back_as_they_are_taken(numbers: bytes, batch_rows: int) -> None:
    store = await store_of(numbers)
    limit_bytes = 6 * DECODED_BYTES
    options = cp.ReadOptions(memory_limit_bytes=limit_bytes, batch_rows=batch_rows, page_index="never")
    async with (
        cp.open_partition("t", store=store, options=options) as partition,
        partition.scan(["x"]).batches() as batches,
    ):
        rows = sum([batch.num_rows async for batch in batches])
    assert rows == ROW_GROUPS * ROW_GROUP_ROWS
