"""A sidecar of another file than the one beside it: right rows, or an error, for every question; copies are never refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.table_scan import Scan
from coldparquet.write import append_rows
from coldparquet_testing.demo_data import write_trades
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import GOLDEN

ROWS = 2_000
DAY = "2024-03-01"
URL = "s3://bucket/t"
O3_CONVERTED_BYTES = 47_313
"""Of the first partition of the golden table o3_in_place before its first late row."""


def rows_of(values: np.ndarray, first: int = 0) -> pa.Table:
    start = 1_709_251_200_000_000
    ts = pa.array(np.arange(start + first, start + first + len(values)), pa.timestamp("us"))
    schema = pa.schema([pa.field("ts", ts.type, nullable=False), pa.field("x", pa.int64())])
    return pa.table([ts, pa.array(values, pa.int64())], schema=schema)


def write(directory: Path, rows: pa.Table) -> None:
    """Write a file whose size and layout tell only of how many rows there are, not of their values."""
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows,
        directory / "data.parquet",
        row_group_size=500,
        use_dictionary=False,
        compression="none",
        sorting_columns=[pq.SortingColumn(0)],
    )


def set_age(path: Path, seconds: int) -> None:
    os.utime(path, ns=(1_709_251_200_000_000_000 - seconds * 10**9,) * 2)


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def set_ages(directory: Path, *, newest: str) -> None:
    for path in files_below(directory):
        set_age(path, 0 if path.name == newest else 10)


OLD = rows_of(np.arange(ROWS))
NEW = rows_of(np.arange(ROWS) + 10**6)
LONGER = rows_of(np.arange(2 * ROWS))
SHORTER = rows_of(np.arange(ROWS // 2))

QUESTIONS: dict[str, tuple[str | None, Callable[[Scan], Awaitable[Any]], Callable[[pa.Table], Any]]] = {
    "rows": (None, lambda scan: scan.to_arrow(), lambda rows: rows),
    "count": (None, lambda scan: scan.count(), lambda rows: rows.num_rows),
    "min": (None, lambda scan: scan.min("x"), lambda rows: pc.min(rows["x"]).as_py()),
    "max": (None, lambda scan: scan.max("x"), lambda rows: pc.max(rows["x"]).as_py()),
    "null_count": (None, lambda scan: scan.null_count("x"), lambda rows: rows["x"].null_count),
    "any": ("x >= 1000000", lambda scan: scan.any(), lambda rows: rows.num_rows > 0),
    "filtered": ("x >= 1000000", lambda scan: scan.to_arrow(), lambda rows: rows),
    "filtered count": ("x < 100", lambda scan: scan.count(), lambda rows: rows.num_rows),
    "tail": (None, lambda scan: scan.tail(3), lambda rows: rows.slice(rows.num_rows - 3)),
}

OF_ALL = [name for name in QUESTIONS if name != "tail"]
"""Those that every partition matters to."""


def expected(name: str, rows: pa.Table) -> Any:
    where, _, answer = QUESTIONS[name]
    if where is not None:
        column, operator, value = where.split()
        test = pc.greater_equal if operator == ">=" else pc.less
        rows = rows.filter(test(rows[column], pa.scalar(int(value), pa.int64())))
    return plain(answer(rows))


def plain(answer: Any) -> Any:
    return answer.to_pydict() if isinstance(answer, pa.Table) else answer


async def ask(name: str, url: str, **options: Any) -> Any:
    where, question, _ = QUESTIONS[name]
    async with cp.open_table(url, **options) as table:
        return plain(await question(table.scan(["ts", "x"], where)))


@pytest.fixture
async def table(tmp_path: Path) -> Path:
    """Two days with sidecars, written long ago."""
    write(tmp_path / "bucket" / "t" / DAY, OLD)
    write(tmp_path / "bucket" / "t" / "2024-03-02", rows_of(np.arange(10), first=86_400_000_000))
    await index_table(tmp_path / "bucket" / "t", pages=False, pack=False)
    set_ages(tmp_path, newest="_pm")
    return tmp_path / "bucket" / "t"


@pytest.mark.parametrize("name", OF_ALL)
@pytest.mark.parametrize("rows", [LONGER, SHORTER], ids=["longer", "shorter"])
async def test_a_file_of_another_size_is_refused_on_a_disk(table: Path, name: str, rows: pa.Table) -> None:
    write(table / DAY, rows)
    set_age(table / DAY / "data.parquet", 20)
    with pytest.raises(ObjectChangedError, match=r"'coldparquet index' makes its sidecar anew"):
        await ask(name, str(table))


@pytest.mark.parametrize("name", OF_ALL)
@pytest.mark.parametrize("rows", [LONGER, SHORTER], ids=["longer", "shorter"])
async def test_what_was_refused_once_is_refused_again(table: Path, name: str, rows: pa.Table) -> None:
    write(table / DAY, rows)
    where, question, _ = QUESTIONS[name]
    async with cp.open_table(table) as opened:
        for _ in range(3):
            with pytest.raises(ObjectChangedError):
                await question(opened.scan(["ts", "x"], where))


@pytest.mark.parametrize("way", ["table", "all", "named", "refreshed"])
async def test_the_columns_of_a_newer_file_of_the_same_size_are_those_of_its_footer(table: Path, way: str) -> None:
    newest, before = table / "2024-03-02" / "data.parquet", 86_400_000_000
    size = newest.stat().st_size
    opened = await cp.open_table(table)
    write(newest.parent, rows_of(np.arange(10), first=before).rename_columns(["ts", "y"]))
    assert newest.stat().st_size == size
    if way == "refreshed":
        assert await opened.refresh()
        other = opened
    else:
        await opened.aclose()
        options = cp.ReadOptions(columns_from="all" if way == "all" else "newest")
        names = [DAY, "2024-03-02"]
        other = await (cp.open_partitions(table, names) if way == "named" else cp.open_table(table, options=options))
    async with other:
        columns = ["ts", "y"] if way in {"table", "refreshed"} else ["ts", "y", "x"]
        assert other.schema.names == columns
        rows = await other.scan(["y"]).to_arrow()
        assert rows["y"].to_pylist() == [*[None] * ROWS, *range(10)]


@pytest.mark.parametrize("name", OF_ALL)
async def test_a_partition_without_its_file_is_refused_on_a_disk(table: Path, name: str) -> None:
    (table / DAY / "data.parquet").unlink()
    with pytest.raises(NotFoundError) as caught:
        await ask(name, str(table))
    assert caught.value.kind == "PartitionMissing"


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_file_of_the_same_size_that_is_newer_is_read_by_its_footer(table: Path, name: str) -> None:
    size = (table / DAY / "data.parquet").stat().st_size
    write(table / DAY, NEW)
    assert (table / DAY / "data.parquet").stat().st_size == size
    true = pa.concat_tables([NEW, pq.read_table(table / "2024-03-02" / "data.parquet", partitioning=None)])
    assert await ask(name, str(table)) == expected(name, true)


async def test_explain_says_that_the_sidecar_is_older(table: Path) -> None:
    write(table / DAY, NEW)
    async with cp.open_table(table) as opened:
        plan = await opened.scan().plan()
    assert [partition.metadata_source for partition in plan.partitions] == ["footer", "sidecar"]
    assert "data.parquet was written after its sidecar" in plan.explain()
    assert "'coldparquet index' renews the sidecar" in plan.explain()


@pytest.mark.parametrize("name", QUESTIONS)
async def test_copies_in_any_order_are_never_refused(table: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table, copy)
    set_ages(copy, newest="data.parquet")
    assert await ask(name, str(copy)) == await ask(name, str(table))


async def test_it_costs_no_request_where_the_sidecar_is_newer(table: Path) -> None:
    trace = TraceStore(LocalStore())
    async with cp.open_table(str(table), store=trace) as opened:
        await opened.scan().count()
        await opened.scan().to_arrow()
    assert [record.path for record in trace.records if record.operation == "info"] == []
    assert not [record for record in trace.records if "footer" in record.reason]


async def test_a_file_replaced_between_plan_and_read_is_refused_on_a_disk(table: Path) -> None:
    async with cp.open_table(table) as opened:
        scan = opened.scan(["x"], "x < 100")
        await scan.plan()
        write(table / DAY, rows_of(np.arange(ROWS)[::-1]))
        with pytest.raises(ObjectChangedError, match="replaced during the read"):
            await scan.to_arrow()
        with pytest.raises(ObjectChangedError, match="replaced during the read"):
            await opened.scan().count()
        await opened.refresh()
        assert await opened.scan(["x"], "x < 100").count() == 100 + 10


async def test_a_page_index_on_a_disk_that_is_older_than_its_file_is_not_used(tmp_path: Path) -> None:
    def write_pages(values: np.ndarray) -> None:
        pq.write_table(
            rows_of(values),
            tmp_path / DAY / "data.parquet",
            use_dictionary=False,
            compression="none",
            data_page_size=512,
            write_page_index=True,
        )

    (tmp_path / DAY).mkdir()
    write_pages(np.arange(ROWS))
    await index_table(tmp_path, pages=True, pack=False)
    write_pages(np.arange(ROWS)[::-1])  # the chunk as a whole has the same bounds
    set_age(tmp_path / DAY / "_pages", 10)
    options = cp.ReadOptions(page_index="always")
    async with cp.open_table(tmp_path, options=options) as opened:
        scan = opened.scan(["x"], "x < 50")
        assert (await scan.to_arrow())["x"].to_pylist() == list(range(49, -1, -1))
        assert "_pages is not used: data.parquet was written after it" in (await scan.plan()).explain()


@pytest.mark.parametrize("name", QUESTIONS)
async def test_an_update_in_place_that_was_cut_off_leaves_what_was_committed(table: Path, name: str) -> None:
    with (table / DAY / "data.parquet").open("ab") as file:
        file.write(b"half of a row group")
    true = pa.concat_tables([OLD, pq.read_table(table / "2024-03-02" / "data.parquet", partitioning=None)])
    assert await ask(name, str(table)) == expected(name, true)


async def test_an_update_in_place_by_a_questdb_is_told_where_no_transaction_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files copied without the `_txn`, which alone tells that the server has committed the update since."""
    name, mirror = "2024-01-01.2", tmp_path / "mirror"
    updated = (GOLDEN / "o3_in_place" / "table" / name / "data.parquet").read_bytes()
    (mirror / name).mkdir(parents=True)
    (mirror / name / "data.parquet").write_bytes(updated[:O3_CONVERTED_BYTES])
    await index_table(mirror, pages=False, pack=False)
    (mirror / name / "data.parquet").write_bytes(updated)
    async with cp.open_table(mirror) as opened:
        assert await opened.scan().count() == 1000
        assert (await opened.scan().to_arrow()).num_rows == 1000
    [record] = caplog.records
    assert record.name == "coldparquet"
    assert "data.parquet: rows may be missing: it goes on for 24,157 bytes behind what its sidecar" in record.message
    assert "'coldparquet index' takes in the whole of it" in record.message
    caplog.clear()
    [done] = (await index_table(mirror, pages=False, pack=False)).partitions
    assert (done.action, done.is_stale) == ("written", True)
    async with cp.open_table(mirror) as opened:
        assert await opened.scan().count() > 1000
    assert not caplog.records


