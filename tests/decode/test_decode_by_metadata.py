"""Partitions read through the table's `_meta`: columns by id, whether or not the files hold them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coldparquet.decode.arrow import TextAs
from coldparquet.decode.row_group import decode_row_group
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.plan.columns import match_columns, table_columns_of_metadata
from tests.support.questdb_tables import as_questdb_shows, plain

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
TEXT = TextAs(symbols="dictionary", strings="string")


def read_by_metadata(file: Any, table: Path) -> tuple[pa.Table, set[str]]:
    """Return all rows of one Parquet file with the columns of its table, and which of these the file lacks."""
    columns = table_columns_of_metadata(parse_table_metadata((table / "_meta").read_bytes(), path=None))
    places = match_columns(columns, file.sidecar)
    held = [file.names[place] for place in places.values() if place is not None]
    row_groups = [
        decode_row_group(
            file.fill(read),
            replace(read, data=replace(read.data, places=places)),
            columns,
            text=TEXT,
            check_page_checksums=True,
        )
        for read in file.plan(held).values()
    ]
    absent = {column.name for column in columns if places[column.index] is None}
    return pa.concat_tables(row_groups), absent


def test_rows_equal_the_answers_of_questdb(golden_partition: Any, sparse_file: Any) -> None:
    rows, _ = read_by_metadata(
        sparse_file(golden_partition.file.read_bytes()), GOLDEN / golden_partition.fixture / "table"
    )
    expected = golden_partition.expected()
    assert rows.schema.names == expected.schema.names
    assert plain(as_questdb_shows(rows)).equals(plain(as_questdb_shows(expected)))


@pytest.mark.parametrize(
    ("table", "absent"),
    [
        ("column_added_before", [set(), set(), set(), set()]),
        ("column_added_after", [{"num", "flag", "tag", "tiny"}] * 2),
    ],
)
def test_columns_that_were_added(table: str, absent: list[set[str]], sparse_file: Any) -> None:
    files = sorted(path for path in (GOLDEN / table / "table").glob("*/data.parquet"))
    found = [read_by_metadata(sparse_file(path.read_bytes()), GOLDEN / table / "table")[1] for path in files]
    assert found == absent
