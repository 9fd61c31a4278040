"""Files that others wrote, with every codec, page version and encoding, decode to what pyarrow reads from the whole file."""

from __future__ import annotations

import random
from datetime import date, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import UnsupportedError

ROWS = 230
GROUP_ROWS = 100
NESTED = pa.list_(pa.list_(pa.float64()))


def with_nulls(values: list[Any], type_: Any, every: int = 7) -> pa.Array[Any]:
    array: pa.Array[Any] = pa.array(
        [None if row % every == 3 else values[row % len(values)] for row in range(ROWS)], type_
    )
    return array


def every_type() -> pa.Table:
    rng = np.random.default_rng(11)
    integers = rng.integers(0, 100, ROWS)
    uuids = pa.array([bytes([row % 5]) * 16 for row in range(ROWS)], pa.binary(16))
    columns: dict[str, Any] = {
        "flag": with_nulls([True, False, False], pa.bool_()),
        "i8": with_nulls([-128, 0, 127], pa.int8()),
        "i16": with_nulls([-32768, 5], pa.int16()),
        "i32": with_nulls([-(2**31), 2**31 - 1, 7], pa.int32()),
        "i64": with_nulls([-(2**63), 2**63 - 1], pa.int64()),
        "u8": with_nulls([0, 255], pa.uint8()),
        "u16": with_nulls([0, 65535], pa.uint16()),
        "u32": with_nulls([0, 2**32 - 1], pa.uint32()),
        "u64": with_nulls([0, 2**64 - 1], pa.uint64()),
        "f32": with_nulls([1.5, float("inf"), -0.0], pa.float32()),
        "f64": pa.array(rng.normal(size=ROWS)),
        "day": with_nulls([date(1900, 1, 1), date(2024, 2, 29)], pa.date32()),
        "ms": with_nulls([0, -1, 10**12], pa.timestamp("ms", "UTC")),
        "us": with_nulls([0, -1, 10**15], pa.timestamp("us", "UTC")),
        "ns": with_nulls([0, -1, 10**18], pa.timestamp("ns", "UTC")),
        "local_us": with_nulls([0, 10**15], pa.timestamp("us")),
        "local_ns": with_nulls([0, 10**18], pa.timestamp("ns")),
        "clock_ms": with_nulls([time(1, 2, 3), time(23, 59)], pa.time32("ms")),
        "clock_us": with_nulls([time(1, 2, 3, 4)], pa.time64("us")),
        "clock_ns": with_nulls([time(1, 2, 3, 5)], pa.time64("ns")),
        "text": with_nulls(["", "ascii", "Grüße", "🚀" * 20], pa.string()),
        "required": pa.array(integers),
        "all_null": pa.nulls(ROWS, pa.string()),
        "blob": with_nulls([b"", b"\x00\xff", b"x" * 300], pa.binary()),
        "fixed": uuids,
        "money": with_nulls([Decimal("-9999.99"), Decimal("0.01")], pa.decimal128(6, 2)),
        "wide": with_nulls([Decimal(10**37), Decimal(-5)], pa.decimal128(38, 0)),
        "widest": with_nulls([Decimal(10**70), Decimal(-5)], pa.decimal256(76, 0)),
        "list": with_nulls([[1.0, 2.0], [], [None, 3.5]], pa.list_(pa.float64())),
        "grid": with_nulls([[[1.0], []], [], [[None, 2.0], None]], NESTED),
        "with.dot": pa.array(integers),
        "with": pa.array(integers * 2),
    }
    fields = [pa.field(name, array.type, nullable=name != "required") for name, array in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def written(table: pa.Table, **options: Any) -> bytes:
    output = pa.BufferOutputStream()
    pq.write_table(table, output, **{"row_group_size": GROUP_ROWS, **options})
    content: bytes = output.getvalue().to_pybytes()
    return content


def check_random_reads(sparse_file: Any, content: bytes, reads: int) -> None:
    file = sparse_file(content)
    whole = pq.ParquetFile(pa.BufferReader(content)).read()
    rng = random.Random(reads)
    selections = [file.names, *(rng.sample(file.names, rng.randint(1, min(6, len(file.names)))) for _ in range(reads))]
    for names in selections:
        for row_group, read in file.plan(names).items():
            decoded = file.decode(read, names)
            assert decoded.num_rows == read.row_count
            for name in names:
                expected = whole[name].slice(row_group * GROUP_ROWS, read.row_count)
                assert decoded[name].equals(expected.cast(decoded[name].type)), (name, row_group)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_every_codec_page_version_and_dictionary(
    sparse_file: Any, codec: str, page_version: str, use_dictionary: bool
) -> None:
    content = written(
        every_type(),
        compression=codec,
        data_page_version=page_version,
        use_dictionary=use_dictionary,
        version="2.6",
        data_page_size=256,
    )
    check_random_reads(sparse_file, content, 4)


@pytest.mark.parametrize(
    ("names", "encoding"),
    [
        (["i32", "i64", "ms", "required"], "DELTA_BINARY_PACKED"),
        (["text", "blob"], "DELTA_LENGTH_BYTE_ARRAY"),
        (["text", "blob"], "DELTA_BYTE_ARRAY"),
        (["f32", "f64", "i32"], "BYTE_STREAM_SPLIT"),
        (["flag"], "RLE"),
    ],
)
def test_other_encodings(sparse_file: Any, names: list[str], encoding: str) -> None:
    content = written(
        every_type().select(names), use_dictionary=False, column_encoding=dict.fromkeys(names, encoding), version="2.6"
    )
    check_random_reads(sparse_file, content, 1)


def test_types_are_those_of_the_file(sparse_file: Any) -> None:
    table = every_type()
    file = sparse_file(written(table))
    decoded = file.read(file.names)
    assert {field.name: field.type for field in decoded.schema} == {field.name: field.type for field in table.schema}


def test_row_groups_without_rows_are_not_read(sparse_file: Any) -> None:
    table = every_type()
    output = pa.BufferOutputStream()
    with pq.ParquetWriter(output, table.schema) as writer:
        for rows in (table.slice(0, 10), table.slice(0, 0), table.slice(10, 5)):
            writer.write_table(rows)
    file = sparse_file(output.getvalue().to_pybytes())
    assert len(file.sidecar.row_counts) == 3
    assert list(file.plan(file.names)) == [0, 2]
    assert file.read(["text"])["text"].to_pylist() == table["text"].to_pylist()[:15]


def test_int96_becomes_nanoseconds(sparse_file: Any) -> None:
    table = pa.table({"at": pa.array([0, -1, None, 10**18, 9_223_372_035 * 10**9], pa.timestamp("ns"))})
    content = written(table, use_deprecated_int96_timestamps=True)
    assert sparse_file(content).read(["at"])["at"].equals(table["at"])


@pytest.mark.parametrize("seconds", [-62_135_596_800, 253_402_300_799])
def test_int96_beyond_nanoseconds_is_refused_rather_than_wrong(sparse_file: Any, seconds: int) -> None:
    table = pa.table({"at": pa.array([seconds], pa.timestamp("s")), "n": [1]})
    file = sparse_file(written(table, use_deprecated_int96_timestamps=True))
    with pytest.raises(UnsupportedError, match=r"column 'at'.*outside the years 1678 to 2261"):
        file.read(["at", "n"])
    assert file.read(["n"])["n"].to_pylist() == [1]
