"""Parses the page index of a Parquet file to the pages of its column chunks.

For each column chunk a writer may leave an OffsetIndex, with the places and rows of the data pages, and a ColumnIndex,
with bounds of their values. Both are between the last chunk and the footer, which has their offsets. Of the ColumnIndex
only ``null_counts`` and the bounds are used: QuestDB marks every page without bounds as a null page, pages of arrays
among them, and calls every order UNORDERED (note section 10.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.blooms import locate_blooms
from coldparquet.format.fetch import WantedRanges
from coldparquet.format.pages import PageLists, PagesFound, check_pages, last_chunk_stops
from coldparquet.format.parquet_thrift import ColumnIndex, OffsetIndex
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.format.fetch import FetchedRanges
    from coldparquet.format.pages import ChunkPlaces
    from coldparquet.format.parquet_footer import FooterRowGroup, ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import RowGroupTable

LARGEST_INDEX_BYTES = 8 * 1024 * 1024
"""Most bytes to fetch for page pruning: the index of 100,000 pages or more."""

_BLOOM_HEADER_BYTES = 64
"""A filter begins with a header of about 16 bytes, which is not part of its range."""

_LARGEST_PAGE_BYTES = (1 << 31) - 1
_DAMAGED = "it is damaged"
_ELSEWHERE = "it does not lie right before the footer"
_LISTS_DIFFER = "its lists differ in length"


def page_index_range(sidecar: Sidecar, *, start: int | None = None) -> ByteRange:
    """Return the range of the page index in a Parquet file, footer included.

    It covers at most the last ``LARGEST_INDEX_BYTES``; indexes before that are not found.
    """
    if start is None:
        (start,) = page_index_starts(sidecar, np.array([0, sidecar.row_group_count])).tolist()
    size_bytes = sidecar.parquet_size_bytes
    return ByteRange(max(start, size_bytes - LARGEST_INDEX_BYTES), size_bytes)


def page_index_starts(table: RowGroupTable, borders: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the earliest start of the page index of Parquet files: what follows the last chunk.

    Bloom filters directly behind the chunks are skipped where the sidecar knows them; other writers put them behind the
    page index.
    """
    file_count = len(borders) - 1
    file_of = np.repeat(np.arange(file_count), np.diff(borders))
    chunk_stops, bloom_stops = np.zeros(file_count, np.int64), np.zeros(file_count, np.int64)
    bloom_starts = np.full(file_count, np.iinfo(np.int64).max)
    np.maximum.at(chunk_stops, file_of, last_chunk_stops(table))
    for column in table.bloom_columns if table.blooms_external else ():
        blooms = locate_blooms(table, column)
        known = blooms.present & (blooms.starts > 0) & (blooms.lengths > 0)
        np.minimum.at(bloom_starts, file_of[known], blooms.starts[known])
        np.maximum.at(bloom_stops, file_of[known], (blooms.starts + blooms.lengths)[known])
    is_behind = (chunk_stops <= bloom_starts) & (bloom_starts - chunk_stops <= _BLOOM_HEADER_BYTES)
    starts: npt.NDArray[np.int64] = np.where(is_behind, bloom_stops, chunk_stops)
    return starts


def parse_page_index(  # noqa: PLR0913 - mostly keyword arguments
    footer: ParquetFooter,
    tail: bytes,
    *,
    tail_start: int,
    places: ChunkPlaces,
    row_groups: Iterable[int] | None = None,
    columns: Iterable[int] | None = None,
    earlier: FetchedRanges | None = None,
) -> PagesFound:
    """Parse the page indexes of some column chunks."""
    if len(footer.row_groups) != places.row_group_count or len(footer.leaves) != places.column_count:
        note = "the page index is not used: the Parquet footer has other row groups or columns than the sidecar"
        return PagesFound(pages=None, notes=(note,))
    parser = _IndexParser(tail=tail, tail_start=tail_start, earlier=earlier)
    chosen_columns = range(places.column_count) if columns is None else sorted(set(columns))
    for row_group in range(places.row_group_count) if row_groups is None else sorted(set(row_groups)):
        for column in chosen_columns:
            parser.add_chunk(footer.row_groups[row_group], column, chunk=row_group * places.column_count + column)
    found = check_pages(parser.pages.claimed(), places, source="page index", problems=parser.problems)
    return PagesFound(pages=found.pages, notes=(*_without_index(parser, places), *found.notes))


