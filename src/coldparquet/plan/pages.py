"""Prunes by page indexes: drops the rows of pages that provably hold no matching row.

The pages of different columns begin at different rows. Every page border of every column of the predicate cuts the rows
of all row groups into segments. Each segment is inside one page per column, so it has one bound per column. Segments
are units of pruning like row groups, and trees of AND, OR and NOT combine for them in the same way.

The surviving segments of a row group are its row selection: the intersection of what each column's pages leave.
``plan/statistics.py`` alone knows which statistics are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.sidecar_layout import WORD_BYTES, PhysicalType
from coldparquet.format.types import distinct_values
from coldparquet.plan.bind import fields_of
from coldparquet.plan.bounds import Bounds, ByteSide, NumericSide
from coldparquet.plan.prune import prune
from coldparquet.plan.reads import pages_of_chunks
from coldparquet.plan.selection import selections_of
from coldparquet.plan.statistics import believed_type, bounds_after_type_change, chunk_bounds
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.format.pages import PageBounds, PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import ChunkColumn
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray, Side
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.reads import ChunkPages
    from coldparquet.plan.selection import RowSelection
    from coldparquet.plan.statistics import StatisticsSource


_NUMBER_BYTES: dict[PhysicalType, int] = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}


class PageSideBounds(Struct, frozen=True, kw_only=True, eq=False):
    """One side's bounds of some pages, as ``StoredBounds``."""

    raw: npt.NDArray[np.uint64]
    inlined: BoolArray
    offsets: IntArray
    lengths: IntArray
    """-1 without a bound; a bound of no bytes counts as none, as in a sidecar."""
    values: npt.NDArray[np.uint8]

    def prefix_words(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """See ``StoredBounds``."""
        return self.raw.byteswap(), self.lengths

    def bytes_at(self, unit: int, /) -> bytes | None:
        """See ``StoredBounds``."""
        start, length = int(self.offsets[unit]), int(self.lengths[unit])
        return self.values[start : start + length].tobytes() if length > 0 else None


class PageColumn(Struct, frozen=True, kw_only=True, eq=False):
    """The statistics of some pages of one column, as ``StoredStatistics``. They are unknown for unknown pages."""

    min: PageSideBounds
    max: PageSideBounds
    encodings: npt.NDArray[np.uint8]
    num_values: IntArray
    null_count: IntArray
    has_null_count: BoolArray


def page_column(
    pages: PartitionPages, listed: ChunkPages, chunks: ChunkColumn, row_groups: IntArray, descriptor: ColumnDescriptor
) -> PageColumn:
    """Gather the statistics of pages of a flat column; for a nested column they mean nothing."""
    is_known = listed.is_known
    null_count = np.zeros(len(listed.page), np.int64)
    null_count[is_known] = pages.null_counts[listed.page[is_known]]
    has_null_count = is_known & (null_count >= 0)
    # The bounds exclude values that a REQUIRED column counts as nulls; without a count any page may hold some.
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
    """Gather the bounds of pages, none where the page is -1."""
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
        # The last bound may be less than 8 bytes before the end; what is read past its end is masked.
        positions = np.minimum(offsets[bounded, None] + place, len(side.values) - 1)
        raw[bounded] = np.where(place < lengths[bounded, None], side.values[positions], 0)
    is_whole = (lengths > 0) & (lengths <= WORD_BYTES) if width is None else lengths == width
    return PageSideBounds(
        raw=raw.view("<u8")[:, 0], inlined=is_whole, offsets=offsets, lengths=lengths, values=side.values
    )


class Segments(Struct, frozen=True, kw_only=True, eq=False):
    """Runs of rows between page borders, in order; every array has shape ``(segments,)``. None is empty."""

    row_groups: IntArray
    """Number of the row group of each."""
    starts: IntArray
    """First row, counted in the row group."""
    stops: IntArray
    """One past the last row."""


class PageStatistics:
    """The statistics of segments: what their pages and their row groups prove.

    Args:
        predicate: The predicate; the pages of its columns define the segments.
        sidecar: The sidecar of the partition.
        places: Sidecar index of each field of the predicate by its index in the table; None if the partition was
            written without the column.
        pages: The pages of the Parquet file.
        row_groups: Numbers of the row groups in question, ascending.
        by_row_group: Statistics of every row group of the sidecar. They decide if no page is known, a page has no
            bound, or a column is missing; they also answer for bloom filters.
    """

    def __init__(  # noqa: PLR0913 - what a partition consists of
        self,
        predicate: BoundPredicate,
        *,
        sidecar: Sidecar,
        places: Mapping[int, int | None],
        pages: PartitionPages,
        row_groups: IntArray,
        by_row_group: StatisticsSource,
    ) -> None:
        if (pages.row_group_count, pages.column_count) != (sidecar.row_group_count, sidecar.column_count):
            raise InternalError("the pages are those of another file than the sidecar describes")
        self._sidecar = sidecar
        self._places = places
        self._pages = pages
        self._row_groups = row_groups[sidecar.row_counts[row_groups] > 0]
        self._row_counts = sidecar.row_counts[self._row_groups]
        self._by_row_group = by_row_group
        self._bounds: dict[int, Bounds | None] = {}
        # Rows are counted through all row groups in question, as if these were contiguous.
        self._first_rows = np.cumsum(self._row_counts) - self._row_counts
        in_partition = {place for field in fields_of(predicate) if (place := places.get(field.index)) is not None}
        self._listed = {column: self._list_pages(column) for column in in_partition}
        borders = [self._first_rows[listed.chunk] + listed.first_rows for listed in self._listed.values()]
        starts = distinct_values(np.concatenate([self._first_rows, *borders]))
        chunk = np.searchsorted(self._first_rows, starts, side="right") - 1
        stops = np.append(starts[1:], self._row_counts.sum())[: len(starts)]
        self._starts, self._chunk = starts, chunk
        self.segments = Segments(
            row_groups=self._row_groups[chunk],
            starts=starts - self._first_rows[chunk],
            stops=stops - self._first_rows[chunk],
        )

    def _list_pages(self, column: int) -> ChunkPages:
        chunks = self._row_groups * self._pages.column_count + column
        return pages_of_chunks(self._pages, chunks, self._row_counts)

    @property
    def may_hold_rows(self) -> BoolArray:
        """True everywhere: no segment is empty."""
        return np.ones(len(self._starts), np.bool_)

    def pages_of(self, field: BoundField) -> tuple[BoolArray, IntArray]:
        """Return the pages of a predicate's field in the row groups in question, and the segments' places in them."""
        listed = self._listed_pages(field)
        if listed is None:
            return np.zeros(0, np.bool_), np.zeros(0, np.int64)
        return listed.is_known, self._page_of_segments(listed)

    def bounds(self, field: BoundField) -> Bounds | None:
        """Return what pages and chunks prove about a field, segment by segment."""
        if field.index not in self._bounds:
            self._bounds[field.index] = self._find_bounds(field)
        return self._bounds[field.index]

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """See :class:`StatisticsSource`: what is known of a row group holds for all its segments."""
        may_hold = self._by_row_group.may_hold_any_of(field, values)
        return None if may_hold is None else may_hold[self.segments.row_groups]

    def _find_bounds(self, field: BoundField) -> Bounds | None:
        of_chunks = self._by_row_group.bounds(field)
        whole = None if of_chunks is None else _taken(of_chunks, self.segments.row_groups)
        listed = self._listed_pages(field)
        of_pages = None if listed is None or not listed.is_known.any() else self._page_bounds(field, listed)
        return whole if of_pages is None else of_pages if whole is None else _refined(whole, of_pages)

    def _page_bounds(self, field: BoundField, listed: ChunkPages) -> Bounds | None:
        column = self._places[field.index]
        if column is None:
            raise InternalError("a column that the partition does not have has no pages")
        descriptor = self._sidecar.column(column)
        try:
            column_type = believed_type(self._sidecar, column)
        except UnsupportedError:
            return None
        row_groups = self._row_groups[listed.chunk]
        stored = page_column(self._pages, listed, self._sidecar.chunks(column), row_groups, descriptor)
        bounds = chunk_bounds(stored, listed.row_counts, descriptor, column_type)
        converted = bounds_after_type_change(bounds, column_type, field.type, has_nulls=descriptor.max_def_level > 0)
        if converted is None:
            return None
        return _taken(converted, self._page_of_segments(listed))

    def _listed_pages(self, field: BoundField) -> ChunkPages | None:
        column = self._places.get(field.index)
        return None if column is None else self._listed[column]

    def _page_of_segments(self, listed: ChunkPages) -> IntArray:
        # Of pages that begin at the same row, all but the last are empty.
        begins = self._first_rows[listed.chunk] + listed.first_rows
        return np.searchsorted(begins, self._starts, side="right") - 1


def _taken(bounds: Bounds, units: IntArray) -> Bounds:
    """Repeat the bounds of each unit for every segment inside it."""
    return replace(
        bounds,
        lower=_taken_side(bounds.lower, units),
        upper=_taken_side(bounds.upper, units),
        may_hold_values=bounds.may_hold_values[units],
        may_hold_nulls=bounds.may_hold_nulls[units],
    )


def _taken_side(side: Side | None, units: IntArray) -> Side | None:
    match side:
        case NumericSide(known, numbers):
            return NumericSide(known[units], numbers[units])
        case ByteSide(known, prefixes, lengths, bytes_at):
            return ByteSide(
                known[units], prefixes[units], lengths[units], lambda segment: bytes_at(int(units[segment]))
            )
        case None:
            return None


def _refined(whole: Bounds, of_pages: Bounds) -> Bounds:
    """Combine two correct sources of bounds for the same segments."""
    return Bounds(
        lower=_refined_side(whole.lower, of_pages.lower),
        upper=_refined_side(whole.upper, of_pages.upper),
        may_hold_values=whole.may_hold_values & of_pages.may_hold_values,
        may_hold_nulls=whole.may_hold_nulls & of_pages.may_hold_nulls,
        may_hold_nan=whole.may_hold_nan and of_pages.may_hold_nan,
    )


def _refined_side(whole: Side | None, of_pages: Side | None) -> Side | None:
    """Use the bound of the page if it has one."""
    match whole, of_pages:
        case NumericSide(), NumericSide():
            numbers = np.where(of_pages.known, of_pages.numbers, whole.numbers)
            return NumericSide(of_pages.known | whole.known, numbers)
        case ByteSide(), ByteSide():
            of_page = of_pages.known
            return ByteSide(
                of_page | whole.known,
                np.where(of_page, of_pages.prefixes, whole.prefixes),
                np.where(of_page, of_pages.lengths, whole.lengths),
                lambda segment: (of_pages if of_page[segment] else whole).bytes_at(segment),
            )
    return whole if of_pages is None else of_pages


class PagePruneReport(Struct, frozen=True, kw_only=True):
    """What pruning by pages left, for explain."""

    rows: int
    """Rows in the considered row groups."""
    rows_left: int
    """Rows that may match."""
    pages: int
    """Known pages, in these row groups, of the columns of the predicate."""
    pages_left: int
    """Known pages with a row that may match."""


class PagesSelected(Struct, frozen=True, kw_only=True, eq=False):
    """What pages left of the row groups of one partition."""

    row_groups: IntArray
    """Numbers of the considered row groups that have rows, ascending."""
    selections: tuple[RowSelection, ...]
    """For each of them, the rows that may match, possibly none."""
    all_rows_match: BoolArray
    """For each, whether all selected rows certainly match, so that no filter is needed."""
    emptied: IntArray
    """Numbers of the row groups that lost all their rows."""
    report: PagePruneReport


def prune_pages(  # noqa: PLR0913 - what a partition consists of
    predicate: BoundPredicate,
    *,
    sidecar: Sidecar,
    places: Mapping[int, int | None],
    pages: PartitionPages,
    row_groups: IntArray,
    by_row_group: StatisticsSource,
) -> PagesSelected:
    """Select the rows of row groups that may match."""
    statistics = PageStatistics(
        predicate, sidecar=sidecar, places=places, pages=pages, row_groups=row_groups, by_row_group=by_row_group
    )
    segments = statistics.segments
    verdict, _ = prune(predicate, statistics, len(segments.starts))
    with_rows = row_groups[sidecar.row_counts[row_groups] > 0]
    selections = _selections(segments, verdict.survives, with_rows)
    row_counts = np.array([selection.row_count for selection in selections], dtype=np.int64)
    doubtful = segments.row_groups[verdict.survives & ~verdict.all_rows_match]
    return PagesSelected(
        row_groups=with_rows,
        selections=selections,
        all_rows_match=~np.isin(with_rows, doubtful),
        emptied=with_rows[row_counts == 0],
        report=_report(predicate, statistics, verdict.survives),
    )


def _selections(segments: Segments, kept: BoolArray, row_groups: IntArray) -> tuple[RowSelection, ...]:
    """Join the surviving segments to the ranges of each row group."""
    owners = np.searchsorted(row_groups, segments.row_groups[kept])
    return selections_of(owners, segments.starts[kept], segments.stops[kept], len(row_groups))


def _report(predicate: BoundPredicate, statistics: PageStatistics, survives: BoolArray) -> PagePruneReport:
    segments = statistics.segments
    segment_rows = segments.stops - segments.starts
    pages, pages_left = _count_pages(predicate, statistics, survives)
    return PagePruneReport(
        rows=int(segment_rows.sum()), rows_left=int(segment_rows[survives].sum()), pages=pages, pages_left=pages_left
    )


def _count_pages(predicate: BoundPredicate, statistics: PageStatistics, survives: BoolArray) -> tuple[int, int]:
    """Count the known pages of the predicate's columns, and those of them with a surviving segment."""
    total = left = 0
    for field in fields_of(predicate):
        is_known, page_of_segment = statistics.pages_of(field)
        if not is_known.any():
            continue
        with_survivor = np.zeros_like(is_known)
        with_survivor[page_of_segment[survives]] = True
        total += int(np.count_nonzero(is_known))
        left += int(np.count_nonzero(is_known & with_survivor))
    return total, left
