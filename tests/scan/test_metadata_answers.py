"""Counts, extremes and numbers of nulls: what pyarrow says of all rows, and no request that metadata makes needless."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN
from tests.support.small_tables import (
    DAY_US,
    FIRST_DAY_US,
    data_reasons,
    day_of_trades,
    parquet_of,
    plain_column,
    store_of,
    trades_of,
)
from tests.support.table_copies import copy_table, indexed_copy

TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
COLUMNS_ASKED = 5
"""Columns of each genuine table that are asked about; all of those tables that are there for their types."""


def assert_same_extremes(found: pa.StructScalar, expected: pa.StructScalar) -> None:
    """Equal as Arrow values; NaN equals NaN."""
    for side in ("min", "max"):
        assert found[side].type == expected[side].type
        both_nan = pa.types.is_floating(found[side].type) and str(found[side]) == str(expected[side]) == "nan"
        assert both_nan or found[side].equals(expected[side]), (side, found[side], expected[side])


async def assert_answers(scan: cp.Scan, rows: pa.Table, names: list[str]) -> None:
    """Every answer about these columns is what pyarrow says of the rows."""
    assert await scan.count() == rows.num_rows
    assert await scan.any() == (rows.num_rows > 0)
    for name in names:
        values = plain_column(rows, name)
        assert await scan.null_count(name) == values.null_count, name
        try:
            found = await scan.min_max(name)
        except UnsupportedError as error:
            assert error.kind == "UnsupportedComparison"  # noqa: PT017 - which columns have no order is tested below
        else:
            assert_same_extremes(found, pc.min_max(values))


@pytest.mark.parametrize("table", TABLES)
async def test_answers_about_genuine_tables_are_those_of_all_rows(table: str, tmp_path: Path) -> None:
    async with cp.open_table(await indexed_copy(table, tmp_path)) as opened:
        rows = await opened.scan().to_arrow()
        times = rows.column("ts").cast(pa.int64()).to_numpy()
        names = rows.schema.names if table.startswith("types_") else rows.schema.names[:COLUMNS_ASKED]
        await assert_answers(opened.scan(), rows, names)
        begin, end = (int(np.quantile(times, share, method="nearest")) for share in (0.2, 0.7))
        within = rows.filter(pa.array((times >= begin) & (times < end)))
        where = (cp.col("ts") >= begin) & (cp.col("ts") < end)
        await assert_answers(opened.scan(where=where), within, names[:3])
        assert_same_extremes(await opened.scan(where=where).min_max("ts"), pc.min_max(within.column("ts")))


async def test_a_year_is_answered_without_a_data_request() -> None:
    days = {day: parquet_of(trades_of(day, 30).select(["ts", "price", "size"]), row_groups=2) for day in range(365)}
    async with cp.open_table("trades", store=await store_of(days)) as table:
        scan = table.scan()
        assert await scan.count() == 365 * 30
        assert await scan.min("size") == 0
        assert await scan.max("price") == 365 * 30 - 1.0
        assert await scan.null_count("size") == 365 * 3
        assert await scan.any()
        assert (await scan.first_timestamp()).timestamp() * 1e6 == FIRST_DAY_US
        assert (await scan.last_timestamp()).timestamp() * 1e6 == FIRST_DAY_US + 365 * DAY_US - DAY_US // 30
        from_april = table.scan(where="ts >= '2024-04-01'")
        assert await from_april.min("price") == 31 * 30.0
        assert data_reasons(table.request_log) == []


async def test_only_undecided_row_groups_are_read_and_only_that_column() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(3)})
    async with cp.open_table("trades", store=store, options=cp.ReadOptions(page_index="never")) as table:
        half = table.scan(["symbol"], "ts < '2024-03-02T06:00'")
        assert await half.max("price") == 240 + 60 - 1
        assert data_reasons(table.request_log) == ["row group 2: ts, price"]
        assert await half.min("size") == 0  # the undecided row group holds no smaller value
        assert await half.null_count("note") == 240 + 60
        assert data_reasons(table.request_log)[1:] == ["row group 2: ts"]  # what is null is not fetched


async def test_row_groups_that_cannot_beat_what_is_known_are_not_read() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(3)})
    async with cp.open_table("trades", store=store) as table:
        # Every row group is undecided; the most promising one is read first, and proves the others needless.
        assert await table.scan(where="symbol = 'BTC'").max("price") == 3 * 240 - 2
        assert data_reasons(table.request_log) == ["row group 9: symbol, price"]


async def test_first_and_last_time_look_at_the_ends_only() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(40)})
    async with cp.open_table("trades", store=store) as table:
        before = len(table.request_log)
        assert str(await table.scan().first_timestamp()) == "2024-03-01 00:00:00+00:00"
        assert [record.path for record in table.request_log[before:]] == ["trades/2024-03-01.7/_pm"]
        last = await table.scan(where="symbol = 'ETH'").last_timestamp()
        assert last.timestamp() * 1e6 == FIRST_DAY_US + 40 * DAY_US - DAY_US // 240
        assert data_reasons(table.request_log) == ["row group 9: ts, symbol"]
        assert await table.scan(where="ts < '2024-01-01'").last_timestamp() is None
        assert await table.scan(where="symbol = 'unknown'").first_timestamp() is None


async def test_the_last_time_of_a_native_partition_is_one_value(tmp_path: Path) -> None:
    async with cp.open_table(await indexed_copy("interval_day", tmp_path)) as table:
        rows = await table.scan(["ts"]).to_arrow()
        before = len(table.request_log)
        assert await table.scan().last_timestamp() == rows.column("ts")[-1].as_py()
        data = [record for record in table.request_log[before:] if data_reasons([record])]
        assert [(record.path.rpartition("/")[2], record.fetched_bytes) for record in data] == [("ts.d", 8)]
        assert await table.scan().first_timestamp() == rows.column("ts")[0].as_py()
        assert len([record for record in table.request_log[before:] if data_reasons([record])]) == 1


async def test_any_stops_at_the_first_row() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(8)})
    async with cp.open_table("trades", store=store) as table:
        before = len(table.request_log)
        assert await table.scan().any()
        assert len(table.request_log) == before + 1  # the sidecar of the first partition
        assert await table.scan(where="ts >= '2024-03-02T05:00'").any()
        assert not await table.scan(where="price < 0").any()
        assert not await table.scan(limit=0).any()
        assert data_reasons(table.request_log) == []
        assert await table.scan(where="symbol = 'ETH'").any()
        assert 1 <= len(data_reasons(table.request_log)) <= 3  # of 80 row groups


async def test_the_sign_of_a_zero_is_looked_up_in_one_row_group() -> None:
    days = {}
    for day in range(3):
        trades = trades_of(day, 20)
        days[day] = parquet_of(trades.set_column(2, "price", pa.array([-0.0] * 20)), row_groups=2)
    async with cp.open_table("trades", store=await store_of(days), options=cp.ReadOptions(page_index="never")) as table:
        found = await table.scan().min_max("price")
        assert [math.copysign(1, found[side].as_py()) for side in ("min", "max")] == [-1, -1]
        assert data_reasons(table.request_log) == ["row group 0: price"]


async def test_a_limited_count_stops_at_the_limit() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(4)})
    options = cp.ReadOptions(coalesce_gap_bytes=0, page_index="never")
    async with cp.open_table("trades", store=store, options=options) as table:
        before = len(table.request_log)
        assert await table.scan(limit=250).count() == 250
        assert [record.path for record in table.request_log[before:]] == [
            "trades/2024-03-01.7/_pm",
            "trades/2024-03-02.7/_pm",
        ]
        assert await table.scan(where="ts >= '2024-03-01T05:00'", limit=5).count() == 5  # most of its row groups match
        assert await table.scan(where="symbol = 'ETH'", limit=0).count() == 0
        assert data_reasons(table.request_log) == []
        # Each row group has 12 such rows.
        assert await table.scan(where="symbol = 'ETH'", limit=5).count() == 5
        assert data_reasons(table.request_log) == ["row group 0: symbol"]


@pytest.mark.parametrize(("limit", "needed_row_groups"), [(12, 1), (13, 2), (36, 3), (37, 4)])
async def test_a_limited_count_reads_little_ahead(limit: int, needed_row_groups: int) -> None:
    store = await store_of({0: day_of_trades(0, rows=240, row_groups=10)})
    options = cp.ReadOptions(coalesce_gap_bytes=0, page_index="never")
    async with cp.open_table("trades", store=store, options=options) as table:
        assert await table.scan(where="symbol = 'ETH'", limit=limit).count() == limit
        read = sorted(data_reasons(table.request_log))
        assert read == [f"row group {number}: symbol" for number in range(len(read))]
        assert needed_row_groups <= len(read) <= 2 * needed_row_groups


async def test_what_metadata_counts_is_not_read_for_a_limited_count() -> None:
    store = await store_of({day: day_of_trades(day, rows=240, row_groups=10) for day in range(2)})
    options = cp.ReadOptions(coalesce_gap_bytes=0, page_index="never")
    async with cp.open_table("trades", store=store, options=options) as table:
        # Row group 0 of the first day is undecided, and metadata counts the 456 rows behind it.
        scan = table.scan(where="ts >= '2024-03-01T01:00' or symbol = 'unknown'", limit=460)
        assert await scan.count() == 460
        assert data_reasons(table.request_log) == ["row group 0: ts, symbol"]


async def test_text_is_answered_from_metadata_only_where_questdb_wrote_it(tmp_path: Path) -> None:
    """Parquet lets writers cut the bounds of text without saying so."""
    store = await store_of({0: day_of_trades(0, rows=30, row_groups=3)})
    async with cp.open_table("trades", store=store) as table:
        assert await table.scan().max("symbol") == "ETH"
        assert data_reasons(table.request_log) == ["row group 0: symbol"]  # the bounds of the others are no greater
    async with cp.open_table(copy_table("interval_month", tmp_path)) as table:
        rows = await table.scan(["sym"]).to_arrow()
        before = len(table.request_log)
        expected = pc.min_max(plain_column(rows, "sym"))
        assert_same_extremes(await table.scan().min_max("sym"), expected)
        assert data_reasons(table.request_log[before:]) == []


async def test_limits_are_honoured() -> None:
    store = await store_of({day: day_of_trades(day, rows=30, row_groups=3) for day in range(3)})
    async with cp.open_table("trades", store=store) as table:
        rows = await table.scan().to_arrow()
        for limit in (0, 1, 37, 1000):
            first = rows.slice(0, limit)
            await assert_answers(table.scan(limit=limit), first, ["price", "symbol", "size", "ts", "note"])
        odd = table.scan(where="symbol = 'ETH'", limit=20)
        assert await odd.max("price") == 39.0


async def test_statistics_that_are_not_to_be_believed_answer_nothing() -> None:
    store = await store_of({0: day_of_trades(0, rows=30, row_groups=3)})
    async with cp.open_table("trades", store=store, options=cp.ReadOptions(statistics=False)) as table:
        assert await table.scan().max("price") == 29.0
        assert await table.scan().null_count("size") == 3
        assert data_reasons(table.request_log) == ["row groups 0-2: price", "row groups 0-2: size"]


async def test_values_without_order_and_unknown_columns_are_refused(tmp_path: Path) -> None:
    async with cp.open_table(copy_table("types_all", tmp_path)) as table:
        kinds = {field.name: field.type for field in table.schema}
        lists = [name for name, type_ in kinds.items() if pa.types.is_list(type_)]
        for name in [*lists, "long256"] if "long256" in kinds else lists:
            with pytest.raises(UnsupportedError, match=name) as raised:
                await table.scan().min_max(name)
            assert raised.value.kind == "UnsupportedComparison"
        with pytest.raises(InvalidInputError, match="nothing_such"):
            await table.scan().max("nothing_such")


async def test_times_that_python_cannot_hold_are_only_given_as_arrow() -> None:
    sink = pa.BufferOutputStream()
    far = pa.array([2**62, 0], pa.timestamp("us", "UTC"))
    pa.parquet.write_table(pa.table({"t": far}), sink)
    store = MemoryStore()
    await store.put("day/data.parquet", sink.getvalue().to_pybytes(), overwrite=False)
    async with cp.open_partition("day", store=store) as table:
        assert (await table.scan().min_max("t"))["max"].equals(far[0])
        with pytest.raises(UnsupportedError, match="min_max") as raised:
            await table.scan().max("t")
        assert raised.value.kind == "NoPythonValue"


@pytest.mark.parametrize(("unit", "steps"), [("ms", 86_400_000), ("us", 86_400_000_000), ("ns", 86_400_000_000_000)])
async def test_times_outside_of_a_day_are_only_given_as_arrow(unit: str, steps: int) -> None:
    """Arrow makes Python times of another hour of them."""
    whole: Any = pa.int32() if unit == "ms" else pa.int64()
    kind: Any = {"ms": pa.time32("ms"), "us": pa.time64("us"), "ns": pa.time64("ns")}[unit]
    times = pa.array([-1, 5, steps], whole).cast(kind)
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"t": times}), sink)
    store = MemoryStore()
    await store.put("day/data.parquet", sink.getvalue().to_pybytes(), overwrite=False)
    async with cp.open_partition("day", store=store) as table:
        found = await table.scan().min_max("t")
        assert (found["min"].cast(whole).as_py(), found["max"].cast(whole).as_py()) == (-1, steps)
        for question in (table.scan().min("t"), table.scan().max("t")):
            with pytest.raises(UnsupportedError, match="min_max") as raised:
                await question
            assert raised.value.kind == "NoPythonValue"
        assert await table.scan(limit=2).max("t") == times[1].as_py()


@pytest.mark.parametrize("zone", [None, "UTC"])
async def test_the_least_nanosecond_is_no_missing_time(zone: str | None) -> None:
    """pandas takes it for NaT."""
    times = pa.array([-(2**63), 5], pa.timestamp("ns", zone))
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("t", times.type, nullable=False)])
    pa.parquet.write_table(pa.table([times], schema=schema), sink, sorting_columns=[pa.parquet.SortingColumn(0)])
    store = MemoryStore()
    await store.put("day/data.parquet", sink.getvalue().to_pybytes(), overwrite=False)
    async with cp.open_partition("day", store=store) as table:
        scan = table.scan()
        assert (await scan.min_max("t"))["min"].equals(times[0])
        for question in (scan.min("t"), scan.first_timestamp(), table.scan(where="t < 0").max("t")):
            with pytest.raises(UnsupportedError, match="min_max") as raised:
                await question
            assert raised.value.kind == "NoPythonValue"
        assert await scan.last_timestamp() == times[1].as_py()
        assert (await scan.top_k(1, ascending=True)).column("t")[0].equals(times[0])


async def test_a_table_without_designated_timestamp_says_so() -> None:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"n": [1, 2]}), sink)
    store = MemoryStore()
    await store.put("day/data.parquet", sink.getvalue().to_pybytes(), overwrite=False)
    async with cp.open_partition("day", store=store) as table:
        with pytest.raises(InvalidInputError, match="designated timestamp") as raised:
            await table.scan().first_timestamp()
        assert raised.value.kind == "NoDesignatedTimestamp"


EXTREME_INTEGERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 2**63 - 1, -(2**63)]))
EXTREME_FLOATS = st.one_of(st.none(), st.floats(), st.sampled_from([math.nan, -0.0, 0.0, math.inf, -math.inf]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": EXTREME_INTEGERS,
            "f": EXTREME_FLOATS,
            "b": st.one_of(st.none(), st.booleans()),
            "small": st.one_of(st.none(), st.integers(-128, 127)),
            "s": st.one_of(st.none(), st.text(max_size=3)),
            "u": st.one_of(st.none(), st.binary(min_size=16, max_size=16)),
        }
    ),
    max_size=12,
)
SCHEMA: Any = pa.schema(
    {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "small": pa.int8(), "s": pa.string(), "u": pa.binary(16)}  # type: ignore[arg-type]
)


@settings(max_examples=15)
@given(partitions=st.lists(ROWS, min_size=1, max_size=3), threshold=EXTREME_INTEGERS, row_group_size=st.integers(1, 5))
async def test_random_tables_are_answered_as_pyarrow_does(
    partitions: list[list[dict[str, Any]]], threshold: int | None, row_group_size: int
) -> None:
    store = MemoryStore()
    for number, rows in enumerate(partitions):
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), sink, row_group_size=row_group_size)
        await store.put(f"t/2024-03-0{number + 1}/data.parquet", sink.getvalue().to_pybytes(), overwrite=False)
    async with cp.open_table("t", store=store) as table:
        everything = await table.scan().to_arrow()
        await assert_answers(table.scan(), everything, everything.schema.names)
        if threshold is not None:
            is_kept = pc.greater_equal(everything.column("i"), pa.scalar(threshold, pa.int64()))
            scan = table.scan(where=cp.col("i") >= threshold)
            await assert_answers(scan, everything.filter(is_kept), everything.schema.names)
