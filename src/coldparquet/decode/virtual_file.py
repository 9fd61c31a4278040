"""Makes Parquet files of only the fetched pages, in memory that pyarrow decodes.

Layout: ``PAR1``, the pages of each column without gaps, and then the end of each file: a footer synthesised from
what the read knows, its length, ``PAR1``. A file is the buffer up to the end of its footer, so several files share the pages before
them without a copy. All columns of a row group have equally many rows, so columns with the same fetched rows are in the
same file. The read holds everything that decoding needs, so the real footer is never fetched. The buffer has
its final size before the first byte arrives, and each byte is copied once: from the store's answer to its final place.

Large row groups that arrive in a single answer are not copied at all: the footer gives pyarrow the places of the pages
inside the answer.

Lists of which only some pages were fetched are in no file: see ``coldparquet.decode.columns``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.parquet_footer import PARQUET_MAGIC, VirtualChunk, VirtualRowGroup, encode_footer, frame_footer
from coldparquet.format.sidecar_layout import ENCODING_PLAIN, ENCODING_RLE_DICTIONARY, Codec
from coldparquet.options import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.parquet_schema import LeafSpec
    from coldparquet.plan.model import Read, StoredColumn
    from coldparquet.plan.selection import RowSelection


def one_column_file(
    pages: Sequence[bytes | memoryview],
    leaf: LeafSpec,
    *,
    value_count: int,
    codec: int,
    created_by: str | None = None,
) -> pa.Buffer:
    """Make a virtual file of one flat column from the bytes of its pages."""
    chunk = VirtualChunk(
        start=len(PARQUET_MAGIC),
        length_bytes=sum(map(len, pages)),
        value_count=value_count,
        codec=codec,
        encodings=ENCODING_PLAIN | ENCODING_RLE_DICTIONARY,
    )
    row_group = VirtualRowGroup(row_count=value_count, chunks=[chunk])
    footer = encode_footer([leaf], [row_group], created_by=created_by)
    return pa.py_buffer(b"".join((PARQUET_MAGIC, *pages, frame_footer(footer))))


class PlacedBuffer:
    """Memory with its final size before the first byte arrives, filled in any order.

    Args:
        payload_bytes: Number of bytes to be placed.
        before: Known bytes before them in the buffer.
        behind: Known bytes after them.
    """

    def __init__(self, payload_bytes: int, *, before: bytes = b"", behind: bytes = b"") -> None:
        self._payload_start = len(before)
        self._payload_stop = len(before) + payload_bytes
        self.size_bytes = self._payload_stop + len(behind)
        """Memory of the buffer."""
        # Arrow's allocator does not clear the memory; it is not read before every byte has been placed.
        try:
            self._buffer = pa.allocate_buffer(self.size_bytes)
        except MemoryError as error:
            raise FormatError(
                f"{self.size_bytes:,} bytes are to be decoded at once, and this machine has not so much memory: the metadata is"
                " damaged, or the row group is too large for it",
                kind="TooLarge",
            ) from error
        self._bytes = memoryview(self._buffer).cast("B")
        self._bytes[: self._payload_start] = before
        self._bytes[self._payload_stop :] = behind
        self._placed: list[tuple[int, int]] = []
        """Disjoint (start, stop) of the placed bytes, ascending; adjacent ones are joined."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that have not been placed yet."""
        return self._payload_stop - self._payload_start - sum(stop - start for start, stop in self._placed)

    @property
    def complete(self) -> bool:
        """Whether every byte has been placed."""
        return self.missing_bytes == 0

    def place(self, destination_offset: int, data: memoryview) -> None:
        """Copy fetched bytes to their place."""
        start, stop = destination_offset, destination_offset + data.nbytes
        if not self._payload_start <= start <= stop <= self._payload_stop:
            raise InternalError(
                f"bytes [{start}, {stop}) lie outside the chunks [{self._payload_start}, {self._payload_stop}) of a buffer"
            )
        if start == stop:
            return
        after = bisect_right(self._placed, (start, stop))
        joins_before = after > 0 and self._placed[after - 1][1] >= start
        joins_after = after < len(self._placed) and self._placed[after][0] <= stop
        if (joins_before and self._placed[after - 1][1] > start) or (joins_after and self._placed[after][0] < stop):
            raise InternalError(f"some of the bytes [{start}, {stop}) of a buffer were placed twice")
        self._bytes[start:stop] = data.cast("B")
        joined_start = self._placed[after - 1][0] if joins_before else start
        joined_stop = self._placed[after][1] if joins_after else stop
        self._placed[after - joins_before : after + joins_after] = [(joined_start, joined_stop)]

    def bytes(self) -> memoryview:
        """Return the whole buffer; it shares the memory of this object."""
        if not self.complete:
            raise InternalError(f"a buffer is decoded while {self.missing_bytes} of its bytes are missing")
        return self._bytes


