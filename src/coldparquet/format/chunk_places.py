"""What a sidecar says of all column chunks, as far as what is said of their pages has to agree with it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar_header import parse_name

if TYPE_CHECKING:
    from coldparquet.format.row_group_table import RowGroupTable
    from coldparquet.format.sidecar import Sidecar

_BOUND_BYTES = {
    layout.PhysicalType.BOOLEAN: 1,
    layout.PhysicalType.INT32: 4,
    layout.PhysicalType.INT64: 8,
    layout.PhysicalType.FLOAT: 4,
    layout.PhysicalType.DOUBLE: 8,
}
"""Physical types of which every bound has the width of a value."""

_UNBOUNDED_TYPES = (layout.PhysicalType.INT96,)
"""Their order is not defined, so that writers' bounds mean nothing."""

_LARGEST_I64 = np.uint64((1 << 63) - 1)
_UNKNOWN = ~np.uint64(0)
"""-1 as a signed number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkPlaces:
    """Where the chunks of a Parquet file lie and what they hold: chunk ``row_group * column_count + column``."""

    sidecar: Sidecar = field(repr=False)
    row_group_count: int
    column_count: int
    row_counts: npt.NDArray[np.int64]
    """Rows of each row group, shape ``(row_groups,)``; 0 where the sidecar names a number beyond any file."""
    starts: npt.NDArray[np.int64]
    """First byte of each chunk, shape ``(chunks,)``; 0 where it does not lie between magic bytes and footer."""
    stops: npt.NDArray[np.int64]
    """One past its last byte; 0 likewise."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each chunk; -1 where unknown."""
    is_flat: npt.NDArray[np.bool_]
    """Per column: each row is one value or NULL, so that values and NULLs count rows."""
    has_bounds: npt.NDArray[np.bool_]
    """Per column: bounds of pages are believed. Not those of lists, whose pages writers mark as they like; and only where the
    sidecar bounds a chunk of the column: what makes a sidecar knows whether the file declares an order of bounds that we
    know, and whether its writer got them right (``sidecar_content_from_footer``)."""
    bound_bytes: npt.NDArray[np.int64]
    """Per column: length of every bound in bytes; -1 where it varies."""
    may_be_empty: npt.NDArray[np.bool_]
    """Per column: a bound of no bytes is an empty string, and not a missing one."""
    fingerprint: int
    """CRC-32 of all that is said of the chunks, bounds included: a file with other statistics has another one."""

    @property
    def chunk_count(self) -> int:
        """Number of column chunks."""
        return self.row_group_count * self.column_count

    def describe(self, chunk: int) -> str:
        """Name one chunk for a person."""
        row_group, column = divmod(chunk, self.column_count)
        try:
            name = repr(parse_name(self.sidecar.file, column, path=self.sidecar.path))
        except FormatError:
            name = str(column)
        return f"column {name} of row group {row_group}"


def chunk_places(sidecar: Sidecar) -> ChunkPlaces:
    """Gather what pages are checked against; wrong numbers are left out, nothing raises."""
    blocks, column_count = sidecar.blocks, sidecar.column_count
    first_chunk_words = blocks.first_words[:, np.newaxis] + 1 + layout.CHUNK_WORDS * np.arange(column_count)

    words = blocks.words.take(first_chunk_words.reshape(-1, 1) + np.arange(layout.CHUNK_WORDS))
    row_counts = blocks.words[blocks.first_words]
    starts, lengths = words[:, layout.CHUNK_BYTE_RANGE_START_WORD], words[:, layout.CHUNK_TOTAL_COMPRESSED_WORD]
    has_null_count = (_stat_flags(words) & np.uint8(layout.STAT_NULL_COUNT_PRESENT)) != 0
    null_counts = np.where(has_null_count, words[:, layout.CHUNK_NULL_COUNT_WORD], _UNKNOWN)
    inside = _are_inside(np.repeat(sidecar.data_stops, column_count), starts, lengths)
    descriptors = np.frombuffer(sidecar.file, layout.COLUMN_DESCRIPTOR_DTYPE, column_count, layout.HEADER.size)
    types, is_list = descriptors["physical_type"], descriptors["max_rep_level"] > 0
    bound_bytes = np.full(column_count, -1, np.int64)
    for physical_type, width in _BOUND_BYTES.items():
        bound_bytes[types == physical_type] = width
    return ChunkPlaces(
        sidecar=sidecar,
        row_group_count=sidecar.row_group_count,
        column_count=column_count,
        row_counts=_signed(row_counts, row_counts <= _LARGEST_I64),
        starts=_signed(starts, inside),
        stops=_signed(starts + lengths, inside),
        null_counts=np.where(null_counts <= _LARGEST_I64, null_counts, _UNKNOWN).astype(np.int64),
        is_flat=~is_list & (descriptors["max_def_level"] <= 1),
        has_bounds=~is_list & ~np.isin(types, _UNBOUNDED_TYPES) & _is_bounded(words, column_count),
        bound_bytes=bound_bytes,
        may_be_empty=types == layout.PhysicalType.BYTE_ARRAY,
        fingerprint=_fingerprint(sidecar, row_counts, words),
    )


