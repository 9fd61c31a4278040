from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coldparquet.errors import FormatError
from coldparquet.format.partition_names import PartitionInterval, recorded_directory_name
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import Lag, PartitionRecord, PartitionRecords, parse_txn, parse_version
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
