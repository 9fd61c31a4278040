"""Types from type codes alone equal what the Parquet files of the same tables hold; ids are writer indexes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.table_metadata import TableMetadata, parse_table_metadata
from coldparquet.format.types import canonical_type
from tests.support.questdb_tables import GOLDEN, PARTITIONS, GoldenPartition

if TYPE_CHECKING:
    from pathlib import Path


def metadata_of(table: str) -> TableMetadata:
    return parse_table_metadata((GOLDEN / table / "table" / "_meta").read_bytes(), path=None)


def sidecar_of(file: Path) -> Sidecar:
    content = file.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = parse_footer(content[-8 - length : -8], path=str(file), offset=len(content) - 8 - length)
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(footer)))


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_columns_of_files_have_the_writer_index_as_id_and_the_type_of_the_table(partition: GoldenPartition) -> None:
    columns = {column.writer_index: column for column in metadata_of(partition.table).columns}
    sidecar = sidecar_of(partition.directory / "data.parquet")
    assert sidecar.column_count > 0
    for index in range(sidecar.column_count):
        descriptor, stored = sidecar.column(index), sidecar.column_type(index)
        column = columns[descriptor.id]
        assert column.name == descriptor.name
        wanted = canonical_type(column.type_code)
        assert (stored.name, stored.arrow, stored.comparison) == (wanted.name, wanted.arrow, wanted.comparison)
        assert (stored.physical_type, stored.fixed_byte_length) == (wanted.physical_type, wanted.fixed_byte_length)


@pytest.mark.parametrize("table", sorted({partition.table for partition in PARTITIONS}))
def test_names_are_those_of_show_columns(table: str) -> None:
    shown = json.loads((GOLDEN / table / "expected" / "columns.json").read_text())
    columns = metadata_of(table).columns
    names = {column.name: canonical_type(column.type_code).name for column in columns}
    assert names == {row["column"]: row["type"] for row in shown}


@pytest.mark.parametrize("type_code", [0, -1, 20, 40, 244, 27, 28, 5 | 1 << 9, 12 | 1 << 8])
def test_codes_of_no_stored_type_are_refused(type_code: int) -> None:
    with pytest.raises(UnsupportedError):
        canonical_type(type_code)
