"""Finds the Arrow types of columns that pyarrow decodes by their Parquet schema, nested ones among them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.errors import InternalError, UnsupportedError
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


def _nullable(type_: Any, *, item: str | None = None) -> Any:
    """Return a nested type whose items may be null at all levels: files differ in what they promise.

    Items of lists keep their names, unless one is given.
    """
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _nullable(field.type, item=item)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_nullable(type_.key_type, item=item), _nullable(type_.item_type, item=item))
    if pa.types.is_list(type_):
        name = type_.value_field.name if item is None else item
        return pa.list_(pa.field(name, _nullable(type_.value_type, item=item)))
    return type_


class _WithNamesOf:
    """An array whose values another type describes, as the C data interface hands it over: no value is copied."""

    def __init__(self, array: Any, type_: pa.DataType) -> None:
        self._array, self._type = array, type_

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, array = self._array.__arrow_c_array__()
        return self._type.__arrow_c_schema__(), array


def with_names_of(array: pa.ChunkedArray[Any], type_: Any) -> pa.ChunkedArray[Any]:
    """Return an array in a type that differs only in names of items, and in what may be null.

    Arrow's cast takes some of these differences, but not those of maps.
    """
    if array.type.equals(type_, check_metadata=True):
        return array
    if str(_nullable(array.type, item="")) != str(_nullable(type_, item="")):
        raise InternalError(f"{array.type} was decoded, and {type_} expected")
    chunks: list[Any] = array.chunks
    renamed: list[Any] = [_WithNamesOf(chunk, type_) for chunk in chunks]
    return pa.chunked_array([pa.array(chunk) for chunk in renamed], type=type_)
