"""Reading rows ``[n, m)`` of partitions: the same as reading all and slicing, for fewer bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.records import replace
from coldparquet.table_scan import Scan
from coldparquet.write import WriteOptions, write_partition
from tests.support.growing_tables import GrowingTable
from tests.support.questdb_tables import GOLDEN
from tests.support.written_tables import SECOND_US, assert_same_rows, trades

ROWS = 6_000


def windowed(scan: Scan, windows: dict[str, tuple[int, int]]) -> Scan:
    question = replace(
        scan.question,
        snapshot=replace(
            scan.question.snapshot,
            partitions=tuple(found for found in scan.question.snapshot.partitions if found.data_path in windows),
        ),
        row_windows=windows,
    )
    return Scan(question=question, executor=scan.executor, schema=scan.schema)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return trades(0, ROWS)


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Path:
    path = tmp_path_factory.mktemp("windows") / "1970-01-01"
    options = WriteOptions(row_group_rows=1_000, page_rows=100)
    asyncio.run(write_partition(path, rows, timestamp="ts", options=options))
    return path


CONDITIONS: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True,
    "price > 300": lambda row: row * 0.25 > 300,
    "symbol = 'BTC' and price >= 100": lambda row: row % 3 == 0 and row * 0.25 >= 100,
    "price < 0": lambda _: False,
    "ts < '1970-01-01T00:30'": lambda row: row < 1_800,
}
"""Which of the rows, by their numbers, satisfy a condition."""


@given(
    st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted),
    st.sampled_from(list(CONDITIONS)),
    st.sampled_from(["auto", "always", "never"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_window_is_a_slice(partition: Path, window: list[int], where: str | None, page_index: Any) -> None:
    first, stop = window
    async with cp.open_partition(partition) as table:
        scan = table.scan(["ts", "price"], where, options=cp.ReadOptions(page_index=page_index))
        found = await windowed(scan, {table.partitions[0].data_path: (first, stop)}).to_arrow()
    expected = [row for row in range(first, stop) if CONDITIONS[where](row)]
    assert found["ts"].cast(pa.int64()).to_pylist() == [row * SECOND_US for row in expected]
    assert found["price"].to_pylist() == [row * 0.25 for row in expected]


async def test_only_the_row_groups_of_the_window_are_fetched(partition: Path) -> None:
    async with cp.open_partition(partition) as table:
        path = table.partitions[0].data_path
        plan = await windowed(table.scan(["price"]), {path: (1_500, 3_000)}).plan()
        whole = await table.scan(["price"]).plan()
    assert [read.row_group for read in plan.row_groups] == [1, 2]
    assert [read.row_count for read in plan.row_groups] == [500, 1_000]
    assert plan.bytes_fetched < whole.bytes_fetched / 2
    [dropped] = [found for found in plan.partitions[0].dropped if found.reason == "row window"]
    assert dropped.row_groups == 4
    assert "row window" in plan.explain()


async def test_counting_a_window_needs_no_data(partition: Path) -> None:
    async with cp.open_partition(partition) as table:
        scan = windowed(table.scan(["price"]), {table.partitions[0].data_path: (1_500, 3_100)})
        assert await scan.count() == 1_600
        assert not any(record.role == "data" for record in scan.request_log)


async def test_pieces_hold_the_rows_of_the_window_alone(partition: Path, rows: pa.Table) -> None:
    async with cp.open_partition(partition) as table:
        scan = windowed(table.scan(["price"]), {table.partitions[0].data_path: (950, 2_050)})
        pieces = await scan.pieces(3)
    found = [
        value for piece in pieces for batch in cp.pieces.read_piece_batches(piece) for value in batch[0].to_pylist()
    ]
    assert found == rows["price"].slice(950, 1_100).to_pylist()


async def test_windows_of_several_partitions(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    for day in (1, 2, 3):
        await table.publish(day, 10)
    async with cp.open_table(table.directory) as opened:
        paths = [found.data_path for found in opened.partitions]
        scan = windowed(opened.scan(["number"]), {paths[0]: (8, 10), paths[2]: (0, 3)})
        assert (await scan.to_arrow())["number"].to_pylist() == [8, 9, 20, 21, 22]


@pytest.mark.parametrize("name", ["pages", "row_groups", "types_all_groups"])
async def test_genuine_partitions(name: str) -> None:
    async with cp.open_table(GOLDEN / name / "table") as table:
        found = table.partitions[0]
        count = found.rows or 0
        first, stop = count // 3, count - 2
        cut = await windowed(table.scan(), {found.data_path: (first, stop)}).to_arrow()
        whole = await table.scan().to_arrow()
    assert_same_rows(cut, whole.slice(first, stop - first))
