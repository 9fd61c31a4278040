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
    from coldparquet.format.sidecar import Sidecar

_PARQUET_MAGIC_BYTES = 4

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
    """Per column: bounds are about its values. Not those of lists: writers mark their pages as they like."""
    bound_bytes: npt.NDArray[np.int64]
    """Per column: length of every bound in bytes; -1 where it varies."""
    may_be_empty: npt.NDArray[np.bool_]
    """Per column: a bound of no bytes is an empty string, and not a missing one."""
    fingerprint: int
    """CRC-32 of rows, values, places and short bounds of all chunks: another file of the same size has another one."""

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

    def gather(word: int) -> npt.NDArray[np.uint64]:
        return blocks.words.take((first_chunk_words + word).ravel())

    row_counts = blocks.words[blocks.first_words]
    packed = gather(layout.CHUNK_PACKED_WORD).astype("<u8", copy=False).view(np.uint8).reshape(-1, layout.WORD_BYTES)
    stat_flags = packed[:, 2]
    starts, lengths = gather(layout.CHUNK_BYTE_RANGE_START_WORD), gather(layout.CHUNK_TOTAL_COMPRESSED_WORD)
    null_counts, min_words, max_words = (
        np.where(_have(stat_flags, flags), gather(word), missing)
        for word, flags, missing in (
            (layout.CHUNK_NULL_COUNT_WORD, layout.STAT_NULL_COUNT_PRESENT, ~np.uint64(0)),
            (layout.CHUNK_MIN_WORD, _INLINED, np.uint64(0)),
            (layout.CHUNK_MAX_WORD, _INLINED << layout.STAT_MAX_SHIFT, np.uint64(0)),
        )
    )
    facts = (row_counts, gather(layout.CHUNK_NUM_VALUES_WORD), starts, lengths, min_words, max_words)
    limit = np.uint64(sidecar.footer.parquet_footer_offset)
    inside = (starts >= _PARQUET_MAGIC_BYTES) & (starts <= limit) & (lengths <= limit - np.minimum(starts, limit))
    inside &= limit <= _LARGEST_I64
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
        null_counts=np.where(null_counts <= _LARGEST_I64, null_counts, ~np.uint64(0)).astype(np.int64),
        is_flat=~is_list & (descriptors["max_def_level"] <= 1),
        has_bounds=~is_list & ~np.isin(types, _UNBOUNDED_TYPES),
        bound_bytes=bound_bytes,
        may_be_empty=types == layout.PhysicalType.BYTE_ARRAY,
        fingerprint=_checksum(facts),
    )


_INLINED = layout.STAT_PRESENT | layout.STAT_INLINED


def _have(flags: npt.NDArray[np.uint8], mask: int) -> npt.NDArray[np.bool_]:
    is_set: npt.NDArray[np.bool_] = (flags & np.uint8(mask)) == mask
    return is_set


def _signed(values: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(valid, values, np.uint64(0)).astype(np.int64)


def _checksum(facts: tuple[npt.NDArray[np.uint64], ...]) -> int:
    checksum = 0
    for words in facts:
        checksum = zlib.crc32(words.astype("<u8", copy=False).tobytes(), checksum)
    return checksum
