"""Arrow values in the form in which files for people and programs hold them: ISO times, hexadecimal bytes."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def printable_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns that every text format can write.

    Numbers and booleans stay; times become ISO text, lists JSON text, decimals digits and bytes hexadecimal digits.
    """
    return _converted(batch, _printable_column)


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dictionaries for ``json.dumps``.

    As :func:`printable_batch`, but lists stay lists, and numbers that JSON does not know (NaN, infinities) become null.
    """
    rows = _converted(batch, _json_column).to_pylist()
    floats = [field.name for field in batch.schema if pa.types.is_floating(field.type) or _is_list(field.type)]
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
    return column if _is_list(column.type) else _printable_column(column)


def _printable_column(column: pa.Array[Any]) -> pa.Array[Any]:
    column_type = column.type
    if isinstance(column, pa.DictionaryArray):
        return _printable_column(column.dictionary_decode())
    if pa.types.is_timestamp(column_type):
        return _iso_timestamps(column)
    if pa.types.is_temporal(column_type) or pa.types.is_decimal(column_type):
        return column.cast(pa.string())
    if pa.types.is_binary(column_type) or pa.types.is_fixed_size_binary(column_type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if _is_list(column_type):
        return pa.array(
            [None if value is None else json.dumps(_finite(value)) for value in column.to_pylist()], pa.string()
        )
    return column


def _iso_timestamps(column: pa.Array[Any]) -> pa.Array[Any]:
    """Write ``2024-03-01T12:30:00.123456Z``; without the Z where the column has no time zone."""
    # All zones here are UTC, and a cast to text without zone needs no time zone database.
    text = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    iso = pc.replace_substring(text, " ", "T")
    return iso if column.type.tz is None else pc.replace_substring_regex(iso, "$", "Z")


def _is_list(column_type: pa.DataType) -> bool:
    return pa.types.is_list(column_type) or pa.types.is_large_list(column_type)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
