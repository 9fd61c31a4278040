from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.native import (
    ABSENT_TOP,
    COLUMN_VERSION,
    ColumnVersion,
    ColumnVersions,
    encode_column_versions,
    parse_column_versions,
)
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.records import replace
from tests.support.table_files import make_cv

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
FILES = sorted([*GOLDEN.glob("*/table/_cv"), *GOLDEN.glob("*/expected/snapshots/*/_cv")])
DEFAULT, SYMBOL_FILES = -(1 << 63), -(1 << 63) + 1

Record = tuple[int, int, int, int]


def records_of(versions: ColumnVersions) -> list[Record]:
    return [tuple(record) for record in versions.records.tolist()]


# --- Genuine files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GOLDEN).parent))
def test_the_version_is_that_of_the_transaction(path: Path) -> None:
    versions = parse_column_versions(path.read_bytes(), path=None)
    assert versions.version == parse_txn(path.with_name("_txn").read_bytes(), path=None).column_version
    again = parse_column_versions(encode_column_versions(versions), path=None)
    assert (again.version, records_of(again)) == (versions.version, records_of(versions))


def test_a_fresh_file_of_zeros_knows_no_column() -> None:
    data = (GOLDEN / "interval_day" / "table" / "_cv").read_bytes()
    assert data == bytes(4096)
    versions = parse_column_versions(data, path=None)
    assert (versions.version, len(versions.records)) == (0, 0)
    assert versions.column(0, 3) == ColumnVersion(name_txn=-1, top=0)
    assert versions.symbol_name_txn(3) == -1


@pytest.mark.parametrize("table", ["column_added_before", "column_added_after"])
def test_rows_above_a_top_are_null(table: str) -> None:
    """Where a column has a top, or is absent, the database answers null for exactly these rows (0 for some types)."""
    folder = GOLDEN / table
    metadata = parse_table_metadata((folder / "table" / "_meta").read_bytes(), path=None)
    transaction = parse_txn((folder / "table" / "_txn").read_bytes(), path=None)
    versions = parse_column_versions((folder / "table" / "_cv").read_bytes(), path=None)
    with pa.memory_map(str(folder / "expected" / "rows.arrow")) as source:
        rows = pa.ipc.open_file(source).read_all()
    added = [column for column in metadata.columns if versions.column(-1, column.writer_index).top is None]
    assert {"num", "flag", "tiny"} <= {column.name for column in added}
    first_row = 0
    for index in range(len(transaction.partitions)):
        record = transaction.partitions.record(index)
        for column in added:
            top = versions.column(record.timestamp, column.writer_index).top
            values = rows[column.name].slice(first_row, record.row_count).to_pylist()
            empty = record.row_count if top is None else top
            assert not any(values[:empty])
            # A symbol and an optional text may be null below the top as well; these were inserted without nulls.
            if column.name in {"num", "flag", "tiny", "small", "price"}:
                assert all(value is not None for value in values[empty:])
                assert any(values[empty:]) or empty == record.row_count
        first_row += record.row_count


def test_symbol_files_are_named_after_the_default_version() -> None:
    for table, column in (("column_added_after", "tag"), ("column_added_before", "sym")):
        folder = GOLDEN / table / "table"
        versions = parse_column_versions((folder / "_cv").read_bytes(), path=None)
        metadata = parse_table_metadata((folder / "_meta").read_bytes(), path=None)
        writer_index = next(found.writer_index for found in metadata.columns if found.name == column)
        assert (folder / f"{column}.o.{versions.symbol_name_txn(writer_index)}").is_file()


def test_names_of_column_files() -> None:
    folder = GOLDEN / "column_added_after"
    versions = parse_column_versions((folder / "table" / "_cv").read_bytes(), path=None)
    metadata = parse_table_metadata((folder / "table" / "_meta").read_bytes(), path=None)
    partitions = json.loads((folder / "expected" / "partitions.json").read_bytes())
    transaction = parse_txn((folder / "table" / "_txn").read_bytes(), path=None)
    num = next(column.writer_index for column in metadata.columns if column.name == "num")
    for index, partition in enumerate(partitions):
        record = transaction.partitions.record(index)
        version = versions.column(record.timestamp, num)
        if not partition["isParquet"] and version.top is not None:
            (directory,) = (folder / "table").glob(f"{partition['name']}*")
            assert (directory / f"num.d.{version.name_txn}").is_file()


# --- Lookups -----------------------------------------------------------------------------------------------------------

MADE = make_cv(
    [
        (DEFAULT, 2, 5, 300),  # added in partition 300
        (DEFAULT, 4, -1, DEFAULT),
        (SYMBOL_FILES, 2, 9, 0),
        (SYMBOL_FILES, 6, 10, 0),
        (100, 2, 7, -1),
        (200, 3, 8, 50),
        (300, 2, 5, 60),
        (500, 2, 11, 0),
    ]
)


