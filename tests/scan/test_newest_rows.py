"""Last rows, newest rows and the newest row of each key: those of all rows, read from one end of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN
from tests.support.small_tables import (
    FIRST_DAY_US,
    data_reasons,
    day_of_trades,
    parquet_of,
    plain_column,
    store_of,
    trades_of,
)
from tests.support.table_copies import indexed_copy

TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
COLUMNS_TRIED = 2
"""Columns of each genuine table that are tried as keys, beside its symbols and a pair."""


def values(rows: pa.Table) -> list[Any]:
    """Rows as plain data that compares; times as integers, because not all of them are Python's, and NaN as text."""
    columns = []
    for name in rows.schema.names:
        column = plain_column(rows, name)
        column = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns.append([str(value) for value in column.to_pylist()])
    return columns


def rows_at(rows: pa.Table, positions: list[int]) -> pa.Table:
    return rows.take(np.array(positions, dtype=np.int64))


def by_time(rows: pa.Table) -> list[int]:
    """Positions in the order of time and, for equal times, of the table."""
    ts = rows.column("ts").cast(pa.int64()).to_numpy()
    return [int(row) for row in np.argsort(ts, kind="stable")]


def latest(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The last row in time of each key, one by one."""
    columns = values(rows.select(list(keys)))
    last: dict[tuple[str, ...], int] = {}
    order = by_time(rows)
    for row in order:
        last[tuple(column[row] for column in columns)] = row
    wanted = set(last.values())
    return rows_at(rows, [row for row in order if row in wanted])


async def assert_ends(scan: cp.Scan, rows: pa.Table, count: int) -> None:
    order = by_time(rows)
    assert values(await scan.head(count)) == values(rows.slice(0, count))
    assert values(await scan.tail(count)) == values(rows.slice(max(rows.num_rows - count, 0)))
    assert values(await scan.top_k(count)) == values(rows_at(rows, order[::-1][:count]))
    assert values(await scan.top_k(count, ascending=True)) == values(rows_at(rows, order[:count]))


@pytest.mark.parametrize("name", TABLES)
async def test_the_ends_of_genuine_tables(name: str, tmp_path: Path) -> None:
    async with cp.open_table(await indexed_copy(name, tmp_path)) as table:
        others = [column for column in table.schema.names if column != "ts"]
        columns = ["ts", *(others if name == "types_all_groups" else others[:COLUMNS_TRIED])]
        rows = await table.scan(columns).to_arrow()
        for count in (77, 100_000):
            await assert_ends(table.scan(columns), rows, count)
        median = int(np.median(rows.column("ts").cast(pa.int64()).to_numpy()))
        before = rows.filter(pa.array(rows.column("ts").cast(pa.int64()).to_numpy() < median))
        await assert_ends(table.scan(columns, cp.col("ts") < median), before, 9)


@pytest.mark.parametrize("name", TABLES)
async def test_latest_rows_of_genuine_tables(name: str, tmp_path: Path) -> None:
    async with cp.open_table(await indexed_copy(name, tmp_path)) as table:
        rows = await table.scan(["ts", *[column for column in table.schema.names if column != "ts"][:11]]).to_arrow()
        symbols = [field.name for field in rows.schema if pa.types.is_dictionary(field.type)]
        others = [field.name for field in rows.schema if not _is_no_key(field.type) and field.name not in symbols]
        keys = [(key,) for key in (*symbols, *others[:COLUMNS_TRIED])]
        for key in [*keys, tuple(others[:2])]:
            assert values(await table.scan(rows.schema.names).latest_by(*key)) == values(latest(rows, key)), key
        some = rows.column("ts").cast(pa.int64()).to_numpy() % 2 == 0
        even = [column for column in rows.schema.names if column != "ts"][:3]
        wanted = latest(rows.filter(pa.array(some)), keys[0]).select(even)
        times = sorted(set(rows.column("ts").cast(pa.int64()).to_numpy()[some].tolist()))
        if len(times) < 1000:
            scan = table.scan(even, cp.col("ts").is_in(times))
            assert values(await scan.latest_by(*keys[0])) == values(wanted)


def _is_no_key(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_floating(type_)


async def trades_store(days: int, **options: Any) -> MemoryStore:
    return await store_of({day: day_of_trades(day, rows=240, row_groups=10, **options) for day in range(days)})


async def test_tail_reads_the_metadata_of_one_partition_and_one_row_group() -> None:
    async with cp.open_table("trades", store=await trades_store(30)) as table:
        before = len(table.request_log)
        rows = await table.scan(["ts", "price"]).tail(20)
        assert rows.column("price").to_pylist() == list(range(30 * 240 - 20, 30 * 240))
        assert [record.reason for record in table.request_log[before:]] == ["row group 9: ts, price"]
        await table.scan(["price"]).tail(300)
        # Two more partitions, as one does not hold as many rows; of the second just the row groups at its end.
        assert sorted(record.path[7:] for record in table.request_log[before + 1 :]) == [
            "2024-03-28.7/_pm",
            "2024-03-29.7/_pm",
            "2024-03-29.7/data.parquet",
            "2024-03-30.7/data.parquet",
        ]
        assert data_reasons(table.request_log)[-1] == "row groups 7-9: price"


async def test_tail_reads_the_last_pages_only() -> None:
    """With a page index, 1,000 rows of 100,000 are a page or two of each column."""
    rows = trades_of(0, 100_000)
    data = parquet_of(
        rows, row_groups=1, data_page_size=8_000, write_batch_size=500, write_page_index=True, use_dictionary=False
    )
    store = await store_of({0: data})
    options = cp.ReadOptions(page_index="always", goal="few-bytes")
    async with cp.open_table("trades", store=store, options=options) as table:
        plan = await table.scan(["price"]).plan()
        before = len(table.request_log)
        found = await table.scan(["price"]).tail(1_000)
        assert found.column("price").to_pylist() == rows.column("price").to_pylist()[-1_000:]
        data_bytes = sum(record.fetched_bytes for record in table.request_log[before:] if data_reasons([record]))
        assert data_bytes < plan.bytes_fetched / 20


async def test_undecided_row_groups_are_read_from_the_end_until_there_are_enough() -> None:
    async with cp.open_table("trades", store=await trades_store(30)) as table:
        before = len(table.request_log)
        rows = await table.scan(["price"], "symbol = 'BTC'").tail(30)
        assert rows.column("price").to_pylist() == list(range(30 * 240 - 60, 30 * 240, 2))
        assert data_reasons(table.request_log[before:]) == [
            "row group 9: symbol, price",
            "row groups 7-8: symbol, price",
        ]


async def test_top_rows_of_a_table_that_is_in_order_come_from_its_end() -> None:
    async with cp.open_table("trades", store=await trades_store(30)) as table:
        before = len(table.request_log)
        newest = await table.scan(["price"]).top_k(5)
        assert newest.column("price").to_pylist() == list(range(30 * 240 - 1, 30 * 240 - 6, -1))
        oldest = await table.scan(["price"]).top_k(5, ascending=True)
        assert oldest.column("price").to_pylist() == list(range(5))
        assert data_reasons(table.request_log[before:]) == ["row group 9: ts, price", "row group 0: ts, price"]


async def test_row_groups_out_of_order_lose_no_row() -> None:
    """Row groups overlap in time and lie in any order; only what may hold one of the newest rows is read."""
    random = np.random.default_rng(7)
    rows = trades_of(0, 1_000)
    pieces = [rows.slice(start, 100) for start in range(0, 1_000, 100)]
    shuffled = pa.concat_tables([pieces[piece] for piece in random.permutation(10)])
    async with cp.open_table("trades", store=await store_of({0: parquet_of(shuffled, row_groups=10)})) as table:
        newest = await table.scan(["price"]).top_k(150)
        assert newest.column("price").to_pylist() == list(range(999, 849, -1))
        assert len(data_reasons(table.request_log)) <= 2
        assert await table.scan().last_timestamp() == rows.column("ts")[-1].as_py()
        everything = await table.scan().to_arrow()
        assert values(await table.scan().latest_by("symbol")) == values(latest(everything, ("symbol",)))


async def test_latest_rows_stop_at_once_where_a_predicate_names_the_keys() -> None:
    async with cp.open_table("trades", store=await trades_store(30)) as table:
        before = len(table.request_log)
        rows = await table.scan(["symbol", "price"], "symbol in ('ETH', 'BTC')").latest_by("symbol")
        assert rows.column("symbol").to_pylist() == ["BTC", "ETH"]
        assert rows.column("price").to_pylist() == [30 * 240 - 2, 30 * 240 - 1]
        assert [record.reason for record in table.request_log[before:]] == [
            "row group 9: ts, symbol",
            "row group 9: ts, symbol, price",
        ]


async def test_latest_rows_stop_where_the_table_has_no_other_symbols(tmp_path: Path) -> None:
    async with cp.open_table(await indexed_copy("row_groups", tmp_path)) as table:
        everything = await table.scan(["color", "ts"]).to_arrow()
        before = len(table.request_log)
        rows = await table.scan(["color", "ts"]).latest_by("color")
        assert values(rows) == values(latest(everything, ("color",)))
        read = data_reasons(table.request_log[before:])
        assert 1 <= len(read) < 10


async def test_latest_rows_leave_out_row_groups_of_one_key_that_was_seen() -> None:
    """Each of 100 row groups holds one key, ten keys in all: the statistics tell that older ones hold nothing new."""
    tables = {}
    for day in range(10):
        rows = trades_of(day, 100)
        names = [f"k{number // 10}" for number in range(100)]
        tables[day] = parquet_of(rows.set_column(1, "symbol", pa.array(names)), row_groups=10)
    async with cp.open_table("trades", store=await store_of(tables)) as table:
        before = len(table.request_log)
        found = await table.scan(["price", "symbol"]).latest_by("symbol")
        assert found.column("symbol").to_pylist() == [f"k{number}" for number in range(10)]
        assert found.column("price").to_pylist() == [900 + 10 * number + 9 for number in range(10)]
        data = [record for record in table.request_log[before:] if data_reasons([record])]
        assert {record.path for record in data} == {"trades/2024-03-10.7/data.parquet"}


async def test_null_is_a_key_and_ties_go_to_the_last_row() -> None:
    rows = pa.table(
        {
            "ts": pa.array([FIRST_DAY_US + after for after in (0, 5, 5, 5, 5)], pa.timestamp("us", "UTC")),
            "k": pa.array(["a", None, "a", "a", None]),
            "n": pa.array([0, 1, 2, 3, 4]),
        }
    )
    async with cp.open_table("trades", store=await store_of({0: parquet_of(rows, row_groups=2)})) as table:
        found = await table.scan(["k", "n"]).latest_by("k")
        assert found.to_pydict() == {"k": ["a", None], "n": [3, 4]}
        assert (await table.scan(["n"]).top_k(2)).to_pydict() == {"n": [4, 3]}
        assert (await table.scan(["n"], "ts > '2024-03-01'").top_k(2, ascending=True)).to_pydict() == {"n": [1, 2]}


async def test_rows_of_other_times_than_their_directory_are_refused_where_time_counts() -> None:
    store = await store_of({day: parquet_of(trades_of(4 - day, 20), row_groups=2) for day in range(5)})
    async with cp.open_table("trades", store=store) as table:
        scan = table.scan(["price"])
        assert (await scan.tail(2)).column("price").to_pylist() == [18.0, 19.0]  # table order
        for asked in (scan.top_k(1), scan.latest_by("symbol"), scan.first_timestamp()):
            with pytest.raises(FormatError) as raised:
                await asked
            assert raised.value.kind == "TimeRangeMismatch"


async def test_what_makes_no_sense_is_refused() -> None:
    async with cp.open_table("trades", store=await trades_store(1)) as table:
        limited = table.scan(limit=3)
        for asked in (limited.tail(1), limited.top_k(1), limited.latest_by("symbol")):
            with pytest.raises(InvalidInputError, match="limit") as raised:
                await asked
            assert raised.value.kind == "LimitNotAllowed"
        for count in (-1, 1.5, "3", True):
            with pytest.raises(InvalidInputError, match="whole number"):
                await table.scan().tail(count)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="at least one column"):
            await table.scan().latest_by()
        with pytest.raises(InvalidInputError, match="symbl"):
            await table.scan().latest_by("symbl")
        with pytest.raises(UnsupportedError, match="price"):
            await table.scan().latest_by("price")


ROWS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", "c", None]), st.integers(0, 2)), min_size=1, max_size=15
)


@settings(max_examples=10)
@given(
    days=st.lists(ROWS, min_size=1, max_size=4),
    row_groups=st.integers(1, 5),
    count=st.integers(1, 20),
    is_sorted=st.booleans(),
    smallest=st.integers(0, 3),
)
async def test_random_tables(
    days: list[list[tuple[int, str | None, int]]], row_groups: int, count: int, is_sorted: bool, smallest: int
) -> None:
    """Many equal timestamps, keys in a few row groups only, rows in order or not."""
    tables = {}
    for day, drawn in enumerate(days):
        rows = sorted(drawn, key=lambda row: row[0]) if is_sorted else drawn
        first = trades_of(day, 1).column("ts").cast(pa.int64())[0].as_py()
        table = pa.table(
            {
                "ts": pa.array([first + ts for ts, _, _ in rows], pa.timestamp("us", "UTC")),
                "k": pa.array([key for _, key, _ in rows], pa.string()),
                "n": pa.array([number for _, _, number in rows], pa.int64()),
                "row": pa.array(range(len(rows)), pa.int64()),
            }
        )
        tables[day] = parquet_of(table, row_groups=row_groups)
    async with cp.open_table("trades", store=await store_of(tables)) as opened:
        everything = await opened.scan().to_arrow()
        kept = everything.filter(pa.array(everything.column("n").to_numpy() >= smallest))
        for scan, rows_of_scan in ((opened.scan(), everything), (opened.scan(where=cp.col("n") >= smallest), kept)):
            await assert_ends(scan, rows_of_scan, count)
            for keys in (("k",), ("n",), ("k", "n")):
                assert values(await scan.latest_by(*keys)) == values(latest(rows_of_scan, keys))
            times: list[Any] = rows_of_scan.column("ts").to_pylist()
            assert await scan.first_timestamp() == min(times, default=None)
            assert await scan.last_timestamp() == max(times, default=None)