def earlier_indexes(footer: ParquetFooter, *, tail_start: int) -> WantedRanges | None:
    """Return the ranges of indexes before the end of the file; None if there are none, or too many bytes.

    An update in place appends row groups and a footer, and leaves the indexes of the old row groups where they are.
    """
    ranges = [
        (start, start + length)
        for row_group in footer.row_groups
        for starts, lengths in (
            (row_group.offset_index_offsets, row_group.offset_index_lengths),
            (row_group.column_index_offsets, row_group.column_index_lengths),
        )
        for start, length in zip(starts, lengths, strict=True)
        if 0 < start < tail_start and 0 < length <= tail_start - start
    ]
    if not ranges or sum(stop - start for start, stop in ranges) > LARGEST_INDEX_BYTES:
        return None
    starts, stops = np.array(ranges, np.int64).T
    return WantedRanges(starts=starts, stops=stops)


def _without_index(parser: _IndexParser, places: ChunkPlaces) -> tuple[str, ...]:
    missing = parser.without_index
    if not missing:
        return ()
    others = f" and {len(missing) - 1:,} more column chunks" if len(missing) > 1 else ""
    return (f"{places.describe(missing[0])}{others} {'have' if others else 'has'} no page index",)


@dataclass(slots=True, kw_only=True)
class _IndexParser:
    """Parses one chunk's indexes after the other."""

    tail: bytes
    tail_start: int
    earlier: FetchedRanges | None
    problems: dict[int, str] = field(default_factory=dict)
    without_index: list[int] = field(default_factory=list)
    pages: PageLists = field(default_factory=PageLists)

    def add_chunk(self, row_group: FooterRowGroup, column: int, *, chunk: int) -> None:
        if row_group.offset_index_lengths[column] == 0:
            self.without_index.append(chunk)
            return
        try:
            located = self._bytes_at(row_group.offset_index_offsets[column], row_group.offset_index_lengths[column])
            pages = OffsetIndex.decode(located, path=None, offset=0).page_locations
            bounded = None
            if row_group.column_index_lengths[column] != 0:
                located = self._bytes_at(row_group.column_index_offsets[column], row_group.column_index_lengths[column])
                bounded = ColumnIndex.decode(located, path=None, offset=0)
        except _OutsideError:
            self.problems[chunk] = _ELSEWHERE
            return
        except FormatError:
            self.problems[chunk] = _DAMAGED
            return
        if bounded is not None and not _is_about(bounded, len(pages)):
            self.problems[chunk] = _LISTS_DIFFER
            return
        if not pages or any(not 0 < page.compressed_page_size <= _LARGEST_PAGE_BYTES for page in pages):
            self.problems[chunk] = _DAMAGED
            return
        unknown: list[bytes | None] = [None] * len(pages)
        lower = unknown if bounded is None else _without_fillers(bounded, bounded.min_values)
        upper = unknown if bounded is None else _without_fillers(bounded, bounded.max_values)
        self.pages.add(
            chunk,
            starts=[page.offset for page in pages],
            lengths=[page.compressed_page_size for page in pages],
            rows=[page.first_row_index for page in pages],
            null_counts=None if bounded is None else bounded.null_counts,
            lower=lower,
            upper=upper,
        )

    def _bytes_at(self, start: int, length: int) -> bytes:
        first = start - self.tail_start
        if 0 <= first <= len(self.tail) and 0 < length <= len(self.tail) - first:
            return self.tail[first : first + length]
        if self.earlier is not None and start > 0 and 0 < length <= -first:
            found = self.earlier.bytes_at(start, start + length)
            if found is not None:
                return found
        raise _OutsideError


class _OutsideError(Exception):
    """An index is outside the fetched bytes."""


def _is_about(index: ColumnIndex, page_count: int) -> bool:
    lists = (index.null_pages, index.min_values, index.max_values, index.null_counts)
    return all(len(values) == page_count for values in lists if values is not None)


def _without_fillers(index: ColumnIndex, bounds: Sequence[bytes]) -> list[bytes | None]:
    """Return bounds without those of null pages, which mean nothing."""
    return [None if is_null else value for is_null, value in zip(index.null_pages, bounds, strict=True)]
