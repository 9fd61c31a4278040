"""Tables of many partitions, and partitions that differ from each other."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError
from coldparquet.format.parquet_thrift import FileMetaData
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.compact import compact_table
from tests.support.parquet_footers import parquet_bytes, with_changed_footer
from tests.support.questdb_tables import copy_parquet_partitions


def parquet(columns: Mapping[str, Any]) -> bytes:
    return parquet_bytes(pa.table(dict(columns)))


async def store_of(files: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for path, data in files.items():
        await store.put(path, data, overwrite=False)
    return store


async def test_the_newest_version_of_each_directory_wins_and_explain_says_so() -> None:
    store = await store_of(
        {
            "t/2024-03-02.9/data.parquet": parquet({"x": [3]}),
            "t/2024-03-01/data.parquet": parquet({"x": [0]}),
            "t/2024-03-01.2/data.parquet": parquet({"x": [1]}),
            "t/2024-03-01.10/data.parquet": parquet({"x": [2]}),
            "t/2024-03-01.11.detached/data.parquet": parquet({"x": [9]}),
            "t/lost+found/data.parquet": parquet({"x": [9]}),
        }
    )
    async with cp.open_table("t", store=store) as table:
        assert [partition.name for partition in table.partitions] == ["2024-03-01.10", "2024-03-02.9"]
        assert (await table.scan().to_arrow()).column("x").to_pylist() == [2, 3]
        explained = (await table.scan().plan()).explain()
        assert "2 older versions of partitions were not read: 2024-03-01, 2024-03-01.2" in " ".join(explained.split())


async def test_a_column_that_older_partitions_lack_is_null_there() -> None:
    store = await store_of(
        {
            "t/2024-03-01/data.parquet": parquet({"x": [1, 2]}),
            "t/2024-03-02/data.parquet": parquet({"x": [3], "y": ["a"]}),
        }
    )
    async with cp.open_table("t", store=store) as table:
        rows = await table.scan(["y", "x"]).to_arrow()
        assert rows.to_pydict() == {"y": [None, None, "a"], "x": [1, 2, 3]}
        assert await table.scan(where="y is null").count() == 2
        assert await table.scan(where="y = 'a' or x = 1").count() == 2


async def test_a_column_whose_type_changed_is_refused_by_name() -> None:
    store = await store_of(
        {
            "t/2024-03-01/data.parquet": parquet({"x": [1.5]}),
            "t/2024-03-02/data.parquet": parquet({"x": [3]}),
        }
    )
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(cp.errors.UnsupportedError, match="column 'x' is DOUBLE here, but LONG"):
            await table.scan().to_arrow()


async def test_a_native_partition_is_refused_not_left_out() -> None:
    store = await store_of(
        {"t/2024-03-01/x.d": b"\0" * 8, "t/2024-03-02/data.parquet": parquet({"x": [3]})},
    )
    async with cp.open_table("t", store=store) as table:
        with pytest.raises(cp.errors.UnsupportedError, match="native format") as caught:
            await table.scan().to_arrow()
        assert caught.value.path == "t/2024-03-01"


async def test_a_partition_that_vanishes_is_missed() -> None:
    """Other files than those of QuestDB's columns do not make it a native one."""
    files = {"t/2024-03-01/data.parquet": parquet({"x": [1]}), "t/2024-03-02/data.parquet": parquet({"x": [3]})}
    for left in ({}, {"t/2024-03-01/_pages": b"?"}):
        store = await store_of(files | left)
        async with cp.open_table("t", store=store) as table:
            await store.delete(["t/2024-03-01/data.parquet"])
            with pytest.raises(cp.errors.NotFoundError, match="removed or replaced since") as caught:
                await table.scan().to_arrow()
            assert (caught.value.kind, caught.value.path) == ("NoDataFile", "t/2024-03-01/data.parquet")


async def test_the_columns_come_from_the_newest_partition_that_is_in_parquet() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"x": [3]}), "t/2024-03-02/x.d": b"\0" * 8})
    async with cp.open_table("t", store=store) as table:
        assert table.schema.names == ["x"]
        with pytest.raises(cp.errors.UnsupportedError, match="native format"):
            await table.scan().to_arrow()
    only_native = await store_of({"t/2024-03-02/x.d": b"\0" * 8})
    with pytest.raises(cp.errors.UnsupportedError, match="native format"):
        await cp.open_table("t", store=only_native)


