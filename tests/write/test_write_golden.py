"""What is read from any genuine partition, written by us, reads back equal; and genuine files can be updated in place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.type_codes import DESIGNATED_BIT
from coldparquet.format.types import TypeTag
from coldparquet.write import WriteOptions, append_rows, replace_row_groups, write_partition
from tests.support.questdb_tables import PARTITIONS, GoldenPartition
from tests.support.written_tables import assert_same_rows, read_rows, table_symbols

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
