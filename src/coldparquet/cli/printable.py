"""Arrow values in the form in which files for people and programs hold them: ISO times, hexadecimal bytes."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_STEPS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_ISO_DAY = (date.min - date(1970, 1, 1)).days
_LAST_ISO_DAY = (date.max - date(1970, 1, 1)).days


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
    if pa.types.is_timestamp(column_type) or pa.types.is_date32(column_type):
        return _iso_text(column)
    if pa.types.is_temporal(column_type) or pa.types.is_decimal(column_type):
        return column.cast(pa.string())
    if pa.types.is_binary(column_type) or pa.types.is_fixed_size_binary(column_type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if _is_list(column_type):
        texts = [None if value is None else json.dumps(_finite(value)) for value in column.to_pylist()]
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


def _is_list(column_type: pa.DataType) -> bool:
    return pa.types.is_list(column_type) or pa.types.is_large_list(column_type)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
