from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.format.txn import (
    Lag,
    PartitionRecord,
    PartitionRecords,
    TableTransaction,
    encode_txn,
    parse_txn,
    replace_partitions,
)
from coldparquet.records import replace
from tests.support.table_files import as_values, make_txn

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
STATES = sorted([*GOLDEN.glob("*/table/_txn"), *GOLDEN.glob("*/expected/snapshots/*/_txn")])

i32, i64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
versions = st.integers(0, (1 << 63) - 1)
timestamps = st.none() | st.integers(-(1 << 62), 1 << 62)


@st.composite
def partition_records(draw: st.DrawFn) -> PartitionRecords:
    records = []
    for timestamp in sorted(draw(st.sets(i64, max_size=5))):
        is_parquet = draw(st.booleans())
        number = draw(st.just(-1) | st.integers(1, (1 << 56) - 1))
        unknown = draw(st.integers(0, 0x7F if is_parquet else 0x3F)) << 56
        records.append(
            PartitionRecord(
                timestamp=timestamp,
                row_count=draw(st.integers(0, (1 << 44) - 1)),
                name_txn=draw(i64),
                is_parquet=is_parquet,
                is_parquet_generated=draw(st.booleans()),
                is_read_only=draw(st.booleans()),
                squash_count=draw(st.integers(0, 0xFFFF)),
                parquet_size=number if is_parquet else -1,
                has_remote_copy=draw(st.booleans()),
                native_seq_txn=-1 if is_parquet else number,
                unknown_flags=unknown,
            )
        )
    return PartitionRecords.of(records)


@st.composite
def transactions(draw: st.DrawFn) -> TableTransaction:
    partitions = draw(partition_records())
    row_counts = partitions.row_counts.tolist()
    lower, upper = draw(timestamps), draw(timestamps)
    if lower is not None and upper is not None:
        lower, upper = min(lower, upper), max(lower, upper)
    return TableTransaction(
        txn=draw(versions),
        transient_row_count=row_counts[-1] if row_counts else 0,
        fixed_row_count=sum(row_counts[:-1]),
        min_timestamp=lower,
        max_timestamp=upper,
        metadata_version=draw(i32),
        column_structure_version=draw(st.just(0) | st.integers(1, (1 << 31) - 1)),
        data_version=draw(i64),
        partition_table_version=draw(i64),
        column_version=draw(i64),
        truncate_version=draw(i64),
        seq_txn=draw(i64),
        lag=Lag(
            row_count=draw(i32), txn_count=draw(i32), min_timestamp=draw(timestamps), max_timestamp=draw(timestamps)
        ),
        symbol_counts=tuple(draw(st.lists(st.integers(0, (1 << 31) - 1), max_size=4))),
        partitions=partitions,
    )


@pytest.mark.parametrize("path", STATES, ids=lambda path: str(path.relative_to(GOLDEN).parent))
def test_genuine_transactions_keep_their_meaning(path: Path) -> None:
    transaction = parse_txn(path.read_bytes(), path=None)
    encoded = encode_txn(transaction)
    assert as_values(parse_txn(encoded, path=None)) == as_values(transaction)
    # The area itself is the database's own, but for stale bytes and the stale row count of the last partition.
    version, *areas = struct.unpack_from("<qiii12xiii", path.read_bytes())
    start, symbol_bytes, partition_bytes = areas[3:] if version % 2 else areas[:3]
    genuine = path.read_bytes()[start : start + 136 + symbol_bytes + partition_bytes]
    ours = encoded[64:]
    assert len(ours) == len(genuine)
    last_row_count = range(len(ours) - 24, len(ours) - 18) if partition_bytes else range(0)
    stale = {*range(116, 128), *last_row_count}
    assert [ours[i] for i in range(len(ours)) if i not in stale] == [
        genuine[i] for i in range(len(ours)) if i not in stale
    ]


