"""Makes rows of the bytes of one read, by the decoder of its data: Parquet, or QuestDB's native files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from coldparquet.decode.arrow import TextAs
from coldparquet.decode.native import decode_native_rows
from coldparquet.decode.row_group import decode_row_group
from coldparquet.decode.virtual_file import PlacedBuffer, ReadFiles, RowGroupInPlace, new_row_group_buffer
from coldparquet.errors import InternalError
from coldparquet.plan.choices import made_row_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from coldparquet.options import ReadOptions
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import Read


ReadBuffer: TypeAlias = PlacedBuffer | RowGroupInPlace
"""The bytes of one read, in the form that decoding takes."""


def new_buffer(read: Read) -> PlacedBuffer:
    """Make the buffer of one read, complete except for the bytes of its requests."""
    if read.data.decoder == "native":
        return PlacedBuffer(read.bytes_wanted)
    return new_row_group_buffer(read)


def decode_read(
    read: Read,
    buffer: ReadBuffer,
    columns: Sequence[TableColumn],
    options: ReadOptions,
    *,
    symbols: Mapping[int, pa.Array[Any]],
) -> pa.Table:
    """Decode all rows of one read; ``symbols`` as for :func:`coldparquet.decode.row_group.decode_row_group`. Blocks."""
    text = TextAs.of(options)
    if read.data.decoder == "native":
        return decode_native_rows(buffer.bytes(), read, columns, text=text)
    if not isinstance(buffer, ReadFiles):
        raise InternalError("a row group is decoded from a buffer of another kind")
    return decode_row_group(
        buffer,
        read,
        columns,
        text=text,
        check_page_checksums=options.check_page_checksums,
        symbols=symbols,
        most_bytes=options.memory_limit_bytes,
    )


def decoded_bytes(read: Read) -> int:
    """Estimate the decoded size of the columns of one read, except deferred ones."""
    if read.data.decoder == "native":  # symbols are not longer than their keys
        return read.bytes_wanted
    row_bytes = float(read.chunks["decoded_bytes"].sum()) / max(read.row_group_rows, 1)
    for column, value in zip(read.made_columns, read.made_values, strict=True):
        row_bytes += made_row_bytes(read.data.columns[column].type, value)
    held_rows = [read.row_group_rows if rows is None else rows.row_count for rows in read.column_rows]
    return int(row_bytes * max(held_rows, default=read.row_count))
