"""One slice of a native partition's column files -> an Arrow table, equal to what the same rows in Parquet decode to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow_schema import arrow_field
from coldparquet.decode.missing_values import missing_values, rows_without_columns
from coldparquet.decode.native_fixed import decode_fixed
from coldparquet.decode.native_symbols import decode_symbol_keys
from coldparquet.decode.native_variable import decode_variable
from coldparquet.decode.rows_label import RowsLabel
from coldparquet.errors import InternalError
from coldparquet.format.native_layout import VariableLayout
from coldparquet.format.type_codes import TypeTag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.decode.arrow_schema import TextAs
    from coldparquet.format.utf16 import Utf8Strings
    from coldparquet.plan.native_read import FileRole, NativeColumn, NativeRead


def decode_native_rows(  # noqa: PLR0913 - one slice, what is known of it and how to show it
    buffer: memoryview,
    read: NativeRead,
    columns: Sequence[NativeColumn],
    *,
    text: TextAs,
    dictionaries: Mapping[int, Utf8Strings],
    path: str,
) -> pa.Table:
    """Decode one slice of a native partition. Blocks.

    Args:
        buffer: The bytes of the slice, complete, each range at its place in ``read.buffer_offsets``.
        read: What it holds.
        columns: The result's columns, in its order; each was planned by ``read``.
        text: Which text columns become dictionary arrays.
        dictionaries: Symbols of the SYMBOL columns, by position of the column in the table.
        path: Directory of the partition, for error messages.

    Returns:
        ``read.row_count`` rows, which share no memory with the buffer. Rows before a column's top are null; BOOLEAN,
        BYTE, SHORT and CHAR are never null but false or 0. Dictionaries hold only values that occur.

    Raises:
        FormatError: Lengths, offsets or symbol keys contradict each other, or text is not UTF-8; names the partition, the
            column and the row.
        UnsupportedError: A decimal does not fit its type.
        InternalError: A column was not planned.
    """
    if not columns:
        return rows_without_columns(read.row_count)
    slice_ = _Slice(buffer, read, path)
    fields = [arrow_field(column.name, column.type, text=text) for column in columns]
    arrays = [
        slice_.decode(column, field.type, dictionaries.get(column.index))
        for column, field in zip(columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


class _Slice:
    """The bytes of one slice, by column."""

    def __init__(self, buffer: memoryview, read: NativeRead, path: str) -> None:
        self._read = read
        self._path = path
        whole = np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)
        offsets, lengths = read.buffer_offsets.tolist(), (read.stops - read.starts).tolist()
        self._parts = {
            (file.column, file.role): whole[offset : offset + length]
            for file, offset, length in zip(read.files, offsets, lengths, strict=True)
        }
        self._starts = {
            (file.column, file.role): start for file, start in zip(read.files, read.starts.tolist(), strict=True)
        }

    def decode(self, column: NativeColumn, type_: Any, dictionary: Utf8Strings | None) -> pa.ChunkedArray[Any]:
        row_count = self._read.row_count
        if column.index in self._read.made_columns:
            return missing_values(row_count, type_, never_null=column.type.never_null)
        missing_rows = min(max((column.top or 0) - self._read.first_row, 0), row_count)
        label = RowsLabel(
            path=self._path,
            row_group=self._read.row_group,
            columns=(column.name,),
            first_row=self._read.first_row + missing_rows,
        )
        stored = self._decode_stored(column, type_, dictionary, label)
        if sum(map(len, stored)) != row_count - missing_rows:
            raise label.damaged(f"holds {sum(map(len, stored)):,} values, expected {row_count - missing_rows:,}")
        if missing_rows:
            missing = missing_values(missing_rows, type_, never_null=column.type.never_null)
            stored = [*missing.chunks, *stored]
        return pa.chunked_array(stored, type=type_)

    def _decode_stored(
        self, column: NativeColumn, type_: Any, dictionary: Utf8Strings | None, label: RowsLabel
    ) -> list[pa.Array[Any]]:
        layout = column.layout
        if isinstance(layout, VariableLayout):
            decoded = decode_variable(
                self._part(column, "auxiliary"),
                self._part(column, "data"),
                layout,
                column_type=column.type,
                data_start=self._starts[column.index, "data"],
                label=label,
            )
            return [array.dictionary_encode() for array in decoded] if pa.types.is_dictionary(type_) else decoded
        values = self._part(column, "fixed")
        if column.type.tag is not TypeTag.SYMBOL:
            return [decode_fixed(values, layout, type_, tag=column.type.tag, label=label)]
        if dictionary is None:
            raise InternalError(f"column {column.name!r} is decoded without its dictionary", path=self._path)
        return [decode_symbol_keys(values, layout, type_, dictionary=dictionary, label=label)]

    def _part(self, column: NativeColumn, role: FileRole) -> npt.NDArray[np.uint8]:
        part = self._parts.get((column.index, role))
        if part is None:
            raise InternalError(f"slice {self._read.row_group} was planned without column {column.name!r}")
        return part
