"""Finds the Arrow types of columns that pyarrow decodes by their Parquet schema, nested ones among them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import PARQUET_MAGIC, frame_footer
from coldparquet.format.parquet_schema import encode_stored
from coldparquet.format.parquet_thrift import FileMetaData, SchemaElement

NO_EXTENSIONS: Any = {"arrow_extensions_enabled": False}
"""How pyarrow opens Parquet files: JSON is text, and a UUID 16 bytes. The stubs do not know the option."""


@lru_cache(maxsize=1024)
def type_of_schema(note: str) -> pa.DataType:
    """Return the Arrow type that pyarrow reads a column as, given its Parquet schema; the items of all levels may be null."""
    elements, _ = encode_stored("column", note)
    schema = [SchemaElement(name="schema", num_children=1), *elements]
    footer = FileMetaData(version=2, schema=schema, num_rows=0, created_by="coldparquet").encode()
    try:
        end = pa.BufferReader(PARQUET_MAGIC + frame_footer(footer))
        type_: pa.DataType = _nullable(pq.ParquetFile(end, **NO_EXTENSIONS).schema_arrow.field(0).type)
    except (pa.ArrowException, OSError) as error:
        raise UnsupportedError(f"pyarrow cannot read its Parquet schema: {' '.join(str(error).split())}") from error
    return type_


def _nullable(type_: Any) -> Any:
    """Return a nested type whose items may be null at all levels: files differ in what they promise."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_nullable(type_.key_type), _nullable(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(pa.field(type_.value_field.name, _nullable(type_.value_type)))
    return type_


def widened(values: Any, type_: Any) -> Any:
    """Return an array as a type that holds its values. Fields of structs are found by name; those that it lacks are null.

    Arrow's own cast takes no other order of fields, and of maps not even other names.

    Raises:
        pa.ArrowInvalid: The type does not hold a value.
    """
    if values.type.equals(type_, check_metadata=True):
        return values
    if pa.types.is_struct(type_) and pa.types.is_struct(values.type):
        names, wanted = ([field.name for field in one] for one in (values.type, type_))
        # Fields of one name are told apart by their order, which only types with the same names share.
        places = (
            list(range(len(names))) if names == wanted else [names.index(x) if x in names else None for x in wanted]
        )
        fields = [
            pa.nulls(len(values), field.type) if place is None else widened(values.field(place), field.type)
            for place, field in zip(places, type_, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=values.is_null())
    if pa.types.is_map(type_) and pa.types.is_map(values.type):
        parts = [widened(values.keys, type_.key_type), widened(values.items, type_.item_type)]
        items = pa.StructArray.from_arrays(parts, fields=[type_.key_field, type_.item_field])
        return _with_items(values, items, type_)
    if pa.types.is_list(type_) and pa.types.is_list(values.type):
        return _with_items(values, widened(values.values, type_.value_type), type_)
    if pa.types.is_decimal(type_):
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64()).cast(pa.decimal128(_INTEGER_DIGITS, 0))
        values = values.cast(pa.decimal256(_WIDE_DIGITS, type_.scale))
    return values.cast(type_)


def _with_items(lists: Any, items: Any, type_: Any) -> Any:
    return pa.Array.from_buffers(type_, len(lists), lists.buffers()[:2], offset=lists.offset, children=[items])


_INTEGER_DIGITS = 19
_WIDE_DIGITS = 76
