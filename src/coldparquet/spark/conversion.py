"""From the batches of a scan to batches as Spark takes them. Runs in the tasks, so that it imports nothing of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow_schema import QUESTDB_TYPE_KEY
from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.text_from_values import text_from_values
from coldparquet.errors import UnsupportedError
from coldparquet.spark.text_values import character_text, geohash_text, is_geohash, wide_integer_text

if TYPE_CHECKING:
    from coldparquet.decode.untyped_compute import Values

_TYPES_AS_TEXT = frozenset({"CHAR", "IPv4", "UUID", "LONG128", "LONG256"})
"""Types of QuestDB that Spark knows no counterpart of, besides geohashes."""

_NANOSECONDS_PER_MICROSECOND = 1_000


def questdb_type(field: pa.Field[Any]) -> str:
    """Return the type of a column as ``SHOW COLUMNS`` prints it."""
    return (field.metadata or {})[QUESTDB_TYPE_KEY].decode()


def is_written_as_text(field: pa.Field[Any]) -> bool:
    """Tell whether the values of a column are no text themselves but become it on their way to Spark."""
    name = questdb_type(field)
    return name in _TYPES_AS_TEXT or is_geohash(name) or pa.types.is_decimal256(field.type)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch.

    Args:
        batch: Of a scan with text as plain strings.
        schema: The Arrow schema that Spark demands, with as many fields.

    Raises:
        UnsupportedError: A value has no counterpart in Spark, such as a DATE that lies beyond Spark's timestamps.
    """
    columns = [
        _converted(column, field, target.type)
        for column, field, target in zip(batch.columns, batch.schema, schema, strict=True)
    ]
    if not columns:
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(values: Values, field: pa.Field[Any], target: pa.DataType) -> Values:
    source = field.type
    if source.equals(target):
        return values
    if pa.types.is_string(target):
        return _text(values, field)
    if pa.types.is_timestamp(source) and source.unit == "ns" and pa.types.is_timestamp(target):
        return _in_microseconds(values, target)
    if pa.types.is_time32(source):
        return values.cast(pa.int32()).cast(target)
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        raise UnsupportedError(
            f"column {field.name!r} holds {questdb_type(field)} values that Spark's {target} cannot hold (timestamps reach"
            " 292,000 years from 1970); leave the column out, or such rows by the option where",
            kind="ValueOutOfRange",
            column=field.name,
            type=questdb_type(field),
        ) from None


def _text(values: Values, field: pa.Field[Any]) -> Values:
    name = questdb_type(field)
    if is_geohash(name):
        return geohash_text(values, name)
    if name == "CHAR":
        return character_text(values)
    if name in ("LONG128", "LONG256"):
        return wide_integer_text(values)
    if name in ("IPv4", "UUID"):
        return text_from_values(values, "STRING", ChunkLabel(path=None, row_group=0, columns=(field.name,)))
    return values.cast(pa.string())


def _in_microseconds(values: Values, target: pa.DataType) -> Values:
    """Cut nanoseconds off: towards the past, also before 1970, so that the order of values stays."""
    validity, data = values.buffers()
    if data is None:
        return values.cast(pa.int64()).cast(target)  # without any row
    end = values.offset + len(values)
    nanoseconds = np.frombuffer(memoryview(data), dtype=np.int64, count=end)
    microseconds = nanoseconds // _NANOSECONDS_PER_MICROSECOND
    buffers = [validity, pa.py_buffer(microseconds.data)]
    return pa.Array.from_buffers(target, len(values), buffers, offset=values.offset)
