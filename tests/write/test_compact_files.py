"""Compaction of single files that are out of the ordinary: nothing in them is lost, or they are left alone."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry
from coldparquet.format.type_codes import DESIGNATED_BIT, array_type_code
from coldparquet.format.types import TypeTag
from coldparquet.write import WriteOptions
from coldparquet.write.compact import CompactedPartition, CompactionOptions, compact_table
from coldparquet.write.parquet import encode_raw_arrays
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.table_copies import contents_of, copy_table, write_sidecar
from tests.support.written_tables import (
    assert_stored_alike,
    directories,
    footer_of,
    in_memory,
    partition_names,
    questdb_of,
    row_counts,
    scan_rows,
    stored_rows,
)

ROWS = 300
DAY = "2024-03-01"


def write_file(table: Path, rows: pa.Table, *, questdb: list[dict[str, Any]] | None = None, **options: Any) -> Path:
    """Write a partition of three row groups; with QuestDB's description of the columns if there is one."""
    directory = table / DAY
    directory.mkdir(parents=True)
    with pq.ParquetWriter(directory / "data.parquet", rows.schema, store_schema=questdb is None, **options) as writer:
        writer.write_table(rows, row_group_size=ROWS // 3)
        if questdb is not None:
            writer.add_key_value_metadata({"questdb": json.dumps({"version": 1, "schema": questdb})})
    return directory


async def compacted(table: Path, **options: Any) -> CompactedPartition:
    """Compact a table of one partition."""
    [done] = (await compact_table(table, force=True, **options)).partitions
    return done


def foreign_rows() -> pa.Table:
    numbers = np.arange(ROWS)
    nulls = numbers % 7 == 0
    times = pa.array(numbers * 1_000_000, pa.timestamp("us"), mask=nulls)
    return pa.table(
        {
            "small": pa.array(numbers % 250, pa.uint8(), mask=nulls),
            "large": pa.array(numbers.astype("u8") + 2**63, pa.uint64(), mask=nulls),
            "medium": pa.array(numbers + 2**31, pa.uint32()),
            "local": times,
            "utc": times.cast(pa.timestamp("ns")).cast(pa.timestamp("ns", "UTC")),
            "time": pa.array(numbers * 1000, pa.time64("us"), mask=nulls),
            "day": pa.array(numbers.astype("i4"), pa.date32()),
            "flag": pa.array(numbers % 2 == 0, mask=nulls),
            "tiny": pa.array(numbers % 100, pa.int8(), mask=nulls),
            "money": pa.array([Decimal(int(number)).scaleb(-2) for number in numbers], pa.decimal128(11, 2)),
            "text": pa.array([f"text {number % 5}" for number in numbers], mask=nulls).dictionary_encode(),
            "id.with.dots": pa.array([bytes([number % 256] * 16) for number in numbers], pa.binary(16)),
            "blob": pa.array([bytes([number % 256] * (number % 3)) for number in numbers], pa.binary()),
            "ratio": pa.array(np.where(nulls, np.nan, numbers / 7)),
        }
    ).replace_schema_metadata({"author": "another program"})


async def test_a_file_of_another_writer_keeps_its_types_and_its_metadata(tmp_path: Path) -> None:
    rows = foreign_rows()
    old = write_file(tmp_path / "t", rows)
    done = await compacted(tmp_path / "t")
    assert (done.action, done.new_name) == ("compacted", f"{DAY}.1")
    new = tmp_path / "t" / f"{DAY}.1"
    assert_stored_alike(new, old)
    found = stored_rows(new)
    assert found.schema.equals(rows.schema, check_metadata=True)
    assert footer_of(new).questdb_json is None
    assert row_counts(new) == [ROWS]
    before, after = (pq.read_metadata(directory / "data.parquet") for directory in (old, new))
    assert after.metadata == before.metadata
    assert str(after.schema) == str(before.schema).replace(hex(id(before.schema)), hex(id(after.schema)))
    async with cp.open_partition(old) as one, cp.open_partition(new) as other:
        assert str((await other.scan().to_arrow()).to_pydict()) == str((await one.scan().to_arrow()).to_pydict())


async def test_without_a_transaction_the_newest_version_is_the_partition(tmp_path: Path) -> None:
    table = copy_table("interval_month", tmp_path)
    for file in [path for path in table.iterdir() if path.is_file()]:
        file.unlink()
    before = await scan_rows(table)
    async with cp.open_table(table) as opened:
        report = await compact_table(table, force=True)
        assert report.txn is None
        assert (await opened.scan().to_arrow()).equals(before)
    assert [done.new_name for done in report.partitions] == [
        "2023-11.5",
        "2023-12.2",
        "2024-01.3",
        "2024-02.4",
        "2024-03.6",
    ]
    assert await partition_names(table) == [done.new_name for done in report.partitions]
    assert (await scan_rows(table)).equals(before)
    purged = (await compact_table(table, purge=True, options=CompactionOptions(purge_after_s=0))).purged
    assert len(purged) == 5
    assert directories(table) == [done.new_name for done in report.partitions]


NULLABLE: dict[str, tuple[int, Any]] = {
    "ts": (TypeTag.TIMESTAMP | DESIGNATED_BIT, pa.timestamp("us", "UTC")),
    "flag": (TypeTag.BOOLEAN, pa.bool_()),
    "byte": (TypeTag.BYTE, pa.int8()),
    "short": (TypeTag.SHORT, pa.int16()),
    "char": (TypeTag.CHAR, pa.uint16()),
}


def questdb_rows(*, nulls: bool = True) -> tuple[pa.Table, list[dict[str, Any]]]:
    numbers = np.arange(ROWS)
    columns, fields, described = [], [], []
    for index, (name, (code, type_)) in enumerate(NULLABLE.items()):
        values = pa.array(
            numbers * (1_000_000 if index == 0 else 1) % (2 if name == "flag" else 100 if index else 10**12)
        )
        mask = numbers < 40 if index and nulls else np.zeros(ROWS, bool)
        columns.append(pa.array(values.cast(pa.int64()).to_numpy(), pa.int64(), mask=mask).cast(type_))
        fields.append(pa.field(name, type_, nullable=index > 0, metadata={"PARQUET:field_id": str(index)}))
        described.append({"column_type": int(code), "column_top": 40 if index else 0, "id": index})
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)), described


