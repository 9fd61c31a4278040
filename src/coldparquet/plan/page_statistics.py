"""What page indexes prove: the statistics of runs of rows that no page of the predicate's columns crosses.

The pages of different columns begin at different rows. Cut at every page border of every column of the predicate, the
rows of all row groups fall into segments; each lies in one page per column, so it has one bound per column. Segments are
units of pruning as row groups are, and trees of AND, OR and NOT combine for them in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.distinct_values import distinct_values
from coldparquet.plan.bounds import Bounds, ByteSide, NumericSide
from coldparquet.plan.chunk_pages import pages_of_chunks
from coldparquet.plan.converted_statistics import bounds_after_type_change
from coldparquet.plan.page_bounds import page_column
from coldparquet.plan.statistics import believed_type, chunk_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray, Side
    from coldparquet.plan.chunk_pages import ChunkPages
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.statistics import StatisticsSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Runs of rows between page borders, in order; every array has shape ``(segments,)``. None is empty."""

    row_groups: IntArray
    """Number of the row group of each."""
    starts: IntArray
    """First row, counted in the row group."""
    stops: IntArray
    """One past the last row."""


class PageStatistics:
    """The statistics of segments: what their pages prove, and what their row groups do.

    Args:
        predicate: What is asked; its columns say where segments begin.
        sidecar: What is known about the partition.
        places: Sidecar index of each field of the predicate by its index in the table; None where the partition was
            written without the column.
        pages: The pages of the Parquet file.
        row_groups: Numbers of the row groups in question, ascending.
        by_row_group: What is known about every row group of the sidecar. It decides where no page is known, a page has
            no bound, or a column is missing, and it answers for bloom filters.
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
        # Rows are counted through all row groups in question, as if they followed one another.
        self._first_rows = np.cumsum(self._row_counts) - self._row_counts
        in_partition = {place for field in predicate.fields() if (place := places.get(field.index)) is not None}
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
        """Return the pages of a field of the predicate in the row groups in question, and where the segments lie.

        Returns:
            Whether each page is known, or stands for a chunk of unknown pages, shape ``(pages,)``, none of them where the
            partition has no such column; and for each segment its page, shape ``(segments,)``, or none of them.
        """
        listed = self._listed_pages(field)
        if listed is None:
            return np.zeros(0, np.bool_), np.zeros(0, np.int64)
        return listed.is_known, self._page_of_segments(listed)

    def bounds(self, field: BoundField) -> Bounds | None:
        """Return what pages and chunks prove about a field, segment by segment.

        Raises:
            FormatError: A count in the sidecar exceeds 2**63 - 1.
        """
        if field.index not in self._bounds:
            self._bounds[field.index] = self._find_bounds(field)
        return self._bounds[field.index]

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """See :class:`StatisticsSource`: what is known of a row group holds for each of its segments."""
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
        # Of pages that begin at the same row all but the last are empty.
        begins = self._first_rows[listed.chunk] + listed.first_rows
        return np.searchsorted(begins, self._starts, side="right") - 1


def _taken(bounds: Bounds, units: IntArray) -> Bounds:
    """Repeat the bounds of each unit for every segment that lies in it."""
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
    """Combine what is known of the same segments from two sources that are both right."""
    return Bounds(
        lower=_refined_side(whole.lower, of_pages.lower),
        upper=_refined_side(whole.upper, of_pages.upper),
        may_hold_values=whole.may_hold_values & of_pages.may_hold_values,
        may_hold_nulls=whole.may_hold_nulls & of_pages.may_hold_nulls,
        may_hold_nan=whole.may_hold_nan and of_pages.may_hold_nan,
    )


def _refined_side(whole: Side | None, of_pages: Side | None) -> Side | None:
    """Take the bound of the page where it has one."""
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
