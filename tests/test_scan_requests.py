"""The exact requests of each kind of read, in the words of the domain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from tests.support.request_logs import assert_plan_was_followed, data_requests
from tests.support.small_tables import parquet_of_day

ROWS, ROW_GROUPS = 24_000, 10


def make_day(day: int) -> bytes:
    """One partition: rows at equal distances over a day, in ten row groups."""
    random = np.random.default_rng(day)
    return parquet_of_day(
        day,
        ROW_GROUPS,
        ROWS,
        symbol=np.array(["BTC", "ETH"])[random.integers(0, 2, ROWS)],
        price=random.normal(size=ROWS),
        note=pa.nulls(ROWS, pa.string()),
        size=random.integers(0, 1000, ROWS),
    )


@pytest.fixture(scope="module")
def days() -> list[bytes]:
    return [make_day(day) for day in range(3)]


@pytest.fixture
async def store(days: list[bytes]) -> MemoryStore:
    store = MemoryStore()
    for day, data in enumerate(days):
        await store.put(f"trades/2024-03-0{day + 1}.7/data.parquet", data, overwrite=False)
    await index_table("trades", store=store, pages=False, pack=False)
    return store


def spelled(log: tuple[RequestRecord, ...]) -> list[str]:
    return [f"{record.operation} {record.path}: {record.reason}" for record in log]


DAY = "trades/2024-03-02.7"
TWO_HOURS = "ts >= '2024-03-02T06:00' and ts < '2024-03-02T08:00'"


async def test_a_cold_selective_read_is_two_round_trips_and_a_warm_one_is_one(store: MemoryStore) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        scan = partition.scan(["ts", "price"], TWO_HOURS)
        first = await scan.to_arrow()
        cold = partition.request_log
        assert spelled(cold) == [
            f"get {DAY}/_pm: sidecar",
            f"get {DAY}/_pages: page index",  # at the same time
            f"get {DAY}/data.parquet: row groups 2-3: ts, price",
        ]
        assert cold[0].byte_range == ByteRange(0, 65_536)

        assert (await scan.to_arrow()).equals(first)
        warm = partition.request_log[len(cold) :]
        assert spelled(warm) == [f"get {DAY}/data.parquet: row groups 2-3: ts, price"]
        assert_plan_was_followed(await scan.plan(), warm)
        assert first.num_rows == ROWS * 2 // 24


async def test_pages_of_days_that_are_wanted_as_a_whole_are_not_looked_for(tmp_path: Path, days: list[bytes]) -> None:
    for day, data in enumerate(days):
        (tmp_path / f"2024-03-0{day + 1}").mkdir()
        (tmp_path / f"2024-03-0{day + 1}" / "data.parquet").write_bytes(data)
    await index_table(tmp_path, pages=True, pack=False)
    newest = f"2024-03-0{len(days)}"
    async with cp.open_table(tmp_path) as table:
        scan = table.scan(["ts", "price"], "ts >= '2024-03-01' and ts < '2024-03-02T12:00'")
        assert (await scan.to_arrow()).num_rows == ROWS + ROWS // 2
        asked = {record.path.split("/")[-2] for record in table.request_log if record.path.endswith("_pages")}
        assert asked == {newest, "2024-03-02"}, "that of the newest tells whether there are any"


async def test_strict_mode_reads_the_header_first(store: MemoryStore) -> None:
    options = cp.ReadOptions(sidecar_prefix_bytes=32, page_index="never")
    async with cp.open_partition(DAY, store=store, options=options) as partition:
        snapshot = partition.partitions[0].snapshot
        assert snapshot is not None
        assert [record.byte_range for record in partition.request_log] == [
            ByteRange(0, 32),
            ByteRange(32, snapshot.size_bytes),
        ]


async def test_without_a_sidecar_the_footer_is_read_at_its_known_cost(days: list[bytes]) -> None:
    store = MemoryStore()
    await store.put("day/data.parquet", days[0], overwrite=False)
    async with cp.open_partition("day", store=store) as partition:
        plan = await partition.scan(["price"]).plan()
        assert sorted(spelled(partition.request_log)) == [
            "get day/_pages: page index",
            "get day/_pm: sidecar",
            "get day/data.parquet: Parquet footer",
        ]
        assert plan.partitions[0].metadata_source == "footer"
        assert "footer" in plan.explain()


async def test_far_ranges_stay_apart_and_near_ones_are_merged(store: MemoryStore) -> None:
    for gap, requests in ((0, 10), (1 << 20, 1)):
        options = cp.ReadOptions(coalesce_gap_bytes=gap)
        async with cp.open_partition(DAY, store=store, options=options) as partition:
            scan = partition.scan(["ts"])
            plan = await scan.plan()
            assert plan.request_count == requests
            before = len(partition.request_log)
            assert (await scan.to_arrow()).num_rows == ROWS
            assert_plan_was_followed(plan, partition.request_log[before:])


async def test_large_ranges_are_split(store: MemoryStore) -> None:
    options = cp.ReadOptions(max_request_bytes=5_000)
    async with cp.open_partition(DAY, store=store, options=options) as partition:
        scan = partition.scan(["price"], limit=None)
        plan = await scan.plan()
        assert all(request.byte_range.length_bytes <= 5_000 for request in plan.requests)
        before = len(partition.request_log)
        assert (await scan.to_arrow()).num_rows == ROWS
        assert_plan_was_followed(plan, partition.request_log[before:])


async def test_nothing_is_fetched_that_metadata_answers(store: MemoryStore) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        before = len(partition.request_log)
        assert await partition.scan().count() == ROWS
        assert await partition.scan(where="ts >= '2025-01-01'").count() == 0
        assert await partition.scan(where="ts < '2025-01-01'").count() == ROWS
        assert await partition.scan(["note"]).to_arrow() == pa.table({"note": pa.nulls(ROWS, pa.string())})
        assert (await partition.scan(["price"], "note = 'x'").to_arrow()).num_rows == 0
        assert (await partition.scan(["price"], limit=0).to_arrow()).num_rows == 0
        assert len(partition.request_log) == before


async def test_count_fetches_the_undecided_row_groups_only(store: MemoryStore) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        before = len(partition.request_log)
        assert await partition.scan(where="ts < '2024-03-02T06:00'").count() == ROWS // 4
        assert spelled(partition.request_log[before:]) == [f"get {DAY}/data.parquet: row group 2: ts"]


async def test_predicate_columns_are_not_fetched_where_every_row_matches(store: MemoryStore) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        plan = await partition.scan(["price"], "ts < '2024-03-02T06:00'").plan()
        assert [read.columns for read in plan.row_groups] == [(2,), (2,), (0, 2)]


async def test_a_table_lists_once_and_reads_the_sidecars_that_are_left(store: MemoryStore) -> None:
    async with cp.open_table("trades", store=store) as table:
        assert [partition.name for partition in table.partitions] == ["2024-03-01.7", "2024-03-02.7", "2024-03-03.7"]
        scan = table.scan(["price"], TWO_HOURS)
        plan = await scan.plan()
        assert [partition.name for partition in plan.partitions_pruned] == ["2024-03-01.7", "2024-03-03.7"]
        assert (await scan.to_arrow()).num_rows == ROWS * 2 // 24
        assert spelled(table.request_log) == [
            "get trades/_catalogue: catalogue",
            "list trades: listing",
            "get trades/_txn: table files",
            "get trades/_meta: table files",
            "get trades/2024-03-03.7/_pm: sidecar",
            "get trades/2024-03-03.7/_pages: page index",  # there is none, so that no others are looked for
            f"get {DAY}/_pm: sidecar",
            f"get {DAY}/data.parquet: row groups 2-3: ts, price",
        ]


async def test_a_limit_plans_no_more_row_groups_than_it_needs(store: MemoryStore) -> None:
    async with cp.open_table("trades", store=store) as table:
        scan = table.scan(["price"], limit=3_000)
        plan = await scan.plan()
        assert [(read.partition_index, read.row_group) for read in plan.row_groups] == [(0, 0), (0, 1)]
        before = len(table.request_log)
        assert (await scan.to_arrow()).num_rows == 3_000
        assert_plan_was_followed(plan, table.request_log[before:])


async def test_memory_limit_slows_the_fetching_down_and_changes_nothing_else(store: MemoryStore) -> None:
    options = cp.ReadOptions(memory_limit_bytes=1, coalesce_gap_bytes=0)
    async with cp.open_table("trades", store=store, options=options) as table:
        before = len(table.request_log)
        scan = table.scan(["ts", "price"])
        async with scan.batches() as batches:
            first = await batches.next_batch()
            await asyncio.sleep(0.05)
            assert first is not None
            assert len(data_requests(table.request_log[before:])) == 2, "of the first row group, and no others"
            rows = first.num_rows + sum([batch.num_rows async for batch in batches])
        assert rows == 3 * ROWS
        assert_plan_was_followed(batches_plan := await scan.plan(), table.request_log[before:])
        assert batches_plan.request_count > 20


async def test_leaving_a_stream_early_leaves_nothing_behind(store: MemoryStore) -> None:
    async with cp.open_table("trades", store=store) as table:
        tasks = asyncio.all_tasks()
        async with table.scan().batches() as batches:
            async for _ in batches:
                break
        assert asyncio.all_tasks() == tasks


async def test_a_replaced_object_is_an_error_and_never_mixed_rows(store: MemoryStore, days: list[bytes]) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        await partition.scan(["price"], "ts < '2024-03-02T01:00'").to_arrow()
        await store.put(f"{DAY}/data.parquet", days[1], overwrite=True)
        with pytest.raises(cp.errors.ObjectChangedError, match=r"data\.parquet"):
            await partition.scan(["price"]).to_arrow()


async def test_a_shorter_object_than_the_sidecar_says_is_an_error(store: MemoryStore, days: list[bytes]) -> None:
    async with cp.open_partition(DAY, store=store) as partition:
        await store.put(f"{DAY}/data.parquet", days[1][:-1], overwrite=True)
        with pytest.raises(cp.errors.ObjectChangedError, match="plan the read again"):
            await partition.scan(["ts"], TWO_HOURS).to_arrow()


async def test_local_files_are_read_alike(tmp_path: Path, days: list[bytes]) -> None:
    directory = tmp_path / "2024-03-01.7"
    directory.mkdir()
    (directory / "data.parquet").write_bytes(days[0])
    await index_table(str(directory), pages=False, pack=False)
    async with cp.open_partition(directory) as partition:
        rows = await partition.scan(["ts", "price"]).to_arrow()
    expected = pq.read_table(directory / "data.parquet", columns=["ts", "price"])
    assert rows.equals(expected.cast(rows.schema))