async def test_marks_of_null_stay_in_columns_that_know_no_null(tmp_path: Path) -> None:
    """A BYTE that is marked null reads as 0, but as null once the column is an INT."""
    rows, described = questdb_rows()
    old = write_file(tmp_path / "t", rows, questdb=described)
    assert (await compacted(tmp_path / "t")).action == "compacted"
    new = tmp_path / "t" / f"{DAY}.1"
    assert_stored_alike(new, old)
    assert [stored_rows(new).column(name).null_count for name in NULLABLE] == [0, 40, 40, 40, 40]
    assert questdb_of(new) == questdb_of(old)
    async with cp.open_partition(new) as opened:
        assert (await opened.scan(["byte"]).to_arrow()).column("byte").to_pylist()[:41] == [0] * 40 + [40]


async def test_the_shape_of_arrays_without_elements_stays(tmp_path: Path) -> None:
    rows, described = questdb_rows()
    shapes = [np.array(shape, "<i4").tobytes() for shape in ((0, 5), (3, 0), (0, 0))]
    arrays = pa.array([shapes[row % 3] if row % 4 else None for row in range(ROWS)], pa.binary())
    rows = rows.append_column(pa.field("grid", pa.binary(), metadata={"PARQUET:field_id": "9"}), arrays)
    described.append({"column_type": array_type_code(2), "column_top": 0, "id": 9})
    old = write_file(tmp_path / "t", rows, questdb=described)
    assert (await compacted(tmp_path / "t")).action == "compacted"
    new = tmp_path / "t" / f"{DAY}.1"
    assert_stored_alike(new, old)
    assert stored_rows(new).column("grid").combine_chunks().equals(arrays)