async def test_readers_of_a_table_without_transaction_see_an_update_once_it_is_committed(table: Path) -> None:
    async with cp.open_table(table) as opened:
        last = table / "2024-03-02"
        assert await opened.scan().count() == ROWS + 10
        await append_rows(last, rows_of(np.arange(5), first=86_400_000_100))
        await opened.refresh()
        assert await opened.scan().count() == ROWS + 15
        assert (await opened.scan().to_arrow()).num_rows == ROWS + 15


@pytest.mark.parametrize("rows", [LONGER, SHORTER], ids=["longer", "shorter"])
async def test_the_head_of_a_scan_on_s3_refuses_a_file_of_another_size(table: Path, rows: pa.Table) -> None:
    requests: list[list[str]] = []
    for file in (OLD, rows):
        write(table / DAY, file)
        with ColdStoreServer(table.parent.parent) as server:
            async with cp.open_table(URL, storage_options=server.storage_options) as opened:
                scan = opened.scan(["x"], "x >= 30")
                if file is OLD:
                    await scan.plan()
                else:
                    with pytest.raises(ObjectChangedError, match="were planned with"):
                        await scan.plan()
                    with pytest.raises(ObjectChangedError, match="were planned with"):
                        await opened.scan().count()  # what the scan was told holds for every question
                requests.append(sorted(f"{request.method} {request.path}" for request in server.requests))
    assert requests[0] == requests[1], "nothing is asked for it"


