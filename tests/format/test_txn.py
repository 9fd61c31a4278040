"""`_txn`: genuine files, made ones, and files that are no transaction, which are refused by name and place."""

from __future__ import annotations

import json
import struct
import tracemalloc
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError
from coldparquet.format.partition_names import PartitionInterval, recorded_directory_name
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import Lag, PartitionRecord, PartitionRecords, parse_txn, parse_version
from coldparquet.records import replace
from tests.support.table_files import I64_MAX, I64_MIN, as_values, make_txn, patched

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
STATES = sorted([*GOLDEN.glob("*/table/_txn"), *GOLDEN.glob("*/expected/snapshots/*/_txn")])
"""Every transaction file, of tables as they are and of earlier moments."""
ONE_STATE = GOLDEN / "types_all" / "table" / "_txn"

DAY_US = 86_400_000_000
SIZE = 24_000
PARQUET = 1 << 61

states = pytest.mark.parametrize("path", STATES, ids=lambda path: str(path.relative_to(GOLDEN).parent))


def expected_of(path: Path, name: str) -> Any:
    """Return an answer of the database; snapshots hold the partitions only."""
    folder = path.parent if path.parent.name != "table" else path.parents[1] / "expected"
    return json.loads((folder / name).read_bytes())


# --- Genuine files -----------------------------------------------------------------------------------------------------


@states
def test_partitions_are_those_of_the_database(path: Path) -> None:
    transaction = parse_txn(path.read_bytes(), path=str(path))
    metadata = parse_table_metadata(path.with_name("_meta").read_bytes(), path=None)
    records = transaction.partitions_of(metadata.interval)
    attached = [partition for partition in expected_of(path, "partitions.json") if partition["attached"]]
    assert [
        {
            "name": recorded_directory_name(
                record.timestamp, metadata.interval, name_txn=-1, is_nanosecond=metadata.is_nanosecond
            ),
            "numRows": record.row_count,
            "readOnly": record.is_read_only,
            "isParquet": record.is_parquet,
            "parquetFileSize": record.parquet_size,
        }
        for record in map(records.record, range(len(records)))
    ] == [
        {name: partition[name] for name in ("name", "numRows", "readOnly", "isParquet", "parquetFileSize")}
        for partition in attached
    ]
    assert transaction.total_rows == sum(partition["numRows"] for partition in attached)
    assert transaction.txn == parse_version(path.read_bytes(), path=None)


@states
def test_directories_of_all_partitions_exist(path: Path) -> None:
    transaction = parse_txn(path.read_bytes(), path=str(path))
    metadata = parse_table_metadata(path.with_name("_meta").read_bytes(), path=None)
    table = next(parent for parent in path.parents if parent.parent == GOLDEN) / "table"
    records = transaction.partitions_of(metadata.interval)
    for record in map(records.record, range(len(records))):
        name = recorded_directory_name(
            record.timestamp, metadata.interval, name_txn=record.name_txn, is_nanosecond=metadata.is_nanosecond
        )
        assert (table / name).is_dir()
        if record.is_parquet:
            # An older transaction sees the same file while it was shorter.
            is_newest = path.parent.name == "table"
            size = (table / name / "data.parquet").stat().st_size
            assert size == record.parquet_size if is_newest else size >= record.parquet_size


@states
def test_bounds_and_versions(path: Path) -> None:
    transaction = parse_txn(path.read_bytes(), path=str(path))
    metadata = parse_table_metadata(path.with_name("_meta").read_bytes(), path=None)
    assert transaction.metadata_version == transaction.column_structure_version == metadata.metadata_version
    assert transaction.lag == Lag()
    if path.parent.name == "table":
        answer = expected_of(path, "table.json")
        assert transaction.max_timestamp == answer["maxTimestamp"]
        is_partitioned = metadata.interval is not PartitionInterval.NONE
        assert transaction.min_timestamp == (answer["minTimestamp"] if is_partitioned else None)


