"""Virtual files: chunks taken from real files behind a made-up footer decode to what the real files hold."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import VirtualChunk, VirtualRowGroup, encode_footer, frame_footer
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_layout import PhysicalType, Repetition
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.types import ColumnType, resolve_type
from tests.support.parquet_footers import parquet_bytes, parsed_footer

GOLDEN_FILES = sorted((Path(__file__).parents[1] / "golden" / "questdb").glob("*/table/*/data.parquet"))
ROWS = 60


def _virtual_file(file: bytes) -> tuple[bytes, list[ColumnType]]:
    """Rebuild a file from its chunks and what a sidecar says about them, row groups in reverse order."""
    content = sidecar_content_from_footer(parsed_footer(file, path=None))
    sidecar = parse_sidecar(encode_sidecar(content))
    column_types = [
        resolve_type(
            column.type_code,
            column.physical_type,
            column.fixed_byte_length,
            column.max_rep_level,
            sidecar.foreign_annotations.get(column.index),
        )
        for column in sidecar.columns
    ]
    columns = [
        LeafSpec(
            name=column.name,
            physical_type=column.physical_type,
            fixed_byte_length=column.fixed_byte_length,
            repetition=column.repetition,
            max_rep_level=column.max_rep_level,
            max_def_level=column.max_def_level,
            logical=column_type.parquet_logical,
        )
        for column, column_type in zip(sidecar.columns, column_types, strict=True)
    ]
    virtual = bytearray(b"PAR1")
    row_groups = []
    for row_group in reversed(range(sidecar.row_group_count)):
        chunks = []
        for column in sidecar.columns:
            chunk = sidecar.chunks(column.index)
            start, size = int(chunk.byte_range_start[row_group]), int(chunk.total_compressed_bytes[row_group])
            chunks.append(
                VirtualChunk(
                    start=len(virtual),
                    length_bytes=size,
                    value_count=int(chunk.num_values[row_group]),
                    codec=int(chunk.codec[row_group]),
                    encodings=int(chunk.encodings[row_group]),
                )
            )
            virtual += file[start : start + size]
        row_groups.append(VirtualRowGroup(row_count=int(sidecar.row_counts[row_group]), chunks=chunks))
    return bytes(virtual + frame_footer(encode_footer(columns, row_groups[::-1], created_by=None))), column_types


def _text(values: pa.ChunkedArray[Any]) -> str:
    """Spell all values, so that NaN equals NaN and -0.0 differs from 0.0."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())  # extremes lie outside of Python's years 1 to 9999
    return repr(values.to_pylist())


def _spelling(kind: pa.DataType) -> str:
    """Spell an Arrow type as our `ArrowKind` does; symbols are read as strings here."""
    spelled = {"float": "float32", "double": "float64", "date32[day]": "date32"}.get(str(kind), str(kind))
    for theirs, ours in ((", tz=", ", "), ("element: ", ""), ("<double", "<float64"), (" not null", "")):
        spelled = spelled.replace(theirs, ours)
    return spelled


def _assert_same_table(file: bytes) -> None:
    virtual, column_types = _virtual_file(file)
    actual, expected = pq.read_table(pa.BufferReader(virtual)), pq.read_table(pa.BufferReader(file))
    assert actual.column_names == expected.column_names
    for index, column_type in enumerate(column_types):
        assert _text(actual.column(index)) == _text(expected.column(index)), column_type.name
        stored = {"dictionary": "string", "list": "binary" if column_type.raw_array else str(column_type.arrow)}
        assert _spelling(actual.schema.field(index).type) == stored.get(column_type.arrow.name, str(column_type.arrow))


def _column(kind: pa.DataType, values: list[Any]) -> pa.Array[Any]:
    return pa.array([None if row % 5 == 2 else values[row % len(values)] for row in range(ROWS)], kind)


def _write(table: pa.Table, **options: Any) -> bytes:
    return parquet_bytes(table, **{"row_group_size": 25, "store_schema": False, **options})


