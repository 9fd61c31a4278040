"""The sidecars and the ``_pages`` of partitions that we write know the bloom filters and the pages of their files, also after an update."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.type_codes import DESIGNATED_BIT
from coldparquet.format.types import TypeTag
from coldparquet.maintenance.index import index_table
from coldparquet.plan.bind import BoundComparison
from coldparquet.plan.predicate import Operator
from coldparquet.scan.evidence import BLOOM_REASON
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, append_rows, replace_row_groups, write_partition
from coldparquet.write.compact import CompactionOptions, compact_table
from tests.support.blooms import ask, domain_values, fields_of
from tests.support.paged_files import PagedFile, assert_same_pages, pages_beside, rows_of_all_kinds
from tests.support.questdb_tables import PARTITIONS, GoldenPartition
from tests.support.table_copies import copy_table
from tests.support.written_tables import assert_same_rows, read_rows, table_symbols


def needles(first_second: int, rows: int, seed: int) -> pa.Table:
    """Rows of random 62-bit numbers; each row group of any size has nearly the same minimum and maximum."""
    random = Random(seed)
    seconds = pa.array([1_000_000 * (first_second + row) for row in range(rows)], pa.int64())
    numbers = [random.getrandbits(62) for _ in range(rows)]
    return pa.table({"ts": seconds.cast(pa.timestamp("us", "UTC")), "id": numbers})


def assert_values_are_found(partition: Path, rows: pa.Table, row_group_rows: int, *, filters: list[bool]) -> None:
    """Every row group's values are found by its filter, and values of other row groups are not."""
    file, sidecar = (partition / "data.parquet").read_bytes(), parse_sidecar((partition / "_pm").read_bytes())
    field = fields_of(sidecar)["id"]
    assert [sidecar.bloom_location(row_group, 1) is not None for row_group in range(len(filters))] == filters
    for row_group, has_filter in enumerate(filters):
        values = domain_values(rows.column("id").slice(row_group * row_group_rows, row_group_rows), field.type)
        for value in values[3:9]:
            survives = ask(BoundComparison(field, Operator.EQUAL, value), sidecar, file).survives
            assert survives[row_group], has_filter
            assert sum(survives) <= 2 + filters.count(False)


@pytest.mark.parametrize(("row_group_rows", "is_external"), [(200, False), (15_000, True)])
async def test_filters_are_known_from_the_start_and_after_updates(
    tmp_path: Path, row_group_rows: int, is_external: bool
) -> None:
    partition = tmp_path / "1970-01-01.1"
    options = WriteOptions(row_group_rows=row_group_rows, bloom_columns=("id",))
    written, more = (needles(first, 4 * row_group_rows, first) for first in (0, 4 * row_group_rows))
    await write_partition(partition, written, timestamp="ts", options=options)
    assert parse_sidecar((partition / "_pm").read_bytes()).blooms_external is is_external
    assert_values_are_found(partition, written, row_group_rows, filters=[True] * 4)

    await append_rows(partition, more, options=options)
    both = pa.concat_tables([written, more])
    assert parse_sidecar((partition / "_pm").read_bytes()).blooms_external is is_external
    assert_values_are_found(partition, both, row_group_rows, filters=[True] * 8)

    other = needles(row_group_rows, row_group_rows, seed=5)
    await replace_row_groups(partition, {1: other}, options=options)
    parts = [written.slice(0, row_group_rows), other, both.slice(2 * row_group_rows)]
    assert_values_are_found(partition, pa.concat_tables(parts), row_group_rows, filters=[True] * 8)

    without = WriteOptions(row_group_rows=row_group_rows)
    await append_rows(partition, needles(8 * row_group_rows, row_group_rows, seed=6), options=without)
    rows = pa.concat_tables([*parts, needles(8 * row_group_rows, row_group_rows, seed=6)])
    assert_values_are_found(partition, rows, row_group_rows, filters=[True] * 8 + [False])


async def test_filters_of_new_row_groups_stay_out_of_a_sidecar_that_would_grow_too_large(tmp_path: Path) -> None:
    partition = tmp_path / "1970-01-01.1"
    small = WriteOptions(row_group_rows=200, bloom_columns=("id",))
    await write_partition(partition, needles(0, 200, 1), timestamp="ts", options=small)
    large = WriteOptions(row_group_rows=60_000, bloom_columns=("id",))
    await append_rows(partition, needles(200, 60_000, 2), options=large)
    sidecar = parse_sidecar((partition / "_pm").read_bytes())
    assert [sidecar.bloom_location(row_group, 1) is not None for row_group in (0, 1)] == [True, False]
    assert sidecar.size_bytes < 64 * 1024


