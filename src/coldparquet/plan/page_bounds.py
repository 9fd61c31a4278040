"""The statistics of the pages of one column, in the shape in which those of chunks are stored.

So what is known to be wrong about statistics is known once, in ``plan/statistics.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.format.sidecar_layout import WORD_BYTES, PhysicalType

if TYPE_CHECKING:
    from coldparquet.format.partition_pages import PageBounds, PartitionPages
    from coldparquet.format.sidecar_chunks import ChunkColumn
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.chunk_pages import ChunkPages

_NUMBER_BYTES: dict[PhysicalType, int] = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageSideBounds:
    """One side's bounds of some pages, as ``StoredBounds``."""

    raw: npt.NDArray[np.uint64]
    inlined: BoolArray
    offsets: IntArray
    lengths: IntArray
    """-1 where there is no bound; a bound of no bytes is none, as in a sidecar."""
    values: npt.NDArray[np.uint8]

    def prefix_words(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """See ``StoredBounds``."""
        return self.raw.byteswap(), self.lengths

    def bytes_at(self, unit: int, /) -> bytes | None:
        """See ``StoredBounds``."""
        start, length = int(self.offsets[unit]), int(self.lengths[unit])
        return self.values[start : start + length].tobytes() if length > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageColumn:
    """The statistics of some pages of one column, as ``StoredStatistics``. Of unknown pages nothing is known."""

    min: PageSideBounds
    max: PageSideBounds
    encodings: npt.NDArray[np.uint8]
    num_values: IntArray
    null_count: IntArray
    has_null_count: BoolArray


def page_column(
    pages: PartitionPages, listed: ChunkPages, chunks: ChunkColumn, row_groups: IntArray, descriptor: ColumnDescriptor
) -> PageColumn:
    """Gather the statistics of pages of a flat column; where the column is nested they mean nothing.

    Args:
        pages: All pages of the file.
        listed: Those of the column.
        chunks: The column's chunks.
        row_groups: Number of the row group of each listed page.
        descriptor: The column as the sidecar describes it.
    """
    is_known = listed.is_known
    null_count = np.zeros(len(listed.page), np.int64)
    null_count[is_known] = pages.null_counts[listed.page[is_known]]
    has_null_count = is_known & (null_count >= 0)
    # Values that a REQUIRED column counts as nulls are left out of the bounds; without a count any page may hold some.
    leaves_out = (descriptor.max_def_level == 0) & ~has_null_count & (chunks.null_count[row_groups] > 0)
    pages_with_bounds = np.where(is_known & ~leaves_out, listed.page, -1)
    width = _NUMBER_BYTES.get(descriptor.physical_type)
    if descriptor.physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        width = descriptor.fixed_byte_length
    return PageColumn(
        min=_side_bounds(pages.lower, pages_with_bounds, width),
        max=_side_bounds(pages.upper, pages_with_bounds, width),
        encodings=chunks.encodings[row_groups],
        num_values=listed.row_counts,
        null_count=np.where(has_null_count, null_count, 0),
        has_null_count=has_null_count,
    )


def _side_bounds(side: PageBounds, pages: IntArray, width: int | None) -> PageSideBounds:
    """Gather the bounds of pages, none where the page is -1.

    Args:
        side: Bounds of all pages of the file.
        pages: The pages.
        width: Bytes of a value; None where values differ in length.
    """
    lengths = np.full(len(pages), -1, np.int64)
    offsets = np.zeros(len(pages), np.int64)
    with_page = np.flatnonzero(pages >= 0)
    lengths[with_page] = side.lengths[pages[with_page]]
    offsets[with_page] = side.offsets[pages[with_page]]
    lengths[lengths == 0] = -1
    raw = np.zeros((len(pages), WORD_BYTES), np.uint8)
    bounded = np.flatnonzero(lengths > 0)
    if len(bounded):
        place = np.arange(WORD_BYTES)
        # The last bound may be nearer to the end of the bytes than 8; what is read instead is blanked out.
        positions = np.minimum(offsets[bounded, None] + place, len(side.values) - 1)
        raw[bounded] = np.where(place < lengths[bounded, None], side.values[positions], 0)
    is_whole = (lengths > 0) & (lengths <= WORD_BYTES) if width is None else lengths == width
    return PageSideBounds(
        raw=raw.view("<u8")[:, 0], inlined=is_whole, offsets=offsets, lengths=lengths, values=side.values
    )