@given(transactions())
def test_parsing_undoes_encoding(transaction: TableTransaction) -> None:
    encoded = encode_txn(transaction)
    assert as_values(parse_txn(encoded, path=None)) == as_values(transaction)
    assert encode_txn(parse_txn(encoded, path=None)) == encoded


@pytest.mark.parametrize("version", [4, 5])
def test_bytes_are_those_of_the_format(version: int) -> None:
    data = make_txn(
        version=version,
        rows=(9, 5),
        symbols=[(3, 3)],
        lag=(-2, 30, 40, 50),
        partitions=[(0, 5 | 1 << 61, 7, 24_000), (100, 9, -1, 1 << 62 | 3)],
    )
    assert encode_txn(parse_txn(data, path=None)) == data


def three_partitions() -> TableTransaction:
    return parse_txn(
        make_txn(
            rows=(9, 11),
            bounds=(3, 290),
            lag=(1, 30, 40, 50),
            partitions=[(0, 5, -1, -1), (100, 6, -1, -1), (200, 9, -1, -1)],
        ),
        path=None,
    )


def test_replacing_partitions_keeps_everything_in_step() -> None:
    before = three_partitions()
    compacted = replace(before.partitions.record(2), row_count=8, name_txn=5, is_parquet=True, parquet_size=700)
    partitions = PartitionRecords.of([before.partitions.record(0), before.partitions.record(1), compacted])
    after = replace_partitions(before, partitions, min_timestamp=3, max_timestamp=280)
    changed = {name for name, value in as_values(after).items() if value != as_values(before)[name]}
    assert changed == {"txn", "transient_row_count", "max_timestamp", "partition_table_version", "lag", "partitions"}
    assert (after.txn, after.partition_table_version) == (before.txn + 1, before.partition_table_version + 1)
    assert (after.transient_row_count, after.fixed_row_count, after.total_rows) == (8, 11, 19)
    assert after.lag == Lag()
    assert as_values(parse_txn(encode_txn(after), path=None)) == as_values(after)


def test_removed_partitions_count_as_a_truncation() -> None:
    before = three_partitions()
    after = replace_partitions(before, before.partitions.take(np.array([1])), min_timestamp=100, max_timestamp=190)
    assert after.truncate_version == before.truncate_version + 1
    assert (after.transient_row_count, after.fixed_row_count) == (6, 0)
    nothing = replace_partitions(after, PartitionRecords.of([]), min_timestamp=None, max_timestamp=None)
    assert nothing.total_rows == 0
    assert as_values(parse_txn(encode_txn(nothing), path=None)) == as_values(nothing)


@pytest.mark.parametrize(
    "change",
    [
        {"txn": -1},
        {"txn": 1 << 63},
        {"transient_row_count": 8},
        {"fixed_row_count": 12},
        {"min_timestamp": 300},
        {"metadata_version": 1 << 31},
        {"seq_txn": 1 << 63},
        {"symbol_counts": (-1,)},
        {"symbol_counts": (1 << 31,)},
        {"lag": Lag(row_count=1 << 31)},
    ],
)
def test_transactions_that_no_file_can_hold(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"file|rows"):
        encode_txn(replace(three_partitions(), **change))


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 200},
        {"timestamp": 250},
        {"row_count": -1},
        {"row_count": 1 << 44},
        {"squash_count": 1 << 16},
        {"parquet_size": 700},
        {"is_parquet": True, "parquet_size": 1 << 56},
        {"is_parquet": True, "parquet_size": 0},
        {"is_parquet": True, "parquet_size": -2},
        {"is_parquet": True, "native_seq_txn": 3},
    ],
)
def test_partitions_that_no_file_can_hold(change: dict[str, Any]) -> None:
    before = three_partitions()
    first, middle, last = map(before.partitions.record, range(3))
    partitions = PartitionRecords.of([first, replace(middle, **change), last])
    after = replace_partitions(before, partitions, min_timestamp=3, max_timestamp=290)
    with pytest.raises(InvalidInputError):
        encode_txn(after)