async def test_one_partition_directory_or_file_is_a_table_too() -> None:
    store = await store_of(
        {"t/2024-03-01/data.parquet": parquet({"x": [1]}), "other/file.parquet": parquet({"x": [2]})}
    )
    for url, expected in (("t/2024-03-01", 1), ("t/2024-03-01/data.parquet", 1), ("other/file.parquet", 2)):
        async with cp.open_table(url, store=store) as table:
            assert (await table.scan().to_arrow()).column("x").to_pylist() == [expected]


async def test_an_empty_directory_says_what_was_expected() -> None:
    store = await store_of({"t/readme.txt": b"hello"})
    with pytest.raises(cp.errors.NotFoundError, match=r"such as 2024-03-01 .*data\.parquet"):
        await cp.open_table("t", store=store)


async def test_a_table_that_is_opened_as_a_partition_is_told_from_one_that_is_missing() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"x": [1]}), "other/a/b.txt": b"hello"})
    with pytest.raises(cp.errors.NotFoundError, match="this looks like a table: use open_table") as caught:
        await cp.open_partition("t/", store=store)
    assert (caught.value.kind, caught.value.path) == ("NotFound", "t/data.parquet")
    for missing in ("other", "nothing", "t/2024-03-02", "t/data.parquet"):
        with pytest.raises(cp.errors.NotFoundError) as caught:
            await cp.open_partition(missing, store=store)
        assert "looks like a table" not in caught.value.message


@pytest.mark.parametrize("name", ["date=2024-03-01/part-0.parquet", "a.parquet"])
async def test_a_dataset_of_other_tools_says_how_it_becomes_a_table(name: str) -> None:
    store = await store_of({f"t/{name}": parquet({"x": [1]})})
    with pytest.raises(cp.errors.NotFoundError, match="coldparquet convert SOURCE --to DESTINATION") as caught:
        await compact_table("t", store=store)
    assert caught.value.kind == "NoPartitions"


async def test_a_directory_too_high_says_what_it_holds() -> None:
    store = await store_of({"t/readme.txt": b"hello", "t/notes/a.txt": b"hello"})
    with pytest.raises(cp.errors.NotFoundError, match=r"it holds notes: if one of them is a table, open that$"):
        await cp.open_table("t", store=store)


async def test_a_missing_table_is_named() -> None:
    with pytest.raises(cp.errors.NotFoundError, match=r"^t: there is no such table, partition or Parquet file"):
        await cp.open_table("t", store=await store_of({}))


async def test_a_missing_partition_names_the_file() -> None:
    store = await store_of({"t/readme.txt": b"hello"})
    with pytest.raises(cp.errors.NotFoundError, match=r"t/nowhere/data\.parquet"):
        await cp.open_partition("t/nowhere", store=store)


async def test_errors_of_the_call_come_before_any_request() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"price": [1.0], "symbol": ["a"]})})
    async with cp.open_table("t", store=store) as table:
        before = len(table.request_log)
        with pytest.raises(cp.errors.InvalidInputError, match="did you mean 'price'"):
            table.scan(["prise"])
        with pytest.raises(cp.errors.InvalidInputError, match="did you mean 'symbol'"):
            table.scan(where="symbl = 'a'")
        with pytest.raises(cp.errors.InvalidInputError, match=r"such as \['ts', 'price'\], not 'price'"):
            table.scan("price")
        with pytest.raises(cp.errors.InvalidInputError, match="not 5"):
            table.scan(5)  # type: ignore[arg-type]
        with pytest.raises(cp.errors.InvalidInputError, match="by name"):
            table.scan(["price", ["x"]])  # type: ignore[list-item]
        with pytest.raises(cp.errors.InvalidInputError, match="more than once"):
            table.scan(["price", "price"])
        with pytest.raises(cp.errors.InvalidInputError, match="limit"):
            table.scan(limit=-1)
        with pytest.raises(cp.errors.InvalidInputError):
            table.scan(where="price > 'abc'")
        assert len(table.request_log) == before