def last_chunk_stops(table: RowGroupTable) -> npt.NDArray[np.int64]:
    """Return where the last chunk of each row group ends, shape (row groups,); wrong numbers are left out, nothing raises."""
    starts = table.blocks.gather_from_chunks(layout.CHUNK_BYTE_RANGE_START_WORD)
    lengths = table.blocks.gather_from_chunks(layout.CHUNK_TOTAL_COMPRESSED_WORD)
    inside = _are_inside(table.data_stops[:, np.newaxis], starts, lengths)
    stops: npt.NDArray[np.uint64] = (starts + lengths) * inside
    last: npt.NDArray[np.int64] = stops.max(axis=1, initial=0).astype(np.int64)
    return last


def _are_inside(
    data_stops: npt.NDArray[np.uint64], starts: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Tell which chunks lie in the data of their Parquet file."""
    stops = starts + lengths  # less than the start where the sum exceeds 64 bits
    inside = (starts >= layout.PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops <= data_stops)
    return inside & (data_stops <= _LARGEST_I64)


def _signed(values: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(valid, values, np.uint64(0)).astype(np.int64)


def _stat_flags(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    packed = words[:, layout.CHUNK_PACKED_WORD].astype("<u8")
    return packed.view(np.uint8).reshape(-1, layout.WORD_BYTES)[:, layout.STAT_FLAGS_BYTE]


def _is_bounded(words: npt.NDArray[np.uint64], column_count: int) -> npt.NDArray[np.bool_]:
    """Tell of which columns some chunk has a bound, shape ``(columns,)``."""
    is_present = _stat_flags(words) & np.uint8(layout.STAT_PRESENT | layout.STAT_PRESENT << layout.STAT_MAX_SHIFT) != 0
    is_bounded: npt.NDArray[np.bool_] = is_present.reshape(-1, max(column_count, 1)).any(axis=0)[:column_count]
    return is_bounded


def _fingerprint(sidecar: Sidecar, row_counts: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> int:
    """Sum up rows, all words of the chunks, shape ``(chunks, 8)``, and the bounds that lie behind the chunks.

    Of these the bytes count and not where they lie: sidecars of one file with and without bloom filters between them agree.
    """
    blocks, stat_flags, words = sidecar.blocks, _stat_flags(words), words.copy()
    block_ends = blocks.first_words * layout.WORD_BYTES + layout.block_bytes(blocks.column_count)
    behind_chunks = np.repeat(block_ends, blocks.column_count)
    checksum = zlib.crc32(row_counts.astype("<u8", copy=False).tobytes())
    for word, shift in ((layout.CHUNK_MIN_WORD, 0), (layout.CHUNK_MAX_WORD, layout.STAT_MAX_SHIFT)):
        places_known = stat_flags >> np.uint8(shift) & np.uint8(layout.STAT_PRESENT | layout.STAT_INLINED)
        is_long = places_known == layout.STAT_PRESENT
        lengths = words[is_long, word] & np.uint64(layout.MAX_OUT_OF_LINE_BYTES)
        # At most 2**48 plus an offset in the file: no overflow.
        offsets = words[is_long, word] >> np.uint64(layout.OUT_OF_LINE_LENGTH_BITS)
        starts = behind_chunks[is_long] + offsets.astype(np.int64)
        checksum = zlib.crc32(_bytes_at(sidecar.file, starts, lengths.astype(np.int64)), checksum)
        words[is_long, word] = lengths
    return zlib.crc32(words.astype("<u8", copy=False).tobytes(), checksum)


def _bytes_at(file: memoryview, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of all places inside of a file; none where they are more than it has, as bounds never are."""
    inside = starts + lengths <= len(file)
    starts, lengths = starts[inside], lengths[inside]
    total = int(lengths.sum())
    if total > len(file):
        return b""
    first_positions = np.cumsum(lengths) - lengths
    positions = np.arange(total) + np.repeat(starts - first_positions, lengths)
    return bytes(np.frombuffer(file, np.uint8)[positions])