# --- Every field and flag ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_every_field(version: int) -> None:
    transaction = parse_txn(
        make_txn(
            version=version,
            rows=(9, 5),
            symbols=[(3, 4), (0, 1)],
            partitions=[(0, 5, -1, -1), (DAY_US, 1234, 8, -1)],
            start=200,
        ),
        path=None,
    )
    assert as_values(transaction) == {
        "txn": version,
        "transient_row_count": 9,
        "fixed_row_count": 5,
        "min_timestamp": 10,
        "max_timestamp": 20,
        "metadata_version": 3,
        "column_structure_version": 3,
        "data_version": 11,
        "partition_table_version": 12,
        "column_version": 13,
        "truncate_version": 14,
        "seq_txn": 6,
        "lag": Lag(),
        "symbol_counts": (3, 0),
        "partitions": [
            PartitionRecord(timestamp=0, row_count=5, is_parquet=False),
            PartitionRecord(timestamp=DAY_US, row_count=9, name_txn=8, is_parquet=False),
        ],
        "left_behind": None,
    }
    assert transaction.total_rows == 14


@pytest.mark.parametrize(("stored", "version"), [(0, 3), (I64_MIN >> 32, 0), (8, 8), (-8, -8)])
def test_the_column_structure_version_may_be_implied(stored: int, version: int) -> None:
    transaction = parse_txn(make_txn(structure=(3, stored)), path=None)
    assert (transaction.metadata_version, transaction.column_structure_version) == (3, version)


NATIVE = PartitionRecord(timestamp=0, row_count=7, is_parquet=False)
FILE = PartitionRecord(timestamp=0, row_count=7, is_parquet=True)
REMOTE, HAS_SEQ_TXN = 1 << 63, 1 << 62


@pytest.mark.parametrize(
    ("flags", "size", "record"),
    [
        (0, -1, NATIVE),
        (0, 0, NATIVE),
        (1 << 44, -1, replace(NATIVE, squash_count=1)),
        (0xFFFF << 44, -1, replace(NATIVE, squash_count=0xFFFF)),
        (1 << 60, -1, replace(NATIVE, is_parquet_generated=True)),
        (1 << 62, -1, replace(NATIVE, is_read_only=True)),
        (1 << 60, SIZE, replace(NATIVE, is_parquet_generated=True)),  # older versions: a size without meaning
        (0, HAS_SEQ_TXN | 9, replace(NATIVE, native_seq_txn=9)),
        (0, HAS_SEQ_TXN, replace(NATIVE, native_seq_txn=0)),
        (0, REMOTE, replace(NATIVE, has_remote_copy=True)),
        (0, REMOTE | HAS_SEQ_TXN | 9, replace(NATIVE, has_remote_copy=True, native_seq_txn=9)),
        (0, 1 << 56 | 9, replace(NATIVE, unknown_flags=1 << 56)),
        (PARQUET, -1, FILE),
        (PARQUET, 0, FILE),
        (PARQUET, SIZE, replace(FILE, parquet_size=SIZE)),
        (PARQUET, (1 << 56) - 1, replace(FILE, parquet_size=(1 << 56) - 1)),
        (PARQUET, REMOTE | SIZE, replace(FILE, parquet_size=SIZE, has_remote_copy=True)),
        (PARQUET, REMOTE, replace(FILE, has_remote_copy=True)),
        (PARQUET, 1 << 61 | SIZE, replace(FILE, parquet_size=SIZE, unknown_flags=1 << 61)),
        (PARQUET, 1 << 62 | SIZE, replace(FILE, parquet_size=SIZE, unknown_flags=1 << 62)),
        (PARQUET | 1 << 62, SIZE, replace(FILE, parquet_size=SIZE, is_read_only=True)),
        (PARQUET | 1 << 60, SIZE, replace(FILE, parquet_size=SIZE, is_parquet_generated=True)),
    ],
)
def test_every_flag_of_a_partition(flags: int, size: int, record: PartitionRecord) -> None:
    data = make_txn(rows=(1, 7), partitions=[(0, flags | 7, -1, size), (DAY_US, 1, -1, -1)])
    assert parse_txn(data, path=None).partitions.record(0) == record


def test_the_stored_row_count_of_the_last_partition_is_stale_but_its_flags_count() -> None:
    data = make_txn(rows=(3, 0), partitions=[(0, REMOTE | PARQUET | 1 << 62 | 999, 5, SIZE)])
    (record,) = as_values(parse_txn(data, path=None))["partitions"]
    assert record == PartitionRecord(
        timestamp=0, row_count=3, name_txn=5, is_parquet=True, is_read_only=True, parquet_size=SIZE
    )