async def test_a_column_that_cannot_be_read_can_be_left_out() -> None:
    times = pa.array([1], pa.duration("us"))
    file = parquet(
        {"x": [1], "odd": pa.array([5], pa.int32()), "list": pa.array([[5]], pa.list_(pa.int32())), "d": times}
    )

    def annotate(metadata: FileMetaData) -> None:
        for element in metadata.schema:
            if element.type == PhysicalType.INT32:
                element.converted_type = 18  # of 64 bits: pyarrow reads none of these columns

    store = await store_of({"t/data.parquet": with_changed_footer(file, annotate)})
    async with cp.open_table("t", store=store) as table:
        assert table.schema.names == ["x", "d"]
        with pytest.raises(cp.errors.UnsupportedError, match="'odd'"):
            table.scan()
        with pytest.raises(
            cp.errors.UnsupportedError, match="'list' cannot be read: pyarrow cannot read its Parquet schema"
        ):
            table.scan(["x", "list"])
        assert (await table.scan(["x"]).to_arrow()).to_pydict() == {"x": [1]}


async def test_a_preview_reads_the_metadata_of_no_more_partitions_than_it_needs() -> None:
    store = await store_of({f"t/2024-03-{day:02}/data.parquet": parquet({"x": [day] * 10}) for day in range(1, 21)})
    await index_table("t", store=store, pages=False, pack=False)
    async with cp.open_table("t", store=store) as table:
        rows = await table.scan(limit=15).to_arrow()
        assert rows.column("x").to_pylist() == [1] * 10 + [2] * 5
        sidecars = [record.path for record in table.request_log if record.path.endswith("_pm")]
        assert sidecars == ["t/2024-03-20/_pm", "t/2024-03-01/_pm", "t/2024-03-02/_pm"]


async def test_two_scans_share_one_sidecar_request() -> None:
    store = await store_of({f"t/2024-03-0{day}/data.parquet": parquet({"x": [day]}) for day in range(1, 4)})
    await index_table("t", store=store, pages=False, pack=False)
    async with cp.open_table("t", store=store) as table:
        first, second = table.scan(), table.scan(["x"])
        await first.plan()
        await second.plan()
        sidecars = [record for record in table.request_log if record.path.endswith("_pm")]
        assert len(sidecars) == 3


async def test_a_store_of_the_caller_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_of({"t/data.parquet": parquet({"x": [1]})})
    closed = []

    async def aclose() -> None:
        closed.append(True)

    monkeypatch.setattr(store, "aclose", aclose)
    async with cp.open_table("t", store=store):
        pass
    assert not closed


async def test_a_column_that_changed_its_type_bothers_only_questions_that_need_it() -> None:
    store = MemoryStore()
    for day, values in ((1, pa.array([1, 2])), (2, pa.array(["a", "b"]))):
        await store.put(
            f"table/2024-03-0{day}/data.parquet",
            parquet_bytes(pa.table({"kept": [day, day], "changed": values})),
            overwrite=False,
        )
    async with cp.open_table("table", store=store) as table:
        assert (await table.scan(["kept"]).to_arrow()).column("kept").to_pylist() == [1, 1, 2, 2]
        with pytest.raises(
            cp.errors.UnsupportedError, match="'changed' is LONG here, but VARCHAR in the table"
        ) as caught:
            await table.scan(["kept"], "changed = 'a'").count()
        assert caught.value.kind == "ChangedColumnType"


async def test_directories_that_look_like_partitions_but_are_none_are_noted() -> None:
    files = {
        f"t/{name}/data.parquet": parquet({"x": [1]}) for name in ("2024-03-01", "2024-02-30", "1969-12-31", "old")
    }
    async with cp.open_table("t", store=await store_of(files)) as table:
        assert [partition.name for partition in table.partitions] == ["2024-03-01"]
        explained = (await table.scan().plan()).explain()
        assert (
            "rows may be missing: 1969-12-31, 2024-02-30, old not read, because no partition has such a name"
            in explained
        )