MOMENT = datetime(2024, 3, 1, 12, 34, 56, 789000, UTC)
NUMBERS = [decimal.Decimal("1.234"), decimal.Decimal("-1.230"), decimal.Decimal("0.001")]
FOREIGN = pa.table(
    {
        "flag": _column(pa.bool_(), [True, False, False]),
        "i8": _column(pa.int8(), [-128, 5, 127]),
        "i16": _column(pa.int16(), [-1, 5, 300]),
        "u8": _column(pa.uint8(), [255, 5]),
        "u16": _column(pa.uint16(), [65535, 5]),
        "u32": _column(pa.uint32(), [2**32 - 1, 5]),
        "i64": _column(pa.int64(), [-1, 5]),
        "u64": _column(pa.uint64(), [2**64 - 1, 5]),
        "f32": _column(pa.float32(), [1.5, -0.0, float("nan")]),
        "text": _column(pa.string(), ["é", "", "x" * 100]),
        "blob": _column(pa.binary(), [b"\xff", b""]),
        "id": _column(pa.binary(16), [bytes(range(16))]),
        "hash": _column(pa.binary(32), [bytes(range(32))]),
        "day": _column(pa.date32(), [date(2024, 3, 1), date(1960, 1, 1)]),
        "at_ms": _column(pa.timestamp("ms", "UTC"), [MOMENT]),
        "at_us": _column(pa.timestamp("us", "UTC"), [MOMENT]),
        "at_ns": _column(pa.timestamp("ns", "UTC"), [MOMENT]),
        "local_ms": _column(pa.timestamp("ms"), [MOMENT.replace(tzinfo=None)]),
        "local_us": _column(pa.timestamp("us"), [MOMENT.replace(tzinfo=None)]),
        "local_ns": _column(pa.timestamp("ns"), [MOMENT.replace(tzinfo=None)]),
        "t32": _column(pa.time32("ms"), [time(1, 2, 3)]),
        "t64": _column(pa.time64("us"), [time(1, 2, 3)]),
        "t64ns": _column(pa.time64("ns"), [time(1, 2, 3)]),
        "dec5": _column(pa.decimal128(5, 3), NUMBERS),
        "dec38": _column(pa.decimal128(38, 3), NUMBERS),
        "dec60": _column(pa.decimal256(60, 3), NUMBERS),
        "list": _column(pa.list_(pa.float64()), [[1.0, None], [], [2.5]]),
        "cube": _column(pa.list_(pa.list_(pa.list_(pa.float64()))), [[[[1.0], []], None], [], [[[None]]]]),
    }
)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parts[-4]}/{path.parts[-2]}")
def test_genuine_files(path: Path) -> None:
    _assert_same_table(path.read_bytes())


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"])
def test_foreign_files_of_every_codec(codec: str) -> None:
    _assert_same_table(_write(FOREIGN, compression=codec))


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": False},
        {"data_page_version": "2.0", "data_page_size": 64},
        {"write_statistics": False},
        {"store_decimal_as_integer": True},
        {"use_dictionary": False, "column_encoding": {"i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}},
        {"write_page_index": True, "version": "1.0"},
    ],
)
def test_foreign_files_of_other_shapes(options: dict[str, Any]) -> None:
    _assert_same_table(_write(FOREIGN, **options))


def test_int96_is_a_timestamp_without_zone() -> None:
    table = FOREIGN.select(["local_ns", "i64"])
    _assert_same_table(_write(table, use_deprecated_int96_timestamps=True))


@pytest.mark.parametrize("outer_null", [True, False])
@pytest.mark.parametrize("element_null", [True, False])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_lists_of_every_readable_nullability(dimensions: int, *, outer_null: bool, element_null: bool) -> None:
    """Inner lists are required, as QuestDB writes them; only the outermost list and the elements vary."""
    kind: pa.DataType = pa.float64()
    value: list[Any] = [1.0, None] if element_null else [1.0, 2.0]
    for level in range(dimensions):
        kind = pa.list_(pa.field("element", kind, nullable=level == 0 and element_null))
        value = [value, []] if level + 1 < dimensions else value
    values = [value, [], None if outer_null else value]
    schema = pa.schema([pa.field("array", kind, nullable=outer_null)])
    _assert_same_table(_write(pa.table([pa.array(values, kind)], schema=schema)))


def test_no_rows_and_no_row_groups() -> None:
    _assert_same_table(_write(FOREIGN.slice(0, 0)))


@pytest.mark.parametrize(
    ("max_rep_level", "max_def_level", "repetition"),
    [
        (0, 2, Repetition.OPTIONAL),
        (3, 6, Repetition.OPTIONAL),
        (2, 2, Repetition.OPTIONAL),
        (1, 4, Repetition.OPTIONAL),
        (1, 3, Repetition.REQUIRED),
    ],
)
def test_levels_that_do_not_tell_the_nesting(max_rep_level: int, max_def_level: int, repetition: Repetition) -> None:
    leaf = LeafSpec(
        name="array",
        physical_type=PhysicalType.DOUBLE,
        repetition=repetition,
        max_rep_level=max_rep_level,
        max_def_level=max_def_level,
    )
    with pytest.raises(UnsupportedError, match="'array'"):
        encode_footer([leaf], [], created_by=None)
