"""Decodes the bytes of one read to an Arrow table of the requested columns, including columns of one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow import (
    arrow_field,
    arrow_type,
    check_values,
    decode_raw_arrays,
    missing_values,
    repeated_value,
    rows_without_columns,
    zero,
)
from coldparquet.decode.columns import FetchedColumns
from coldparquet.decode.conversion import convert_values
from coldparquet.decode.parquet_reader import ChunkLabel, read_columns
from coldparquet.decode.result_text import expanded_table
from coldparquet.decode.stored_types import widened
from coldparquet.decode.virtual_file import leaf_of, one_column_file
from coldparquet.errors import InternalError
from coldparquet.format.page_headers import PageType
from coldparquet.format.parquet_thrift import DataPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Codec, Encoding, Repetition
from coldparquet.format.types import LogicalKind
from coldparquet.plan.type_changes import holds_same_values
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.decode.arrow import TextAs
    from coldparquet.decode.virtual_file import ReadFiles
    from coldparquet.format.types import ColumnType
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import Read, StoredColumn


def constant_value(column: StoredColumn, value: bytes, label: ChunkLabel) -> pa.ChunkedArray[Any]:
    """Decode one value of a column, in Parquet's plain encoding."""
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(value),
        compressed_page_size=len(value),
        data_page_header=DataPageHeader(
            num_values=1,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    # A required column has no levels in front of its values.
    leaf = replace(leaf_of(column), repetition=Repetition.REQUIRED, max_def_level=0)
    file = one_column_file([header.encode(), value], leaf, value_count=1, codec=Codec.UNCOMPRESSED)
    [values] = read_columns(file, {leaf.name: label}, check_page_checksums=False)
    return values


_CHECKED_KINDS = frozenset({LogicalKind.STRING, LogicalKind.DECIMAL})
"""Kinds whose invalid values pyarrow decodes without complaint."""


def decode_row_group(  # noqa: PLR0913 - a read, what is wanted of it and how
    buffer: ReadFiles,
    read: Read,
    columns: Sequence[TableColumn],
    *,
    text: TextAs,
    check_page_checksums: bool,
    symbols: Mapping[int, pa.Array[Any]] | None = None,
    most_bytes: int | None = None,
) -> pa.Table:
    """Decode the fetched bytes of one row group. Blocks; pyarrow releases the GIL and uses its own threads.

    ``symbols`` are the distinct strings that begin the dictionaries of columns of the table, by their index: see
    ``decode_dictionary_chunk``.
    """
    places = read.data.places
    known = {places[index]: strings for index, strings in (symbols or {}).items() if index in places}
    fetched: dict[int, pa.ChunkedArray[Any]] = {}
    if read.columns:
        columns_of_read = FetchedColumns(buffer, read, check_page_checksums=check_page_checksums, most_bytes=most_bytes)
        fetched = columns_of_read.decode(text=text, known=known)
    made = dict(zip(read.made_columns, read.made_values, strict=True))
    fields, arrays = [], []
    for column in columns:
        wanted = column.readable_type
        field = arrow_field(column.name, wanted, text=text)
        place = places[column.index]
        if place is None:
            array = missing_values(read.row_count, field.type, never_null=wanted.never_null)
        else:
            stored = read.data.columns[place]
            label = ChunkLabel(path=read.data.path, row_group=read.row_group, columns=(stored.name,))
            if place in fetched:
                array = _in_table(fetched[place], stored.type, wanted, text, label)
            elif place in made:
                array = _made_values(stored, made[place], read.row_count, wanted, text, label)
            else:
                raise InternalError(
                    f"row group {read.row_group} was planned without column {column.name!r}", path=read.data.path
                )
        fields.append(field.with_type(array.type))
        arrays.append(array)
    if not columns:
        return rows_without_columns(read.row_count)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _in_table(
    array: pa.ChunkedArray[Any], stored: ColumnType, wanted: ColumnType, text: TextAs, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Convert decoded values from their stored type to the type of the table's column."""
    array = _normalised(array, stored, wanted, text, label)
    return _converted(array, stored, wanted, text, label)


def _normalised(
    array: pa.ChunkedArray[Any], stored: ColumnType, wanted: ColumnType, text: TextAs, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Give a decoded column the form of its type that is the same in every partition, whatever the storage."""
    type_: Any = arrow_type(stored, text=text)
    chunks: list[Any] = array.chunks
    if pa.types.is_dictionary(array.type):
        return array
    if stored.arrow.name == "parquet":
        check_values(array, label)
        return pa.chunked_array([widened(chunk, type_) for chunk in chunks], type=type_)
    if stored.raw_array:
        lists = [decode_raw_arrays(chunk, dimensions=stored.arrow.dimensions, label=label) for chunk in chunks]
        return pa.chunked_array(lists, type=type_)
    if stored.arrow.name == "list":
        return array.cast(type_)  # only the names of the items differ
    if stored.never_null and wanted.never_null and array.null_count:
        return array.fill_null(zero(array.type))
    if stored.parquet_logical is not None and stored.parquet_logical.kind in _CHECKED_KINDS:
        check_values(array, label)
    return array.dictionary_encode() if pa.types.is_dictionary(type_) else array


def _converted(
    array: pa.ChunkedArray[Any], stored: ColumnType, wanted: ColumnType, text: TextAs, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Convert a column whose type was changed after its partition was written."""
    if stored.arrow == wanted.arrow and holds_same_values(stored, wanted):
        return array
    type_: Any = arrow_type(wanted, text=text)
    as_decoded: Any = arrow_type(stored, text=text)
    if pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(as_decoded):
        array = expanded_table(pa.table({"": array}), {""}).column(0)
    chunks: list[Any] = array.chunks
    converted = [convert_values(chunk, stored, wanted, result=type_, label=label) for chunk in chunks]
    return pa.chunked_array(converted, type=type_)


def _made_values(  # noqa: PLR0913, PLR0917 - one chunk, and how to show it
    column: StoredColumn, value: bytes | None, row_count: int, wanted: ColumnType, text: TextAs, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Make a column of nulls, or of one repeated value, like its stored form."""
    stored = column.type
    if value is not None:
        return repeated_value(_in_table(constant_value(column, value, label), stored, wanted, text, label), row_count)
    # A file that can mark nulls marks the rows from before the column existed. They become null if the type now has
    # null.
    marks_nulls = leaf_of(column).max_def_level > 0
    is_zero = stored.never_null and (wanted.never_null or not marks_nulls)
    values = missing_values(row_count, arrow_type(stored, text=text), never_null=is_zero)
    return _converted(values, stored, wanted, text, label)
