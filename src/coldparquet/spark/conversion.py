"""Converts batches of a scan to Spark's types. Runs in the tasks: it imports nothing of Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow import QUESTDB_TYPE_KEY, byte_strings_to_arrow, compute, numbers_to_arrow, only_where
from coldparquet.decode.convert_text import text_from_values
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import UnsupportedError

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.arrow import Values


_TYPES_AS_TEXT = frozenset({"CHAR", "IPv4", "UUID", "LONG128", "LONG256"})
"""QuestDB types without a counterpart in Spark, besides geohashes."""


_NANOSECONDS_PER_MICROSECOND = 1_000


def questdb_type(field: pa.Field[Any]) -> str:
    """Return the type of a column as ``SHOW COLUMNS`` prints it."""
    return (field.metadata or {})[QUESTDB_TYPE_KEY].decode()


def is_written_as_text(field: pa.Field[Any]) -> bool:
    """Tell whether the values of a column are not text themselves but are converted to text for Spark."""
    name = questdb_type(field)
    return name in _TYPES_AS_TEXT or is_geohash(name) or pa.types.is_decimal256(field.type)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch."""
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
    if pa.types.is_nested(source):
        return _converted_items(pa.concat_arrays([values]), field, target)
    if pa.types.is_string(target):
        return _shown_text(values, field)
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


def _converted_items(values: Values, field: pa.Field[Any], target: Any) -> Values:
    """Convert a nested array that is no slice of another one, or its items, which have no QuestDB type of their own."""
    is_null = values.is_null()
    if pa.types.is_struct(values.type):
        pairs = zip(values.flatten(), target, strict=True)
        children = [_converted_items(child, field, wanted.type) for child, wanted in pairs]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=is_null)
    if pa.types.is_map(values.type):
        keys = _converted_items(values.keys, field, target.key_type)
        items = _converted_items(values.items, field, target.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=target, mask=is_null)
    if pa.types.is_list(values.type):
        items = _converted_items(values.values, field, target.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, type=target, mask=is_null)
    if pa.types.is_string(target):
        return values.cast(target)
    return _converted(values, field.with_type(values.type), target)


def _shown_text(values: Values, field: pa.Field[Any]) -> Values:
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
    """Cut off nanoseconds: towards the past, also before 1970, so that the order of values stays."""
    validity, data = values.buffers()
    if data is None:
        return values.cast(pa.int64()).cast(target)  # without any row
    end = values.offset + len(values)
    nanoseconds = np.frombuffer(memoryview(data), dtype=np.int64, count=end)
    microseconds = nanoseconds // _NANOSECONDS_PER_MICROSECOND
    buffers = [validity, pa.py_buffer(microseconds.data)]
    return pa.Array.from_buffers(target, len(values), buffers, offset=values.offset)


_GEOHASH = re.compile(r"GEOHASH\((?P<count>\d{1,2})(?P<unit>[bc])\)")


_BASE32 = np.frombuffer(b"0123456789bcdefghjkmnpqrstuvwxyz", dtype=np.uint8)


_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


_SURROGATES = range(0xD800, 0xE000)


_REPLACEMENT = "\ufffd"


_BITS_PER_CHARACTER = {"b": 1, "c": 5}


def is_geohash(type_name: str) -> bool:
    """Tell whether a type, as ``SHOW COLUMNS`` prints it, is a geohash."""
    return _GEOHASH.fullmatch(type_name) is not None


def geohash_text(values: Values, type_name: str) -> Values:
    """Write geohashes as QuestDB shows them: ``u33d8b`` where they count characters, ``0110`` where they count bits."""
    match = _GEOHASH.fullmatch(type_name)
    if match is None:
        raise ValueError(f"{type_name} is no geohash")
    length, bits = int(match["count"]), _BITS_PER_CHARACTER[match["unit"]]
    numbers = _numbers(values.cast(pa.int64()), np.dtype(np.int64))
    shifts = np.arange(length - 1, -1, -1, dtype=np.int64) * bits
    digits = (numbers[:, None] >> shifts) & ((1 << bits) - 1)
    return _text(_BASE32[digits], values)


def character_text(values: Values) -> Values:
    """Write CHAR, which is one unit of UTF-16, as a string of one character.

    Half of a character, which QuestDB can store and UTF-8 cannot, becomes U+FFFD.
    """
    units, places = np.unique(_numbers(values, np.dtype(np.uint16)), return_inverse=True)
    characters = [(_REPLACEMENT if unit in _SURROGATES else chr(unit)).encode() for unit in units.tolist()]
    dictionary = byte_strings_to_arrow(characters, pa.binary()).cast(pa.string())
    text = dictionary.take(numbers_to_arrow(places.astype(np.int32), pa.int32()))
    has_character = compute.and_(values.is_valid(), compute.not_equal(values, 0))
    return only_where(text, has_character)


def wide_integer_text(values: Values) -> Values:
    """Write LONG128 and LONG256 as QuestDB shows them: ``0x1f``, without zeros in front."""
    width = values.type.byte_width
    raw = _numbers(values, np.dtype((np.void, width))).view(np.uint8).reshape(-1, width)[:, ::-1]
    digits = np.empty((len(raw), 2 * width), dtype=np.uint8)
    digits[:, 0::2] = _HEX[raw >> 4]
    digits[:, 1::2] = _HEX[raw & 15]
    significant = compute.utf8_ltrim(_text(digits, values), "0")
    significant = compute.if_else(compute.equal(significant, ""), "0", significant)
    return compute.binary_join_element_wise("0x", significant, "")


def _numbers(values: Values, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values; those at nulls are arbitrary."""
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), dtype=dtype)
    return np.frombuffer(memoryview(data), dtype=dtype, count=values.offset + len(values))[values.offset :]


def _text(characters: npt.NDArray[np.uint8], like: Values) -> Values:
    """Make strings of one length each from ASCII characters, null where ``like`` is."""
    count, length = characters.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    written = pa.Array.from_buffers(
        pa.large_string(),
        count,
        [None, pa.py_buffer(offsets.data), pa.py_buffer(np.ascontiguousarray(characters).data)],
    ).cast(pa.string())
    return only_where(written, like.is_valid())