async def test_compacted_partitions_of_a_genuine_table_find_the_values_of_all_types(tmp_path: Path) -> None:
    table = copy_table("bloom", tmp_path)
    report = await compact_table(table)
    partition = table / str(report.partitions[0].new_name)
    file, sidecar = (partition / "data.parquet").read_bytes(), parse_sidecar((partition / "_pm").read_bytes())
    assert len(sidecar.bloom_columns) == 13
    (genuine,) = [partition for partition in PARTITIONS if partition.table == "bloom"]
    denied = 0
    for name, field in fields_of(sidecar).items():
        values = domain_values(genuine.expected().column(name), field.type)
        for value in values[::40]:
            asked = ask(BoundComparison(field, Operator.EQUAL, value), sidecar, file)
            assert any(asked.survives), name
        if isinstance(values[0], bytes):
            denied += not any(ask(BoundComparison(field, Operator.EQUAL, values[0][::-1]), sidecar, file).survives)
    assert denied >= 2


async def test_a_scan_for_a_needle_reads_no_row_group_without_it(tmp_path: Path) -> None:
    partition = tmp_path / "t" / "1970-01-01.1"
    rows = needles(0, 60_000, 1)
    await write_partition(
        partition, rows, timestamp="ts", options=WriteOptions(row_group_rows=20_000, bloom_columns=("id",))
    )
    trace = TraceStore(LocalStore())
    async with cp.open_table(str(tmp_path / "t"), store=trace) as table:
        wanted = rows.column("id")[30_000].as_py()
        found = await table.scan(where=f"id = {wanted}").to_arrow()
        assert found.column("id").to_pylist() == [wanted]
        assert sum(record.reason == BLOOM_REASON for record in trace.records) == 1  # 3 filters, side by side
        assert sum(record.reason.startswith("row group") for record in trace.records) >= 1
        trace.clear()
        assert (await table.scan(where="id = 5").to_arrow()).num_rows == 0
        assert all(record.reason == BLOOM_REASON for record in trace.records)


OPTIONS: dict[str, Any] = {"row_group_rows": 2_500, "page_rows": 700}


def assert_right(partition: Path) -> None:
    """The pages are those of the file, all of them."""
    found = pages_beside(partition)
    data = (partition / "data.parquet").read_bytes()
    assert_same_pages(found, PagedFile.of(data).indexed().pages)
    assert (found.first_page[1:] > found.first_page[:-1]).all()


async def test_a_partition_is_written_with_its_pages(tmp_path: Path) -> None:
    rows = rows_of_all_kinds()
    partition = tmp_path / "2024-03-01"
    written = await write_partition(partition, rows, timestamp="ts", options=WriteOptions(pages=True, **OPTIONS))
    assert sorted(path.name for path in partition.iterdir()) == ["_pages", "_pm", "data.parquet"]
    assert written.pages_size_bytes == (partition / "_pages").stat().st_size
    assert_right(partition)
    report = await index_table(partition, pages=True, pack=False)
    assert report.count_pages("kept") == 1


async def test_objects_get_theirs_too() -> None:
    store = MemoryStore()
    options = WriteOptions(pages=True, **OPTIONS)
    await write_partition("t/2024-03-01", rows_of_all_kinds(), timestamp="ts", options=options, store=store)
    names = [info.path.rpartition("/")[2] for info in (await store.list("t/2024-03-01")).objects]
    assert names == ["_pages", "_pm", "data.parquet"]
    report = await index_table("t/2024-03-01", pages=True, store=store, pack=False)
    assert report.count_pages("kept") == 1


async def test_without_being_asked_for_there_are_none(tmp_path: Path) -> None:
    written = await write_partition(tmp_path / "2024-03-01", rows_of_all_kinds(), timestamp="ts")
    assert written.pages_size_bytes is None
    assert not (tmp_path / "2024-03-01" / "_pages").exists()


def test_pages_need_a_page_index() -> None:
    with pytest.raises(InvalidInputError, match="page_index"):
        WriteOptions(pages=True, page_index=False)


@pytest.mark.parametrize("had_pages", [True, False])
@pytest.mark.parametrize("asks", [True, False])
async def test_a_compaction_writes_them_anew_where_there_were_some(
    tmp_path: Path, *, had_pages: bool, asks: bool
) -> None:
    table = copy_table("o3_rewrite", tmp_path)
    await index_table(table, pages=had_pages, pack=False)
    before = {path.parent.name for path in table.glob("*/_pages")}
    options = CompactionOptions(write=WriteOptions(pages=asks))
    report = await compact_table(table, force=True, options=options)
    compacted = [table / (done.new_name or "") for done in report.partitions if done.action == "compacted"]
    assert compacted
    for partition in compacted:
        assert partition.name not in before
        if had_pages or asks:
            assert_right(partition)
        else:
            assert not (partition / "_pages").exists()