LEAST_BYTES_IN_PLACE = MIB
"""Below this, copying is faster than pyarrow reading a footer elsewhere, which takes 0.1 ms."""

_LEAST_SHARE_IN_PLACE = 3 / 4
"""Least part of wanted bytes between the first and the last one; the rest is memory held in vain."""

CODECS = tuple(codec.name.lower() for codec in Codec)
"""Parquet's compression codecs by number, with Arrow's names. Arrow never has LZO; the others depend on its build."""


class VirtualColumn(Struct, frozen=True, kw_only=True):
    """One chunk of a column of a virtual file."""

    position: int
    """Its position in ``Read.columns``."""
    name: str
    """Its name in the file."""
    start: int
    """Where its pages begin in the memory of the file."""
    length_bytes: int


class VirtualFile(Struct, frozen=True, kw_only=True):
    """One of the files in a buffer."""

    columns: tuple[VirtualColumn, ...]
    """Its chunks, of one row group after the other."""
    rows: RowSelection | None
    """Rows of the row group in its pages; None for all."""
    end: bytes
    """Footer, length and magic."""


class RowGroupBuffer(PlacedBuffer):
    """The virtual files of one read, filled in any order.

    Args:
        payload_bytes: Total length of the pages.
        files: The files; their ends follow the pages one after the other.
    """

    holds_ends = True

    def __init__(self, payload_bytes: int, files: Sequence[VirtualFile]) -> None:
        super().__init__(payload_bytes, before=PARQUET_MAGIC, behind=b"".join(file.end for file in files))
        self.files = tuple(files)
        ends_bytes = np.cumsum([len(file.end) for file in files], dtype=np.int64)
        self._file_stops = (len(PARQUET_MAGIC) + payload_bytes + ends_bytes).tolist()

    def parquet_file(self, index: int) -> pa.Buffer:
        """Return one of the finished files; it shares the memory of this object."""
        return pa.py_buffer(self.bytes()[: self._file_stops[index]])


class RowGroupInPlace:
    """The single virtual file of a read whose pages stay inside the store's answer; its end is in separate memory.

    Args:
        pages: The part of the answer with the pages, with gaps.
        file: The file.
    """

    holds_ends = False

    def __init__(self, pages: memoryview, file: VirtualFile) -> None:
        self._pages = pages
        self.files = (file,)

    def bytes(self) -> memoryview:
        """Return the pages, with gaps; they share the memory of the answer."""
        return self._pages

    def parquet_file(self, index: int) -> pa.Buffer:  # noqa: ARG002 - there is only one
        """Return the file without its end."""
        return pa.py_buffer(self._pages)


ReadFiles: TypeAlias = RowGroupBuffer | RowGroupInPlace
"""The virtual files of one read, in either kind of memory."""


def new_row_group_buffer(read: Read) -> RowGroupBuffer:
    """Make the virtual files of one read, complete except for the bytes of their pages."""
    starts, lengths = _column_places(read)
    return RowGroupBuffer(sum(lengths), _files(read, starts, lengths))