def test_lag_is_read_and_one_that_fails_its_checksum_is_none() -> None:
    data = make_txn(lag=(-2, 30, 40, 50))
    lag = Lag(row_count=30, txn_count=-2, min_timestamp=40, max_timestamp=50)
    assert parse_txn(data, path=None).lag == lag
    assert parse_txn(patched(data, 64 + 96, "<i", 31), path=None).lag == Lag()


def test_an_empty_table() -> None:
    transaction = parse_txn(make_txn(rows=(0, 0), bounds=(I64_MAX, I64_MIN), partitions=[]), path=None)
    assert (transaction.min_timestamp, transaction.max_timestamp, transaction.total_rows) == (None, None, 0)
    assert len(transaction.partitions_of(PartitionInterval.DAY)) == 0


@pytest.mark.parametrize("partitions", [[], [(0, 999, 5, -1)], [(77, PARQUET | 999, 5, 12)]])
def test_a_table_without_partitioning_has_one_partition(partitions: list[tuple[int, int, int, int]]) -> None:
    transaction = parse_txn(make_txn(rows=(7, 0), partitions=partitions), path=None)
    records = transaction.partitions_of(PartitionInterval.NONE)
    assert [records.record(index) for index in range(len(records))] == [NATIVE]


def test_rows_without_partitions_are_refused() -> None:
    transaction = parse_txn(make_txn(partitions=[]), path=None)
    with pytest.raises(FormatError, match="7 rows but records no partition"):
        transaction.partitions_of(PartitionInterval.DAY)


def test_what_belongs_to_no_transaction_is_not_looked_at() -> None:
    clean = make_txn(version=5, start=128)
    dirty = make_txn(version=5, start=128, stale=b"\xff" * 12) + b"\xff" * 100
    dirty = dirty[:8] + b"\xff" * 24 + dirty[32:44] + b"\xff" * 84 + dirty[128:]  # area A, padding, what lies between
    assert as_values(parse_txn(dirty, path=None)) == as_values(parse_txn(clean, path=None))


def test_columns_are_read_only() -> None:
    records = parse_txn(ONE_STATE.read_bytes(), path=None).partitions
    for column in fields(records):
        with pytest.raises(ValueError, match="read-only"):
            getattr(records, column.name)[0] = 1


def test_partitions_can_be_taken_and_gathered() -> None:
    records = parse_txn(ONE_STATE.read_bytes(), path=None).partitions
    taken = records.take(np.array([2, 0]))
    assert [taken.record(0), taken.record(1)] == [records.record(2), records.record(0)]
    gathered = PartitionRecords.of([records.record(2), records.record(0)])
    assert [gathered.record(0), gathered.record(1)] == [records.record(2), records.record(0)]


# --- Files that are no transaction: every one of them is refused by name and place, and nothing else ever happens ---


GOOD = make_txn(rows=(9, 5), symbols=[(3, 3)], partitions=[(0, 5, -1, -1), (DAY_US, 9, 8, -1)])
SYMBOLS_AT, SECTION_AT, PARTITIONS_AT = 64 + 132, 64 + 140, 64 + 144


def assert_parses_or_says_where(data: bytes) -> None:
    """Whatever the bytes are: a whole transaction comes out, or an error that names field and offset."""
    try:
        parsed = as_values(parse_txn(data, path=None))
    except FormatError as error:
        refusal: dict[str, Any] = error.details
        is_named = bool(refusal["field"]) and refusal["offset"] >= 0
    else:
        is_named = parsed["txn"] == parse_version(data, path=None)
    assert is_named