async def test_pages_from_before_an_update_are_refused(tmp_path: Path) -> None:
    """The update appends row groups, so that the Parquet file has another size."""
    rows = rows_of_all_kinds()
    partition = tmp_path / "2024-03-01"
    await write_partition(partition, rows.slice(0, 5_000), timestamp="ts", options=WriteOptions(pages=True, **OPTIONS))
    await append_rows(partition, rows.slice(5_000))
    with pytest.raises(FormatError) as caught:
        pages_beside(partition)
    assert caught.value.kind == "StalePages"
    assert (await index_table(partition, pages=True, pack=False)).count_pages("written") == 1
    file = PagedFile.of((partition / "data.parquet").read_bytes())
    assert_same_pages(pages_beside(partition), file.indexed_anywhere().pages)


# --- Genuine partitions, written by us, read back equal; and genuine files can be updated in place --------------------


SMALL = WriteOptions(row_group_rows=37, page_rows=10)


def symbols_of(partition: GoldenPartition) -> dict[str, list[str]]:
    """Symbols of the columns that the file has."""
    file = pq.ParquetFile(partition.directory / "data.parquet")
    symbols = table_symbols(partition.directory.parent)
    return {name: symbols[name] for name in file.schema_arrow.names if name in symbols}


@pytest.mark.parametrize("golden", PARTITIONS, ids=str)
@pytest.mark.parametrize("with_symbols", [False, True], ids=["own keys", "table's keys"])
async def test_reads_back_equal(golden: GoldenPartition, with_symbols: bool, tmp_path: Path) -> None:
    rows = await read_rows(golden.directory)
    symbols = symbols_of(golden) if with_symbols else None
    directory = tmp_path / "2024-01-01.1"
    written = await write_partition(directory, rows, timestamp="ts", symbols=symbols, options=SMALL)

    found = await read_rows(directory)
    assert found.schema.equals(rows.schema, check_metadata=True)
    assert_same_rows(found, rows)
    assert written.row_count == rows.num_rows == golden.row_count
    assert written.parquet_size_bytes == (directory / "data.parquet").stat().st_size
    assert written.sidecar_size_bytes == (directory / "_pm").stat().st_size


@pytest.mark.parametrize("golden", PARTITIONS, ids=str)
async def test_stores_columns_as_questdb_does(golden: GoldenPartition, tmp_path: Path) -> None:
    rows = await read_rows(golden.directory)
    directory = tmp_path / "2024-01-01.1"
    await write_partition(directory, rows, timestamp="ts", symbols=symbols_of(golden), options=SMALL)
    ours = parse_sidecar((directory / "_pm").read_bytes())
    schema = pq.ParquetFile(directory / "data.parquet").schema
    questdb_file = pq.ParquetFile(golden.directory / "data.parquet")
    questdb_schema = questdb_file.schema
    by_name = {column.name: index for index, column in enumerate(ours.columns)}
    for index in range(len(questdb_schema)):
        theirs = questdb_schema.column(index)
        if theirs.max_repetition_level:
            continue  # nested arrays; ours are raw, as QuestDB's are by default
        mine = schema.column(by_name[theirs.path])
        assert mine.physical_type == theirs.physical_type, theirs.path
        assert mine.length == theirs.length, theirs.path
        assert mine.max_definition_level == theirs.max_definition_level, theirs.path
        if ours.column(by_name[theirs.path]).type_code & 0xFF not in {TypeTag.GEOINT, TypeTag.GEOLONG}:
            # pyarrow does not annotate integers of their natural width.
            assert str(mine.logical_type) == str(theirs.logical_type), theirs.path
    assert ours.column(ours.designated_timestamp or 0).type_code & DESIGNATED_BIT
    assert ours.sorting_columns == (ours.designated_timestamp,)


@pytest.mark.parametrize("golden", PARTITIONS, ids=str)
async def test_genuine_files_are_updated_in_place(golden: GoldenPartition, tmp_path: Path) -> None:
    directory = golden.copied_to(tmp_path)
    rows, symbols = await read_rows(directory), symbols_of(golden)
    before = (directory / "data.parquet").read_bytes()
    last = rows.slice(rows.num_rows - 1)

    appended = await append_rows(directory, pa.concat_tables([last, last]), symbols=symbols)
    assert_same_rows(await read_rows(directory), pa.concat_tables([rows, last, last]))
    replaced = await replace_row_groups(directory, {appended.row_group_count - 1: last}, symbols=symbols)
    assert_same_rows(await read_rows(directory), pa.concat_tables([rows, last]))

    file = (directory / "data.parquet").read_bytes()
    assert file.startswith(before)
    assert replaced.parquet_size_bytes == len(file)
    older = parse_sidecar((directory / "_pm").read_bytes(), parquet_size_bytes=len(before))
    assert older.total_rows == rows.num_rows
    for flag in ("is_ascii", "local_key_is_global"):
        assert [getattr(column, flag) for column in older.columns] == [
            getattr(column, flag) for column in parse_sidecar((directory / "_pm").read_bytes()).columns
        ]
