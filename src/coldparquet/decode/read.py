"""Makes rows of the bytes of one read, by the decoder of its data: Parquet, or QuestDB's native files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from coldparquet.decode.arrow import TextAs
from coldparquet.decode.native import decode_native_rows
from coldparquet.decode.row_group import decode_row_group
from coldparquet.decode.virtual_file import PlacedBuffer, ReadFiles, RowGroupInPlace, new_row_group_buffer
from coldparquet.errors import ColdParquetError, InternalError
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.plan.choices import made_row_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    text = TextAs.while_decoding(options)
    if read.data.decoder == "native":
        return decode_native_rows(buffer.bytes(), read, columns, text=text)
    if not isinstance(buffer, ReadFiles):
        raise InternalError("a row group is decoded from a buffer of another kind")

    def decoded(buffer: ReadFiles, read: Read) -> pa.Table:
        return decode_row_group(
            buffer,
            read,
            columns,
            text=text,
            check_page_checksums=options.check_page_checksums,
            symbols=symbols,
            most_bytes=options.memory_limit_bytes,
        )

    try:
        return decoded(buffer, read)
    except ColdParquetError:
        for of_one, one in _one_by_one(buffer, read):
            decoded(of_one, one)  # its error names the row group
        raise


def _one_by_one(buffer: ReadFiles, read: Read) -> Iterator[tuple[ReadFiles, Read]]:
    """Take apart the bytes of joined reads, which follow one another in the buffer."""
    content = buffer.bytes()
    begin = len(PARQUET_MAGIC)
    for one in read.joined:
        of_one = new_row_group_buffer(one)
        of_one.place(len(PARQUET_MAGIC), content[begin : begin + one.bytes_wanted])
        begin += one.bytes_wanted
        yield of_one, one


def decoded_bytes(read: Read) -> int:
    """Estimate the decoded size of the columns of one read, except deferred ones."""
    if read.data.decoder == "native":  # symbols are not longer than their keys
        return read.bytes_wanted
    row_bytes = float(read.chunks["decoded_bytes"].sum()) / max(read.row_group_rows, 1)
    for column, value in zip(read.made_columns, read.made_values, strict=True):
        row_bytes += made_row_bytes(read.data.columns[column].type, value)
    held_rows = [read.row_group_rows if rows is None else rows.row_count for rows in read.column_rows]
    return int(row_bytes * max(held_rows, default=read.row_count))
