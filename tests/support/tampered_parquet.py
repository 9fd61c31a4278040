"""Parquet files whose metadata was changed afterwards: page indexes and bloom filters that lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.format.parquet_thrift import ColumnChunk, ColumnIndex, FileMetaData, OffsetIndex

if TYPE_CHECKING:
    from collections.abc import Callable

_FRAME_BYTES = 8
"""Length of the footer and magic bytes, at the end of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndexes:
    """What a file says of the pages of one column chunk; change it in place."""

    row_group: int
    column: int
    row_count: int
    """Rows of the row group."""
    offsets: OffsetIndex
    bounds: ColumnIndex


def with_changed_indexes(file: bytes, change: Callable[[ChunkIndexes], None]) -> bytes:
    """Return the file with its page indexes changed, and everything else as it was.

    Args:
        file: A file whose chunks all have both indexes.
        change: Is called with those of every chunk, in file order.
    """
    footer_start, footer = _footer(file)
    tail = b""
    for row_group_number, row_group in enumerate(footer.row_groups):
        for column_number, chunk in enumerate(row_group.columns):
            indexes = ChunkIndexes(
                row_group=row_group_number,
                column=column_number,
                row_count=row_group.num_rows,
                offsets=OffsetIndex.decode(_located(file, chunk.offset_index_offset), path=None, offset=0),
                bounds=ColumnIndex.decode(_located(file, chunk.column_index_offset), path=None, offset=0),
            )
            change(indexes)
            encoded = indexes.offsets.encode()
            chunk.offset_index_offset, chunk.offset_index_length = footer_start + len(tail), len(encoded)
            tail += encoded
            encoded = indexes.bounds.encode()
            chunk.column_index_offset, chunk.column_index_length = footer_start + len(tail), len(encoded)
            tail += encoded
    return file[:footer_start] + tail + _framed(footer)


def with_changed_chunks(file: bytes, change: Callable[[ColumnChunk], None]) -> bytes:
    """Return the file with what its footer says of column chunks changed.

    Args:
        file: The file.
        change: Is called with every chunk, in file order.
    """

    def change_chunks(footer: FileMetaData) -> None:
        for row_group in footer.row_groups:
            for chunk in row_group.columns:
                change(chunk)

    return with_changed_footer(file, change_chunks)


def with_changed_footer(file: bytes, change: Callable[[FileMetaData], None]) -> bytes:
    """Return the file with its footer changed in place, and everything before it as it was."""
    footer_start, footer = _footer(file)
    change(footer)
    return file[:footer_start] + _framed(footer)


def _footer(file: bytes) -> tuple[int, FileMetaData]:
    start = len(file) - _FRAME_BYTES - int.from_bytes(file[-_FRAME_BYTES:-4], "little")
    return start, FileMetaData.decode(file[start:-_FRAME_BYTES], path=None, offset=start)


def _framed(footer: FileMetaData) -> bytes:
    content = footer.encode()
    return content + len(content).to_bytes(4, "little") + b"PAR1"


def _located(file: bytes, start: int | None) -> bytes:
    assert start, "the chunk has no page index"
    return file[start:]
