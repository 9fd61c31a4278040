"""Scans that are interrupted, shared or outlive their table: they end, lose no row and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from coldparquet_testing.stores import FaultStore, Hang, LatencyStore
from tests.support.parquet_footers import parquet_bytes

ROWS, ROW_GROUPS = 1_000, 10


def parquet() -> bytes:
    return parquet_bytes(pa.table({"x": range(ROWS)}), row_group_size=ROWS // ROW_GROUPS)


def parquet_with_times() -> bytes:
    times = pa.array(range(1_709_251_200_000_000, 1_709_251_200_000_000 + ROWS), pa.timestamp("us"))
    schema = pa.schema([pa.field("ts", times.type, nullable=False), pa.field("x", pa.int64())])
    rows = pa.Table.from_arrays([times, pa.array(range(ROWS))], schema=schema)
    return parquet_bytes(rows, row_group_size=ROWS // ROW_GROUPS, sorting_columns=[pq.SortingColumn(0)])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore({"t/data.parquet": parquet()})


async def test_a_scan_of_a_closed_table_fails_and_sends_nothing(store: MemoryStore) -> None:
    table = await cp.open_table("t", store=store)
    scan = table.scan(["x"], "x > 5")
    await table.aclose()
    before = len(table.request_log)
    for read in (scan.to_arrow, scan.count):
        with pytest.raises(cp.errors.InvalidInputError, match="closed") as caught:
            await asyncio.wait_for(read(), timeout=60)
        assert caught.value.kind == "TableClosed"
    assert len(table.request_log) == before


async def test_closing_the_table_ends_a_scan_that_waits_for_data(store: MemoryStore) -> None:
    slow = LatencyStore(store, first_byte_s=0.05)
    table = await cp.open_table("t", store=slow)
    async with table.scan(["x"]).batches() as batches:
        waiting = asyncio.create_task(batches.next_batch())
        await asyncio.sleep(0.01)
        await table.aclose()
        with pytest.raises(cp.errors.InvalidInputError, match="closed"):
            await asyncio.wait_for(waiting, timeout=60)


async def test_a_stream_that_is_not_open_says_so_instead_of_ending(store: MemoryStore) -> None:
    async with cp.open_table("t", store=store) as table:
        stream = table.scan(["x"]).batches()
        with pytest.raises(cp.errors.InvalidInputError, match="async with") as caught:
            _ = [batch async for batch in stream]
        assert caught.value.kind == "StreamNotOpen"
        async with stream:
            assert await stream.next_batch() is not None
        with pytest.raises(cp.errors.InvalidInputError, match="async with"):
            await stream.next_batch()


async def test_closing_a_stream_tells_a_consumer_that_waits_in_another_task(store: MemoryStore) -> None:
    async with cp.open_table("t", store=LatencyStore(store, first_byte_s=0.05)) as table:
        async with table.scan(["x"]).batches() as batches:
            waiting = asyncio.create_task(batches.next_batch())
            await asyncio.sleep(0.01)
        with pytest.raises(cp.errors.InvalidInputError, match="not open") as caught:
            await waiting
    assert caught.value.kind == "StreamNotOpen"


@pytest.mark.parametrize("method", ["tail", "top_k", "latest_by"])
async def test_a_walk_from_the_end_that_is_cancelled_leaves_nothing_behind(method: str) -> None:
    store = MemoryStore({"t/2024-03-01/data.parquet": parquet_with_times()})
    faults = FaultStore(store, lambda _number, request: Hang() if request.reason.startswith("row group") else None)
    async with cp.open_table("t", store=faults) as table:
        read = getattr(table.scan(None, "x > 5"), method)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read("x" if method == "latest_by" else 3), timeout=0.2)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert faults.hanging_count == 0


async def test_a_timeout_loses_no_rows(store: MemoryStore) -> None:
    slow = LatencyStore(store, first_byte_s=0.02)
    async with (
        cp.open_table("t", store=slow, options=cp.ReadOptions(coalesce_gap_bytes=0, max_concurrency=1)) as table,
        table.scan(["x"]).batches() as batches,
    ):
        rows: list[object] = []
        timeouts = 0
        while True:
            try:
                batch = await asyncio.wait_for(batches.next_batch(), timeout=0.003)
            except TimeoutError:
                timeouts += 1
                continue
            if batch is None:
                break
            rows += batch.column("x").to_pylist()
    assert timeouts
    assert rows == list(range(ROWS))


async def test_consumers_of_one_stream_share_its_batches(store: MemoryStore) -> None:
    slow = LatencyStore(store, first_byte_s=0.01)
    options = cp.ReadOptions(batch_rows=ROWS // ROW_GROUPS)
    async with cp.open_table("t", store=slow, options=options) as table, table.scan(["x"]).batches() as batches:
        several = await asyncio.gather(*(batches.next_batch() for _ in range(ROW_GROUPS + 2)))
    xs = [x for batch in several if batch is not None for x in batch.column("x").to_pylist()]
    assert xs == list(range(ROWS))
    assert several.count(None) == 2


async def test_a_read_that_is_cancelled_leaves_nothing_behind(store: MemoryStore) -> None:

    def hang(number: int, _request: RangeRequest) -> Hang | None:
        return Hang() if number % 3 == 2 else None

    faults = FaultStore(store, hang)
    for _ in range(5):

        async def read() -> None:
            async with cp.open_table("t", store=faults, options=cp.ReadOptions(coalesce_gap_bytes=0)) as table:
                await table.scan().to_arrow()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), timeout=0.1)
        assert faults.hanging_count == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("limit", [1, np.int64(150)])
async def test_limits_are_any_whole_numbers(store: MemoryStore, limit: int) -> None:
    async with cp.open_table("t", store=store) as table:
        scan = table.scan(limit=limit)
        assert (await scan.to_arrow()).num_rows == int(limit)
        assert (await scan.plan()).as_dict()["limit"] == int(limit)


@pytest.mark.parametrize("limit", [1.5, "3", -1, [1], True, False])
async def test_other_limits_are_refused(store: MemoryStore, limit: int) -> None:
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(cp.errors.InvalidInputError, match="whole number"):
            table.scan(limit=limit)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_to_open_its_own_table(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(parquet())
    with cp.sync.open_table(tmp_path) as table:
        scan = table.scan(["x"], "x > 5")
        expected = scan.count()
        child = os.fork()
        if child == 0:
            os._exit(_exit_code_of_child(scan, tmp_path, expected))
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _exit_code_of_child(scan: cp.sync.Scan, path: Path, expected: int) -> int:
    """Return 0 if the inherited scan is refused and a new one works; the alarm ends a child that hangs."""
    signal.alarm(60)
    try:
        scan.count()
    except cp.errors.InvalidInputError as error:
        if error.kind != "TableOfAnotherProcess":
            return 2
        with cp.sync.open_table(path) as table:
            return 0 if table.scan(["x"], "x > 5").count() == expected else 3
    return 4


async def test_leaving_a_stream_waits_for_what_threads_still_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.put("t/data.parquet", parquet_bytes(pa.table({"x": range(100)})), overwrite=False)
    began, ended = threading.Event(), threading.Event()

    def decode_slowly(*_: object, **__: object) -> pa.Table:
        began.set()
        time.sleep(0.2)
        ended.set()
        return pa.table({"x": range(100)})

    monkeypatch.setattr("coldparquet.decode.read.decode_row_group", decode_slowly)
    async with cp.open_partition("t", store=store) as partition:
        async with partition.scan().batches():
            await asyncio.to_thread(began.wait, 60)
        assert ended.is_set()
