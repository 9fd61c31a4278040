"""The blocking API gives what the async one gives."""

from __future__ import annotations

import asyncio
import inspect
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance import index_table, verify_table
from tests.support.questdb_tables import copy_parquet_partitions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def partition_path(tmp_path: Path) -> Path:
    path = tmp_path / "2024-03-01"
    path.mkdir()
    table = pa.table({"x": pa.array(range(1000)), "name": ["a", "b"] * 500})
    pq.write_table(table, path / "data.parquet", row_group_size=100)
    return path


def test_a_table_answers_without_an_event_loop(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path) as table:
        scan = table.scan(["x"], [("x", ">=", 950)])
        assert scan.count() == 50
        assert scan.plan().request_count == 1
        assert scan.to_arrow().column("x").to_pylist() == list(range(950, 1000))
        assert sum(batch.num_rows for batch in scan.batches()) == 50
        assert list(scan.to_pandas()["x"]) == list(range(950, 1000))
        assert scan.to_polars()["x"].to_list() == list(range(950, 1000))
        assert table.schema.names == ["x", "name"]
        assert len(table.partitions) == 1
        assert table.request_log


def test_tables_and_scans_print_what_they_are(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path) as table:
        assert repr(table) == f"<Table {table.url}: 1 partition, 2 columns>"
        assert repr(table.scan(["x"], "x > 3")) == f"<Scan of {table.url}: x where x > 3>"


def test_answers_are_those_of_the_async_api(tmp_path: Path) -> None:
    first = datetime(2024, 3, 1, tzinfo=UTC)
    times = [first + timedelta(hours=hour) for hour in range(24)]
    rows = pa.table({"ts": pa.array(times), "k": ["a", "b", None] * 8, "n": [None, *range(1, 24)]})
    rows = rows.set_column(0, pa.field("ts", pa.timestamp("us", "UTC"), nullable=False), rows.column("ts"))
    directory = tmp_path / "2024-03-01"
    directory.mkdir()
    pq.write_table(rows, directory / "data.parquet", row_group_size=5, sorting_columns=[pq.SortingColumn(0)])
    with cp.sync.open_partition(directory) as table:
        scan = table.scan(["n"])
        assert scan.any()
        assert (scan.min("n"), scan.max("n"), scan.null_count("n")) == (1, 23, 1)
        assert [scan.min_max("n")[side].as_py() for side in ("min", "max")] == [1, 23]
        assert (scan.first_timestamp(), scan.last_timestamp()) == (times[0], times[-1])
        assert scan.head(2).to_pydict() == {"n": [None, 1]}
        assert scan.tail(2).to_pydict() == {"n": [22, 23]}
        assert scan.top_k(2).to_pydict() == {"n": [23, 22]}
        assert scan.top_k(2, ascending=True).to_pydict() == {"n": [None, 1]}
        assert scan.latest_by("k").to_pydict() == {"n": [21, 22, 23]}


def test_other_libraries_take_a_scan_as_it_is(partition_path: Path) -> None:
    with cp.sync.open_table(partition_path) as table:
        scan = table.scan(["x", "name"], "x < 3")
        assert pa.table(scan).to_pydict() == {"x": [0, 1, 2], "name": ["a", "b", "a"]}
        assert pl.DataFrame(scan).shape == (3, 2)
        assert pd.DataFrame.from_arrow(scan).shape == (3, 2)


def test_leaving_the_loop_early_is_fine(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path) as table:
        batches = table.scan().batches()
        assert next(batches).num_rows == 100
        batches.close()
        assert table.scan(where="x = 7").count() == 1


def test_batches_in_a_with_block(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path) as table:
        with table.scan().batches() as batches:
            assert next(batches).num_rows == 100
            assert sum(batch.num_rows for batch in batches) == 900
        with table.scan().batches() as batches:
            next(batches)
        assert list(batches) == []
        with pytest.raises(KeyError), table.scan().batches() as batches:
            raise KeyError(next(batches).num_rows)
        assert list(batches) == []


def test_it_works_inside_the_event_loop_of_a_notebook(partition_path: Path) -> None:
    async def cell() -> int:
        with cp.sync.open_partition(partition_path) as table:
            return table.scan().count()

    assert asyncio.run(cell()) == 1000


async def test_what_has_no_blocking_form_of_its_own_is_waited_for(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    report = cp.sync.run(index_table(table))  # in a running event loop, where asyncio.run refuses
    assert report.count("written") == len(report.partitions) > 0
    with pytest.raises(cp.errors.NotFoundError):
        cp.sync.run(verify_table(tmp_path / "absent"))


def test_help_shows_the_arguments_of_the_async_api() -> None:
    for name in ("open_table", "open_partition", "open_partitions"):
        blocking, asynchronous = (inspect.signature(getattr(module, name)) for module in (cp.sync, cp))
        assert blocking.parameters == asynchronous.parameters
        assert blocking.return_annotation == "Table"
    assert str(inspect.signature(cp.sync.Scan.top_k)) == "(self, n: 'int', *, ascending: 'bool' = False) -> 'pa.Table'"
    assert not inspect.iscoroutinefunction(cp.sync.Scan.top_k)


def test_many_threads_may_share_a_table(partition_path: Path) -> None:
    counts: list[int] = []
    with cp.sync.open_partition(partition_path) as table:
        threads = [threading.Thread(target=lambda: counts.append(table.scan(where="x < 10").count())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [10] * 8


def test_errors_arrive_as_they_are(partition_path: Path) -> None:
    with pytest.raises(cp.errors.NotFoundError, match="nowhere"):
        cp.sync.open_partition(partition_path / "nowhere")
    with cp.sync.open_partition(partition_path) as table, pytest.raises(cp.errors.InvalidInputError, match="'y'"):
        table.scan(["y"])