async def test_nested_arrays_become_byte_strings_of_the_same_values(tmp_path: Path) -> None:
    rows, described = questdb_rows()
    lists = [[[float(row), None], [1.5, -0.0]] if row % 5 else None for row in range(ROWS)]
    nested: Any = pa.array(lists, pa.list_(pa.list_(pa.float64())))
    rows = rows.append_column(pa.field("grid", nested.type, metadata={"PARQUET:field_id": "9"}), nested)
    described.append({"column_type": array_type_code(2), "column_top": 0, "id": 9})
    write_file(tmp_path / "t", rows, questdb=described)
    before = await scan_rows(tmp_path / "t")
    done = await compacted(tmp_path / "t")
    assert done.reason == "3 row groups of 100 rows on average, where 1 would do"
    assert (await scan_rows(tmp_path / "t")).equals(before)
    assert before.column("grid").to_pylist() == lists
    stored = stored_rows(tmp_path / "t" / f"{DAY}.1").column("grid").combine_chunks()
    assert stored.equals(encode_raw_arrays(nested, dimensions=2, column="grid"))


async def test_what_questdb_notes_in_the_sidecar_alone_stays(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    tokens = [ScratchpadEntry(code=7, content=b"token")]
    write_sidecar(table / "2024-01-01.2", squash_tracker=5, seq_txn=99, scratchpad=tokens)
    report = await compact_table(table)
    new = table / str(report.partitions[0].new_name)
    sidecar = parse_sidecar((new / "_pm").read_bytes())
    assert (sidecar.header.squash_tracker, sidecar.footer.seq_txn) == (5, 99)
    assert sidecar.footer.scratchpad == tuple(tokens)
    assert (questdb_of(new).squash_tracker, questdb_of(new).seq_txn) == (5, 99)
    assert sidecar.parquet_size_bytes == (new / "data.parquet").stat().st_size


async def test_covering_indexes_are_not_ours_to_make(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    index = CoveringIndexEntry(column_id=1, index_txn=3, index_metadata_bytes=100)
    write_sidecar(table / "2024-01-01.2", covering_index=[index])
    report = await compact_table(table)
    assert [done.action for done in report.partitions] == ["skipped", "compacted", "skipped"]
    assert "covering indexes, which only QuestDB can make anew" in str(report.partitions[0].reason)
    assert await partition_names(table) == ["2024-01-01.2", "2024-01-02.7", "2024-01-03"]


UNSUPPORTED: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "INT96": (pa.table({"t": pa.array([dt.datetime(2024, 3, 1)] * 9)}), {"use_deprecated_int96_timestamps": True}),  # noqa: DTZ001
    "list": (pa.table({"l": pa.array([[1.0, 2.0]] * 9)}), {}),
    "decimal": (pa.table({"d": pa.array([Decimal(1)] * 9)}), {"store_decimal_as_integer": True}),
    "order": (
        pa.table({"n": np.arange(9), "m": np.arange(9)}),
        {"sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1)]},
    ),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
async def test_what_cannot_be_written_again_as_it_is_is_left_alone(kind: str, tmp_path: Path) -> None:
    rows, options = UNSUPPORTED[kind]
    write_file(tmp_path / "t", rows, **options)
    before = contents_of(tmp_path / "t")
    done = await compacted(tmp_path / "t")
    assert done.action == "skipped"
    assert done.reason
    assert contents_of(tmp_path / "t") == before
    assert directories(tmp_path / "t") == [DAY]


async def test_a_file_that_is_not_in_the_order_it_claims_is_not_joined(tmp_path: Path) -> None:
    rows, described = questdb_rows()
    write_file(tmp_path / "t", rows.take(np.r_[100:ROWS, 0:100]), questdb=described)
    before = contents_of(tmp_path / "t")
    done = await compacted(tmp_path / "t")
    assert done.action == "failed"
    assert "row 200 is out of order" in str(done.reason)
    assert contents_of(tmp_path / "t") == before
    assert directories(tmp_path / "t") == [DAY]


@pytest.mark.parametrize("damage", ["cut off", "page", "missing"])
async def test_a_partition_that_fails_does_not_stop_the_others(damage: str, tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    file = table / "2024-01-01.2" / "data.parquet"
    if damage == "cut off":
        os.truncate(file, 1000)
    elif damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        start = footer_of(table / "2024-01-01.2").row_groups[0].chunks[2].data_page_offset
        content[start : start + 40] = bytes(range(200, 240))
        file.write_bytes(content)
    before = contents_of(table)
    report = await compact_table(table)
    assert [done.action for done in report.partitions] == ["failed", "compacted", "skipped"]
    assert "data.parquet: " in str(report.partitions[0].reason)
    assert await partition_names(table) == ["2024-01-01.2", "2024-01-02.7", "2024-01-03"]
    assert directories(table) == ["2024-01-01.2", "2024-01-02.1", "2024-01-02.7", "2024-01-03"]
    assert {path: content for path, content in contents_of(table).items() if path in before and path != "_txn"} == {
        path: content for path, content in before.items() if path != "_txn"
    }


async def test_symbols_of_a_table_without_symbol_files_are_not_guessed(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    (table / "sym.o").unlink()
    report = await compact_table(table)
    assert [done.action for done in report.partitions] == ["failed", "failed", "skipped"]
    assert "copy the file from the QuestDB server" in str(report.partitions[0].reason)


async def test_a_published_copy_is_compacted_with_a_warning(tmp_path: Path) -> None:
    table = copy_table("o3_in_place", tmp_path)
    store = await in_memory(table)
    await store.put("t/_published.v7-0123abcd", b"{}", overwrite=False)
    report = await compact_table("t", store=store)
    assert report.count("compacted") == 2
    assert "it is better to compact the source" in report.notes[0]
    assert_same_rows(await scan_rows("t", store=store), expected_rows("o3_in_place"))


async def test_row_groups_larger_than_before_and_smaller(tmp_path: Path) -> None:
    rows, described = questdb_rows(nulls=False)
    write_file(tmp_path / "t", rows, questdb=described)
    for number, size in enumerate((7, 1000, 64), start=1):
        options = CompactionOptions(write=WriteOptions(row_group_rows=size))
        await compacted(tmp_path / "t", options=options)
        new = tmp_path / "t" / f"{DAY}.{number}"
        assert row_counts(new) == [min(size, ROWS - start) for start in range(0, ROWS, size)]
        assert stored_rows(new).equals(stored_rows(tmp_path / "t" / DAY).cast(stored_rows(new).schema))


# --- Compaction through the S3 protocol: the data first, `_txn` last and on a condition -------------------------------


URL = "s3://bucket/symbols"


async def test_the_server_sees_the_commit_last(tmp_path: Path) -> None:
    table = copy_table("symbols", tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        options = CompactionOptions(purge_after_s=0)
        report = await compact_table(URL, storage_options=server.storage_options)
        assert report.count("compacted") == 1
        writes = [served.path.rpartition("symbols/")[2] for served in server.requests if served.method == "PUT"]
        new = "2024-01-01.9"
        assert writes == [f"{new}/data.parquet", f"{new}/_pm", f"{new}/ix.k", f"{new}/ix.v", "_txn"]
        async with cp.open_table(URL, storage_options=server.storage_options) as opened:
            assert opened.partitions[0].name == new
            assert_same_rows(await opened.scan().to_arrow(), expected_rows("symbols"))
        report = await compact_table(URL, purge=True, options=options, storage_options=server.storage_options)
        assert (report.count("compacted"), report.purged) == (0, ("2024-01-01.8",))
    assert "2024-01-01.8" not in [name for name in directories(table) if any((table / name).iterdir())]
