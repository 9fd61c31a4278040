"""Parquet files made up of just the pages that were fetched, in one buffer that pyarrow decodes.

Layout: ``PAR1``, the pages of each column packed together, and then one end after the other: a footer synthesised from
the sidecar, its length, ``PAR1``. A file is the buffer up to the end of its footer, so that several files share the
pages in front of them without a copy: columns of which the same rows were fetched are in the same file, because all
columns of a row group have equally many rows. The sidecar alone says everything that decoding needs, so the real footer
is never fetched. The buffer has its final size before the first byte arrives, and each byte is copied once: from the
answer of the store to its final place.

Lists of which only some pages were fetched are in no file: see ``coldparquet.decode.list_pages``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.placed_buffer import PlacedBuffer
from coldparquet.errors import UnsupportedError
from coldparquet.format.parquet_footer import (
    PARQUET_MAGIC,
    VirtualChunk,
    VirtualRowGroup,
    encode_footer,
    frame_footer,
)
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.sidecar_layout import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import RowGroupRead
    from coldparquet.plan.row_selection import RowSelection

CODECS = tuple(codec.name.lower() for codec in Codec)
"""Parquet's compression codecs by number, with Arrow's names. Arrow never has LZO, other ones by its build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualColumn:
    """One column of such a file."""

    position: int
    """Its position in ``RowGroupRead.columns``."""
    name: str
    """What it is called in the file."""
    start: int
    """Where its pages begin in the buffer."""
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualFile:
    """One of the files in a buffer."""

    columns: tuple[VirtualColumn, ...]
    rows: RowSelection | None
    """Rows of the row group that its pages hold; None for all."""
    end: bytes
    """Footer, length and magic."""


class RowGroupBuffer(PlacedBuffer):
    """The virtual files of one read, to be filled in any order.

    Args:
        payload_bytes: Total length of the pages.
        files: The files; their ends follow the pages one after the other.
    """

    def __init__(self, payload_bytes: int, files: Sequence[VirtualFile]) -> None:
        super().__init__(payload_bytes, before=PARQUET_MAGIC, behind=b"".join(file.end for file in files))
        self.files = tuple(files)
        ends_bytes = np.cumsum([len(file.end) for file in files], dtype=np.int64)
        self._file_stops = (len(PARQUET_MAGIC) + payload_bytes + ends_bytes).tolist()

    def parquet_file(self, index: int) -> pa.Buffer:
        """Return one of the finished files; it shares the memory of this object.

        Args:
            index: Its position in ``files``.

        Raises:
            InternalError: Bytes are missing.
        """
        return pa.py_buffer(self.bytes()[: self._file_stops[index]])


def new_row_group_buffer(read: RowGroupRead, sidecar: Sidecar, *, path: str | None) -> RowGroupBuffer:
    """Make the virtual files of one read, complete but for the bytes of their pages.

    Args:
        read: The row group, and which pieces of its chunks will be placed at ``read.buffer_offsets``.
        sidecar: The partition's sidecar.
        path: The Parquet file, for error messages.

    Raises:
        UnsupportedError: A chunk is compressed with a codec that pyarrow cannot read, or its column is nested in a way
            that the sidecar does not describe.
    """
    starts, lengths = _column_places(read)
    groups: list[tuple[RowSelection | None, list[int]]] = []
    for position, (column, rows) in enumerate(zip(read.columns, read.column_rows, strict=True)):
        descriptor = sidecar.column(column)
        codec = int(sidecar.chunks(column).codec[read.row_group])
        _check_codec(codec, ChunkLabel(path=path, row_group=read.row_group_in_file, columns=(descriptor.name,)))
        if rows is not None and descriptor.max_rep_level:
            continue
        same_rows = next((positions for other, positions in groups if other == rows), None)
        if same_rows is None:
            groups.append((rows, [position]))
        else:
            same_rows.append(position)
    files = []
    for rows, positions in groups:
        leaves = [column_leaf(sidecar, read.columns[position]) for position in positions]
        columns = tuple(
            VirtualColumn(position=position, name=leaf.name, start=starts[position], length_bytes=lengths[position])
            for position, leaf in zip(positions, leaves, strict=True)
        )
        chunks = [_virtual_chunk(read, sidecar, rows, column) for column in columns]
        row_count = read.row_group_rows if rows is None else rows.row_count
        footer = encode_footer(leaves, [VirtualRowGroup(row_count=row_count, chunks=chunks)])
        files.append(VirtualFile(columns=columns, rows=rows, end=frame_footer(footer)))
    return RowGroupBuffer(sum(lengths), files)


def column_leaf(sidecar: Sidecar, column: int) -> LeafSpec:
    """Describe one column of a partition to pyarrow.

    Args:
        sidecar: The partition's sidecar.
        column: Index of the column there.
    """
    descriptor = sidecar.column(column)
    return LeafSpec(
        # pyarrow chooses columns by name, and takes dots for paths into structs.
        name=f"{column}:{descriptor.name.replace('.', '_')}",
        physical_type=descriptor.physical_type,
        fixed_byte_length=descriptor.fixed_byte_length,
        repetition=descriptor.repetition,
        max_rep_level=descriptor.max_rep_level,
        max_def_level=descriptor.max_def_level,
        logical=sidecar.column_type(column).parquet_logical,
    )


def _column_places(read: RowGroupRead) -> tuple[list[int], list[int]]:
    """Say where the pages of each column lie in the buffer of a read, where its pieces are packed together.

    Returns:
        Offset of the first byte, and number of bytes, of each of ``read.columns``.
    """
    packed_stops = np.append(0, np.cumsum(read.piece_stops - read.piece_starts))
    first_pieces = np.searchsorted(read.piece_columns, np.arange(len(read.columns) + 1))
    lengths = packed_stops[first_pieces[1:]] - packed_stops[first_pieces[:-1]]
    # The pieces of a column lie in their order; where a column without any begins does not matter.
    starts = np.append(read.buffer_offsets, len(PARQUET_MAGIC) + packed_stops[-1])[first_pieces[:-1]]
    return starts.tolist(), lengths.tolist()


def _virtual_chunk(
    read: RowGroupRead, sidecar: Sidecar, rows: RowSelection | None, column: VirtualColumn
) -> VirtualChunk:
    stored = sidecar.chunks(read.columns[column.position])
    return VirtualChunk(
        start=column.start,
        length_bytes=column.length_bytes,
        value_count=int(stored.num_values[read.row_group]) if rows is None else rows.row_count,
        codec=int(stored.codec[read.row_group]),
        encodings=int(stored.encodings[read.row_group]),
    )


def _check_codec(codec: int, label: ChunkLabel) -> None:
    if codec >= len(CODECS):
        raise label.damaged(f"there is no compression codec {codec}", field="codec")
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    if codec != 0 and (name == "lzo" or not pa.Codec.is_available(name)):
        raise UnsupportedError(
            f"{label}: compressed with {name.upper()}, which this build of pyarrow cannot read; rewrite the file with"
            " another codec, for example ZSTD",
            kind="UnsupportedCodec",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
            codec=name,
        )