async def test_a_count_on_s3_without_a_look_believes_the_sidecar(table: Path) -> None:
    write(table / DAY, LONGER)
    with ColdStoreServer(table.parent.parent) as server:
        assert await ask("count", URL, storage_options=server.storage_options) == ROWS + 10


@pytest.mark.parametrize("change", ["gone", "longer"])
async def test_a_listing_that_a_count_needs_anyway_tells_of_replaced_files(tmp_path: Path, change: str) -> None:
    table = tmp_path / "bucket" / "t"
    write_trades(table, days=14, on_day=lambda: None)
    await index_table(table, pages=False, pack=False)
    with ColdStoreServer(tmp_path) as server:
        await pack_table(URL, storage_options=server.storage_options)
        data = sorted(table.glob("*/data.parquet"))[3]
        if change == "gone":
            data.unlink()
        else:
            data.write_bytes(data.read_bytes() * 2)
        kind: type[Exception] = NotFoundError if change == "gone" else ObjectChangedError
        async with cp.open_table(URL, storage_options=server.storage_options) as opened:
            with pytest.raises(kind):
                await opened.scan().count()


async def test_a_store_without_looks_refuses_another_size_with_the_first_data(table: Path) -> None:
    write(table / DAY, LONGER)
    files = {f"t/{path.parent.name}/{path.name}": path.read_bytes() for path in files_below(table)}
    with pytest.raises(ObjectChangedError, match="were planned with"):
        await ask("rows", "t", store=MemoryStore(files))


@pytest.mark.parametrize(
    ("is_looked_at", "is_believed"), [(True, False), (False, True)], ids=["with a HEAD", "without one"]
)
async def test_explain_says_where_sidecars_are_believed(
    table: Path, caplog: pytest.LogCaptureFixture, *, is_looked_at: bool, is_believed: bool
) -> None:
    options = cp.ReadOptions(check_storage_classes=is_looked_at)
    text = "2 sidecars believed without a look at data.parquet"
    with ColdStoreServer(table.parent.parent) as server:
        async with cp.open_table(URL, storage_options=server.storage_options, options=options) as opened:
            assert (text in (await opened.scan().plan()).explain()) == is_believed
    async with cp.open_table(table, options=options) as opened:
        assert text not in (await opened.scan().plan()).explain(), "a disk is always asked"
    assert caplog.messages == [], "it is as it should be, so that there is no warning"