@pytest.mark.parametrize("name", ["default", "1970-01-01", "2262-04-11", "9999-12-31"])
async def test_partitions_whose_range_exceeds_nanoseconds_are_planned(name: str) -> None:
    times = pa.array([7], pa.timestamp("ns", "UTC"))
    field = pa.field("ts", times.type, nullable=False)
    order = [pq.SortingColumn(0)]
    store = await store_of(
        {f"t/{name}/data.parquet": parquet_bytes(pa.table([times], schema=pa.schema([field])), sorting_columns=order)}
    )
    async with cp.open_table("t", store=store) as table:
        plan = await table.scan(where="ts < '2024-01-01'").plan()
        begins_early = name in ("default", "1970-01-01")
        assert len(plan.partitions) == begins_early
        assert len(plan.partitions_pruned) == (not begins_early)


async def test_a_table_that_is_not_awaited_says_how_to_open_it() -> None:
    store = await store_of({"t/data.parquet": parquet({"x": [1]})})
    with pytest.raises(cp.errors.InvalidInputError, match="async with"), cp.open_table("t", store=store):
        pass


async def test_a_plan_prints_as_its_explanation() -> None:
    store = await store_of({"t/data.parquet": parquet({"x": [1, 2]})})
    async with cp.open_table("t", store=store) as table:
        plan = await table.scan().plan()
        assert str(plan) == plan.explain()
        assert repr(plan) == f"<ReadPlan of t: 1 requests, {plan.bytes_fetched} bytes>"


async def test_a_table_that_is_not_open_says_how_to_open_it() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"x": [1]})})
    opening: Any = cp.open_table("t", store=store)
    for name in ("scan", "schema", "partitions"):
        with pytest.raises(AttributeError, match=rf"so it has no '{name}': use 'async with coldparquet\.open_table"):
            getattr(opening, name)
    with pytest.raises(AttributeError, match="'Opening' object has no attribute 'scam'"):
        opening.scam()
    async with opening as table:
        assert await table.scan().count() == 1


async def test_options_of_a_scan_that_are_none_are_refused() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"x": [1]})})
    async with cp.open_table("t", store=store) as table:
        wrong: Any = {"goal": "cheap"}
        with pytest.raises(cp.errors.InvalidInputError, match="options is a dict; it must be ReadOptions"):
            table.scan(options=wrong)


async def test_a_table_without_columns_says_what_to_ask() -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({})})
    async with cp.open_partition("t/2024-03-01", store=store) as table:
        assert table.schema.names == []
        assert (await table.scan(table.schema.names).to_arrow()).num_columns == 0
        with pytest.raises(cp.errors.InvalidInputError, match="the table has no columns"):
            table.scan(["x"])


# --- The blocking API gives what the async one gives ------------------------------------------------------------------


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
        assert scan.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)["x"].dtype == pd.Int64Dtype()
        assert scan.to_polars()["x"].to_list() == list(range(950, 1000))
        assert table.schema.names == ["x", "name"]
        assert len(table.partitions) == 1
        assert table.request_log


def test_a_stream_may_be_dropped_in_any_thread(partition_path: Path) -> None:
    """Garbage is collected wherever Python happens to be, also in the event loop that does the work."""

    async def drop(batches: cp.sync.Batches) -> None:
        batches.close()

    with cp.sync.open_partition(partition_path, options=cp.ReadOptions(batch_rows=10)) as table:
        batches = table.scan().batches()
        assert next(batches).num_rows == 10
        cp.sync.run(drop(batches))
        assert list(batches) == []


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
        if hasattr(pd.DataFrame, "from_arrow"):  # from pandas 3 on
            assert pd.DataFrame.from_arrow(scan).shape == (3, 2)


def test_leaving_the_loop_early_is_fine(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path, options=cp.ReadOptions(batch_rows=100)) as table:
        batches = table.scan().batches()
        assert next(batches).num_rows == 100
        batches.close()
        assert table.scan(where="x = 7").count() == 1


def test_batches_in_a_with_block(partition_path: Path) -> None:
    with cp.sync.open_partition(partition_path, options=cp.ReadOptions(batch_rows=100)) as table:
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
    report = cp.sync.run(
        index_table(table, pages=False, pack=False)
    )  # in a running event loop, where asyncio.run refuses
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