def stays_in_place(read: Read) -> bool:
    """Tell whether a read is decoded inside its answer, provided that a single answer holds all its bytes."""
    wanted_bytes = int((read.piece_stops - read.piece_starts).sum())
    has_one_range = read.piece_files is None and all(rows is None for rows in read.column_rows)
    if wanted_bytes < LEAST_BYTES_IN_PLACE or not has_one_range:
        return False
    spanned_bytes = int(read.piece_stops.max() - read.piece_starts.min())
    return wanted_bytes >= _LEAST_SHARE_IN_PLACE * spanned_bytes


def row_group_in_place(read: Read, answer: bytes, answer_start: int) -> RowGroupInPlace:
    """Make the virtual file of one read around its answer, whose offset in the file is ``answer_start``."""
    begin, end = int(read.piece_starts.min()), int(read.piece_stops.max())
    starts, lengths = (read.piece_starts - begin).tolist(), (read.piece_stops - read.piece_starts).tolist()
    [file] = _files(read, starts, lengths)
    return RowGroupInPlace(memoryview(answer)[begin - answer_start : end - answer_start], file)


def leaf_of(column: StoredColumn) -> LeafSpec:
    """Return how pyarrow reads a column of Parquet."""
    if column.leaf is None:
        raise InternalError(f"column {column.name!r} of native files is decoded as Parquet")
    return column.leaf


def _files(read: Read, starts: Sequence[int], lengths: Sequence[int]) -> list[VirtualFile]:
    """Describe the files of one read, whose columns begin at ``starts``."""
    row_groups = read.by_row_group
    width = read.columns_per_row_group
    groups: list[tuple[RowSelection | None, list[int]]] = []
    stored = [read.data.columns[column] for column in read.columns]
    leaves = [leaf_of(column) for column in stored]
    for position, (rows, codec) in enumerate(zip(read.column_rows, read.chunks["codec"].tolist(), strict=True)):
        _check_codec(codec, ChunkLabel(path=read.data.path, row_group=read.row_group, columns=(stored[position].name,)))
        if rows is not None and leaves[position].max_rep_level:
            continue
        same_rows = next((positions for other, positions in groups if other == rows), None)
        if same_rows is None:
            groups.append((rows, [position]))
        else:
            same_rows.append(position)
    files = []
    for rows, positions in groups:
        columns = tuple(
            VirtualColumn(
                position=position, name=leaves[position].name, start=starts[position], length_bytes=lengths[position]
            )
            for position in positions
        )
        in_file = [
            VirtualRowGroup(
                row_count=row_group.row_group_rows if rows is None else rows.row_count,
                chunks=[_virtual_chunk(read, rows, column) for column in columns if column.position // width == index],
            )
            for index, row_group in enumerate(row_groups)
        ]
        leaves_of_file = [leaves[position] for position in positions if position < width]
        footer = encode_footer(leaves_of_file, in_file, created_by=read.data.created_by)
        files.append(VirtualFile(columns=columns, rows=rows, end=frame_footer(footer)))
    return files


def _column_places(read: Read) -> tuple[list[int], list[int]]:
    """Return the places of each column's pages in the buffer of a read, which holds its pieces without gaps."""
    packed_stops = np.append(0, np.cumsum(read.piece_stops - read.piece_starts))
    first_pieces = np.searchsorted(read.piece_columns, np.arange(len(read.columns) + 1))
    lengths = packed_stops[first_pieces[1:]] - packed_stops[first_pieces[:-1]]
    # The pieces of a column are in order; the begin of a column without pieces does not matter.
    starts = np.append(read.buffer_offsets, len(PARQUET_MAGIC) + packed_stops[-1])[first_pieces[:-1]]
    return starts.tolist(), lengths.tolist()


def _virtual_chunk(read: Read, rows: RowSelection | None, column: VirtualColumn) -> VirtualChunk:
    codec, encodings, value_count, _ = read.chunks[column.position].item()
    return VirtualChunk(
        start=column.start,
        length_bytes=column.length_bytes,
        value_count=value_count if rows is None else rows.row_count,
        codec=codec,
        encodings=encodings,
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