@pytest.mark.parametrize(
    ("timestamp", "writer_index", "name_txn", "top"),
    [
        (0, 2, 5, None),
        (100, 2, 7, None),
        (200, 2, 5, None),
        (300, 2, 5, 60),
        (400, 2, 5, 0),
        (500, 2, 11, 0),
        (600, 2, 5, 0),
        (100, 3, -1, 0),
        (200, 3, 8, 50),
        (0, 4, -1, 0),
        (0, 6, -1, 0),
        (0, 99, -1, 0),
    ],
)
def test_lookups(timestamp: int, writer_index: int, name_txn: int, top: int | None) -> None:
    versions = parse_column_versions(MADE, path=None)
    assert versions.column(timestamp, writer_index) == ColumnVersion(name_txn=name_txn, top=top)


@pytest.mark.parametrize(("writer_index", "name_txn"), [(2, 9), (3, -1), (4, -1), (6, 10), (99, -1)])
def test_versions_of_symbol_files(writer_index: int, name_txn: int) -> None:
    assert parse_column_versions(MADE, path=None).symbol_name_txn(writer_index) == name_txn


small = st.integers(0, 6)
tables = st.dictionaries(
    st.tuples(st.sampled_from([DEFAULT, SYMBOL_FILES]) | small, small),
    st.tuples(st.integers(-1, 9), st.integers(-1, 9)),
)


@given(tables, st.lists(small, unique=True), small)
def test_many_partitions_at_once_are_as_one_at_a_time(
    table: dict[tuple[int, int], tuple[int, int]], timestamps: list[int], writer_index: int
) -> None:
    """The rule in its plain form: the own record, else the default, else always there."""
    versions = parse_column_versions(make_cv([(*key, *value) for key, value in sorted(table.items())]), path=None)
    name_txns, tops = versions.columns(np.array(timestamps, np.int64), writer_index)
    default_name_txn, added_in = table.get((DEFAULT, writer_index), (-1, DEFAULT))
    for timestamp, name_txn, top in zip(timestamps, name_txns.tolist(), tops.tolist(), strict=True):
        absent_or_whole = 0 if added_in <= timestamp else ABSENT_TOP
        assert (name_txn, top) == table.get((timestamp, writer_index), (default_name_txn, absent_or_whole))
        one = versions.column(timestamp, writer_index)
        assert (one.name_txn, ABSENT_TOP if one.top is None else one.top) == (name_txn, top)


@given(tables, st.integers(0, (1 << 63) - 1))
def test_parsing_undoes_encoding(table: dict[tuple[int, int], tuple[int, int]], version: int) -> None:
    records = [(*key, *value) for key, value in sorted(table.items())]
    encoded = encode_column_versions(ColumnVersions(version=version, records=np.array(records, COLUMN_VERSION)))
    parsed = parse_column_versions(encoded, path=None)
    assert (parsed.version, records_of(parsed)) == (version, records)


def test_what_lies_outside_of_the_live_area_is_not_looked_at() -> None:
    records = [(DEFAULT, 2, 5, 300), (300, 2, 5, 60)]
    parsed = parse_column_versions(make_cv(records, version=4, start=200) + b"\xff" * 50, path=None)
    assert records_of(parsed) == records


# --- Bad input ---------------------------------------------------------------------------------------------------------

GOOD = make_cv([(DEFAULT, 2, 5, 300), (300, 2, 5, 60)])


@pytest.mark.parametrize(
    ("offset", "value", "kind", "field", "named_offset"),
    [
        (0, -1, "InvalidValue", "version", 0),
        (24, 39, "InvalidValue", "area_offset", 24),
        (24, -40, "InvalidValue", "area_offset", 24),
        (24, (1 << 63) - 1, "Truncated", "area", 24),
        (32, -32, "InvalidValue", "area_bytes", 32),
        (32, 33, "InvalidValue", "area_bytes", 32),
        (32, 1 << 62, "Truncated", "area", 24),
        (40, 300, "InvalidValue", "records", 72),
        (40, 301, "InvalidValue", "records", 72),
    ],
)
def test_values_that_cannot_be(offset: int, value: int, kind: str, field: str, named_offset: int) -> None:
    data = GOOD[:offset] + struct.pack("<q", value) + GOOD[offset + 8 :]
    with pytest.raises(FormatError) as caught:
        parse_column_versions(data, path="table/_cv")
    assert (caught.value.kind, caught.value.path) == (kind, "table/_cv")
    assert (caught.value.details["field"], caught.value.details["offset"]) == (field, named_offset)


def test_records_that_no_file_can_hold() -> None:
    versions = parse_column_versions(GOOD, path=None)
    with pytest.raises(InvalidInputError, match="does not follow the one before"):
        encode_column_versions(replace(versions, records=versions.records[::-1]))
    with pytest.raises(InvalidInputError, match="negative"):
        encode_column_versions(replace(versions, version=-1))