async def test_a_date_that_matches_nothing_is_told_once_what_to_type(caplog: pytest.LogCaptureFixture) -> None:
    noon = datetime(2024, 3, 1, 12)  # noqa: DTZ001 - as the file has it
    times = pa.array([noon, noon + timedelta(hours=1)], pa.timestamp("us"))
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"ts": times, "x": [1, 2]})})
    advice = "write ts in '2024-03-01' (SQL text, no parentheses)"
    async with cp.open_table("t", store=store) as table:
        for where in ("ts = '2024-03-01'", "ts in ('2024-03-01')", cp.col("ts") == noon.date()):
            caplog.clear()
            scan = table.scan(where=where)
            assert advice in " ".join((await scan.plan()).explain().split())
            assert (await scan.count(), (await scan.to_arrow()).num_rows, caplog.records[1:]) == (0, 0, [])
            assert caplog.messages[0].startswith(
                "t: no row matches, and ts is compared with the instant 2024-03-01T00:00:00Z"
            )
            assert advice in caplog.messages[0]
        caplog.clear()
        assert (await table.scan(where="ts = '2024-03-01' and x > 1").to_arrow()).num_rows == 0
        assert len(caplog.messages) == 1
        caplog.clear()
        assert await table.scan(where="ts in '2024-03-01'").count() == 2
        assert advice not in (await table.scan(where="ts != '2024-03-01'").plan()).explain()
        for where in ("x = 7", "ts = '2024-03-01T11:00'", "ts in '2024-03-02'", cp.col("ts") == noon.replace(hour=0)):
            assert (await table.scan(where=where).to_arrow()).num_rows == 0
        assert await table.scan(where="ts = '2024-03-01'", limit=0).count() == 0
        assert caplog.records == []


def test_an_error_about_a_call_comes_from_the_call(tmp_path: Path) -> None:
    pq.write_table(pa.table({"price": [1.0]}), tmp_path / "data.parquet")
    with cp.sync.open_table(tmp_path / "data.parquet") as table:
        calls: list[Callable[[], Any]] = [
            lambda: table.scan(["prize"]),
            lambda: table.scan(where="price = ="),
            lambda: table.scan().min("prize"),
            lambda: table.scan(options=cp.ReadOptions(max_bytes=1)).to_arrow(),
            lambda: next(table.scan(options=cp.ReadOptions(max_bytes=1)).batches()),
            lambda: cp.sync.open_table(tmp_path / "nowhere"),
            lambda: cp.sync.open_table([tmp_path]),  # type: ignore[arg-type]
            lambda: cp.sync.run(index_table(str(tmp_path / "nowhere"), pages=False, pack=False)),
        ]
        for call in calls:
            with pytest.raises(ColdParquetError) as caught:
                call()
            of_ours = [frame for frame in traceback.extract_tb(caught.tb) if "coldparquet/" in frame.filename]
            assert len(of_ours) == 1, caught.value
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
    with pytest.raises(InvalidInputError, match=r"such as run\(index_table\('trades'\)\), and was given a int"):
        cp.sync.run(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"url is a list; needed: one path .* open_partitions\(url, names\)"):
        cp.open_table(["a", "b"])  # type: ignore[arg-type]


def test_blocking_calls_are_explained_where_they_are() -> None:
    for twin in (cp.sync.Scan, cp.sync.Table):
        for name in vars(twin):
            text = inspect.getdoc(getattr(twin, name))
            assert name.startswith("_") or (text and "async with" not in text and ".table_scan." not in text), name
    for function in (cp.sync.open_table, cp.sync.open_partition, cp.sync.open_partitions, cp.sync.write_table):
        text = str(inspect.getdoc(function))
        assert "Requests:" in text
        assert "async" not in text
    assert "memory_limit_bytes" in str(inspect.getdoc(cp.sync.Scan.batches))


async def test_what_needs_another_package_says_so_before_it_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_of({"t/2024-03-01/data.parquet": parquet({"x": [1]})})
    monkeypatch.setattr("coldparquet.table_scan.find_spec", lambda _name: None)
    async with cp.open_table("t", store=store) as table:
        scan = table.scan()
        for name in ("pandas", "polars"):
            with pytest.raises(UnsupportedError, match=f"needs the package {name}: pip install {name}") as caught:
                await getattr(scan, f"to_{name}")()
            assert caught.value.kind == "MissingPackage"
        assert scan.stats.request_count == 0
