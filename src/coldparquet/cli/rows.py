"""Rows as ``scan`` prints and writes them: text for people, JSON, CSV, Parquet and Arrow files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

_STEPS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_ISO_DAY = (date.min - date(1970, 1, 1)).days
_LAST_ISO_DAY = (date.max - date(1970, 1, 1)).days


def printable_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns that every text format can write.

    Numbers and booleans stay; times become ISO text, nested values JSON text, decimals digits and bytes hexadecimal
    digits.
    """
    return _converted(batch, _printable_column)


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dictionaries for ``json.dumps``.

    As :func:`printable_batch`, but nested values stay so, maps as lists of pairs, and numbers that JSON does not know (NaN,
    infinities) become null.
    """
    rows = _converted(batch, _json_column).to_pylist()
    floats = [
        field.name for field in batch.schema if pa.types.is_floating(field.type) or pa.types.is_nested(field.type)
    ]
    for row in rows:
        for name in floats:
            row[name] = _finite(row[name])
    return rows


def text_columns(batch: pa.RecordBatch) -> list[list[str]]:
    """Return every column as texts; a null is an empty one."""
    columns = (_printable_column(column) for column in batch.columns)
    return [["" if text is None else text for text in column.cast(pa.string()).to_pylist()] for column in columns]


def _converted(batch: pa.RecordBatch, convert: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([convert(column) for column in batch.columns], names=batch.schema.names)


def _json_column(column: pa.Array[Any]) -> pa.Array[Any]:
    return _printable_items(column) if pa.types.is_nested(column.type) else _printable_column(column)


def _printable_items(values: Any) -> Any:
    """Convert what a nested column holds, at all levels."""
    values = pa.concat_arrays([values])  # not a slice, whose offsets would not begin with 0
    if pa.types.is_struct(values.type):
        children = [_json_column(child) for child in values.flatten()]
        return pa.StructArray.from_arrays(children, [field.name for field in values.type], mask=values.is_null())
    if pa.types.is_map(values.type):
        keys, items = _json_column(values.keys), _json_column(values.items)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=values.is_null())
    kind = pa.LargeListArray if pa.types.is_large_list(values.type) else pa.ListArray
    return kind.from_arrays(values.offsets, _json_column(values.values), mask=values.is_null())


def _printable_column(column: pa.Array[Any]) -> pa.Array[Any]:  # noqa: PLR0911 - one case per type
    column_type = column.type
    if isinstance(column, pa.DictionaryArray):
        return _printable_column(column.dictionary_decode())
    if pa.types.is_timestamp(column_type) or pa.types.is_date32(column_type):
        return _iso_text(column)
    if pa.types.is_temporal(column_type) or pa.types.is_decimal(column_type):
        return column.cast(pa.string())
    if pa.types.is_binary(column_type) or pa.types.is_fixed_size_binary(column_type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_float16(column_type):
        return column.cast(pa.float32())
    if pa.types.is_nested(column_type):
        values = _printable_items(column).to_pylist()
        texts = [None if value is None else json.dumps(_finite(value)) for value in values]
        return pa.array(texts, pa.string())
    return column


def _iso_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Write dates, and timestamps as ``2024-03-01T12:30:00.123456Z``; without the Z where they have no time zone.

    Times outside the years 1 to 9999, which ISO text cannot hold, are written as the stored number.
    """
    if pa.types.is_date32(column.type):
        iso, steps, steps_per_day = column.cast(pa.string()), column.cast(pa.int32()).cast(pa.int64()), 1
    else:
        # All zones here are UTC, and a cast to text without zone needs no time zone database.
        iso = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        iso = pc.replace_substring(iso, " ", "T")
        iso = iso if column.type.tz is None else pc.replace_substring_regex(iso, "$", "Z")
        steps, steps_per_day = column.cast(pa.int64()), 86_400 * _STEPS_PER_S[column.type.unit]
    first = pa.scalar(max(_FIRST_ISO_DAY * steps_per_day, -(2**63)))
    last = pa.scalar(min((_LAST_ISO_DAY + 1) * steps_per_day, 2**63) - 1)
    is_iso = pc.and_(pc.greater_equal(steps, first), pc.less_equal(steps, last))
    text: pa.Array[Any] = pc.if_else(is_iso, iso, steps.cast(pa.string()))
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ROW_GROUP_ROWS = 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""A row group is written when either is reached, so that memory stays bounded and row groups useful."""


class RowSink(Protocol):
    """Takes rows until it is closed. Closing completes the format, not the file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""
        ...

    def close(self) -> None:
        """Write what the format has at its end."""
        ...


class ParquetSink:
    """Parquet, zstd-compressed, in row groups of a useful size however small the batches are."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the batch until a row group is full."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _ROW_GROUP_ROWS or self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        """Write the rest and the footer."""
        if self._waiting:
            self._write_row_group()
        self._writer.close()

    def _write_row_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows or None)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class ArrowSink:
    """The Arrow IPC file format, also known as Feather version 2."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(file, schema)  # type: ignore[arg-type]  # the stubs know only IOBase

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class CsvSink:
    """CSV with a header line; a null is an empty field, an empty text is ``""``."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._write(pa.RecordBatch.from_pylist([], schema=schema), include_header=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        self._write(batch, include_header=False)

    def close(self) -> None:
        """Do nothing: CSV has no end."""

    def _write(self, batch: pa.RecordBatch, *, include_header: bool) -> None:
        text = pa.BufferOutputStream()
        pa.csv.write_csv(printable_batch(batch), text, pa.csv.WriteOptions(include_header=include_header))
        self._file.write(text.getvalue())


class JsonSink:
    """One JSON object per row and line."""

    def __init__(self, file: BinaryIO, _schema: pa.Schema) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in json_rows(batch))
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """Do nothing: lines have no end."""


MakeSink = Callable[[BinaryIO, pa.Schema], RowSink]

SINKS: dict[str, MakeSink] = {
    ".parquet": ParquetSink,
    ".csv": CsvSink,
    ".arrow": ArrowSink,
    ".feather": ArrowSink,
}
"""Formats by the ending of the file name."""
