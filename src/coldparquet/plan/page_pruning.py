"""Leave out the rows of pages that provably hold no matching row.

A row group is cut into the segments of :class:`PageStatistics`, and those that survive are its row selection: the
intersection, across columns with different page borders, of what each column's pages leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.bind import BoundAnd
from coldparquet.plan.page_statistics import PageStatistics
from coldparquet.plan.prune import prune
from coldparquet.plan.row_selection import selections_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.page_statistics import Segments
    from coldparquet.plan.row_selection import RowSelection
    from coldparquet.plan.statistics import StatisticsSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesDropped:
    """What one of the conditions joined by AND rules out on its own."""

    condition: str
    rows: int
    pages: int
    """Pages of the condition's own columns that hold no other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePruneReport:
    """How pruning by pages came about, for explain."""

    row_groups: int
    """Row groups that were looked at."""
    rows: int
    """Rows in them."""
    pages: int
    """Known pages, in them, of the columns of the predicate."""
    rows_left: int
    pages_left: int
    """Those with a row that may match."""
    dropped: tuple[PagesDropped, ...]
    """One per condition, in the order in which they were written; a row may be dropped by several."""

    def __str__(self) -> str:
        lines = [
            f"{one.condition} dropped {one.rows:,} of {self.rows:,} rows ({one.pages:,} pages)" for one in self.dropped
        ]
        return "\n".join([*lines, f"{self.rows_left:,} rows left, {self.pages_left:,} of {self.pages:,} pages"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagesSelected:
    """What pages left of the row groups of one partition."""

    row_groups: IntArray
    """Numbers of the row groups that were looked at, without those of no rows, ascending."""
    selections: tuple[RowSelection, ...]
    """For each of them the rows that may match, possibly none."""
    sure: tuple[RowSelection, ...]
    """For each of them the rows that certainly match; all of them are selected."""
    all_rows_match: BoolArray
    """Whether all selected rows of each certainly match, so that no filter has to run."""
    emptied: IntArray
    """Numbers of the row groups that lost all of their rows."""
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
    """Select the rows of row groups that may match.

    Args:
        predicate: Bound to the columns of the table.
        sidecar: What is known about the partition.
        places: Sidecar index of each field of the predicate by its index in the table; None where the partition was
            written without the column.
        pages: The pages of the Parquet file.
        row_groups: Numbers of the row groups that survived pruning by their own statistics, ascending.
        by_row_group: Those statistics, with bloom filters where they were asked.

    Raises:
        FormatError: A count in the sidecar exceeds 2**63 - 1.
    """
    statistics = PageStatistics(
        predicate, sidecar=sidecar, places=places, pages=pages, row_groups=row_groups, by_row_group=by_row_group
    )
    segments = statistics.segments
    verdict, _ = prune(predicate, statistics, len(segments.starts))
    with_rows = row_groups[sidecar.row_counts[row_groups] > 0]
    selections = _selections(segments, verdict.survives, with_rows)
    sure = _selections(segments, verdict.survives & verdict.all_rows_match, with_rows)
    row_counts = np.array([selection.row_count for selection in selections], dtype=np.int64)
    sure_counts = np.array([selection.row_count for selection in sure], dtype=np.int64)
    return PagesSelected(
        row_groups=with_rows,
        selections=selections,
        sure=sure,
        all_rows_match=row_counts == sure_counts,
        emptied=with_rows[row_counts == 0],
        report=_report(predicate, statistics, verdict.survives, row_group_count=len(with_rows)),
    )


def _selections(segments: Segments, kept: BoolArray, row_groups: IntArray) -> tuple[RowSelection, ...]:
    """Join the segments that are kept to the ranges of each row group."""
    owners = np.searchsorted(row_groups, segments.row_groups[kept])
    return selections_of(owners, segments.starts[kept], segments.stops[kept], len(row_groups))


def _report(
    predicate: BoundPredicate, statistics: PageStatistics, survives: BoolArray, *, row_group_count: int
) -> PagePruneReport:
    segments = statistics.segments
    segment_rows = segments.stops - segments.starts
    conditions = predicate.parts if isinstance(predicate, BoundAnd) else (predicate,)
    dropped = []
    for condition in conditions:
        alone, _ = prune(condition, statistics, len(segment_rows))
        condition_pages, condition_pages_left = _count_pages(condition, statistics, alone.survives)
        dropped.append(
            PagesDropped(
                condition=str(condition),
                rows=int(segment_rows[~alone.survives].sum()),
                pages=condition_pages - condition_pages_left,
            )
        )
    page_count, pages_left = _count_pages(predicate, statistics, survives)
    return PagePruneReport(
        row_groups=row_group_count,
        rows=int(segment_rows.sum()),
        pages=page_count,
        rows_left=int(segment_rows[survives].sum()),
        pages_left=pages_left,
        dropped=tuple(dropped),
    )


def _count_pages(predicate: BoundPredicate, statistics: PageStatistics, survives: BoolArray) -> tuple[int, int]:
    """Count the known pages of the predicate's columns, and those among them that hold a surviving segment."""
    total = left = 0
    for field in predicate.fields():
        is_known, page_of_segment = statistics.pages_of(field)
        if not is_known.any():
            continue
        with_survivor = np.zeros_like(is_known)
        with_survivor[page_of_segment[survives]] = True
        total += int(np.count_nonzero(is_known))
        left += int(np.count_nonzero(is_known & with_survivor))
    return total, left