@pytest.mark.parametrize(
    ("offset", "layout", "value", "kind", "field", "named_offset"),
    [
        (0, "<q", -2, "InvalidValue", "version", 0),
        (0, "<q", 5, "InvalidValue", "area_offset", 32),  # the other area was never written
        (0, "<q", 6, "TornTransaction", "txn", 64),
        (8, "<i", 63, "InvalidValue", "area_offset", 8),
        (8, "<i", -64, "InvalidValue", "area_offset", 8),
        (8, "<i", 1 << 30, "Truncated", "area A", 8),
        (12, "<i", -8, "InvalidValue", "symbol_bytes", 12),
        (12, "<i", 4, "InvalidValue", "symbol_bytes", 12),
        (12, "<i", 0, "TornTransaction", "symbol_count", 192),
        (12, "<i", (1 << 31) - 8, "Truncated", "area A", 8),
        (16, "<i", -32, "InvalidValue", "partition_bytes", 16),
        (16, "<i", 33, "InvalidValue", "partition_bytes", 16),
        (16, "<i", 32, "TornTransaction", "partition_bytes", SECTION_AT),
        (16, "<i", (1 << 31) - 32, "Truncated", "area A", 8),
        (64, "<q", 5, "TornTransaction", "txn", 64),
        (72, "<q", -1, "InvalidValue", "transient_row_count", 72),
        (72, "<q", 1 << 44, "InvalidValue", "transient_row_count", 72),
        (80, "<q", -1, "InvalidValue", "fixed_row_count", 80),
        (80, "<q", 6, "InvalidValue", "fixed_row_count", 80),
        (88, "<q", 21, "InvalidValue", "min_timestamp", 88),
        (192, "<i", -1, "TornTransaction", "symbol_count", 192),
        (192, "<i", 2, "TornTransaction", "symbol_count", 192),
        (SYMBOLS_AT, "<i", -1, "InvalidValue", "symbol_counts", SYMBOLS_AT),
        (SECTION_AT, "<i", 96, "TornTransaction", "partition_bytes", SECTION_AT),
        (PARTITIONS_AT, "<q", DAY_US, "InvalidValue", "timestamp", PARTITIONS_AT + 32),
        (PARTITIONS_AT, "<q", DAY_US + 1, "InvalidValue", "timestamp", PARTITIONS_AT + 32),
        (PARTITIONS_AT + 8, "<q", -1, "InvalidValue", "row_count", PARTITIONS_AT + 8),
        (PARTITIONS_AT + 8, "<q", 4, "InvalidValue", "fixed_row_count", 80),
    ],
)
def test_values_that_cannot_be(  # noqa: PLR0917 - one row of the table above
    offset: int, layout: str, value: int, kind: str, field: str, named_offset: int
) -> None:
    with pytest.raises(FormatError) as caught:
        parse_txn(patched(GOOD, offset, layout, value), path="table/_txn")
    assert (caught.value.kind, caught.value.path) == (kind, "table/_txn")
    assert (caught.value.details["field"], caught.value.details["offset"]) == (field, named_offset)


def test_row_counts_whose_sum_does_not_fit_64_bits_are_added_up() -> None:
    largest, count = (1 << 44) - 1, (1 << 19) + 2
    words = np.zeros((count, 4), "<i8")
    words[:, 0], words[:, 1] = np.arange(count), largest
    data = patched(make_txn(partitions=[]), 16, "<i", words.nbytes)
    data = patched(data, 64 + 132, "<i", words.nbytes) + words.tobytes()
    wrapped = (largest * (count - 1) + (1 << 63)) % (1 << 64) - (1 << 63)
    for stated in (0, wrapped & I64_MAX):
        with pytest.raises(FormatError, match=str(largest * (count - 1))):
            parse_txn(patched(data, 80, "<q", stated), path=None)


@given(st.binary(max_size=600))
def test_any_bytes_behind_a_header_give_a_transaction_or_a_format_error(content: bytes) -> None:
    header = struct.pack("<qiii44x", 0, 64, 0, max(0, (len(content) - 136) // 32 * 32))
    for data in (content, header + content, header + bytes(8) + content):
        assert_parses_or_says_where(data)


@pytest.mark.parametrize("offset", [8, 12, 16, 192, SECTION_AT])
def test_claims_beyond_the_file_allocate_nothing(offset: int) -> None:
    data = patched(GOOD, offset, "<i", (1 << 31) - 32)
    with pytest.raises(FormatError):
        parse_txn(data, path=None)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            parse_txn(data, path=None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_the_version_alone() -> None:
    assert parse_version(GOOD[:8], path=None) == 4
    with pytest.raises(FormatError, match="version would end at byte 8"):
        parse_version(GOOD[:7], path=None)
