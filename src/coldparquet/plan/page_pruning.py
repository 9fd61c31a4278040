"""Leave out the rows of pages that provably hold no matching row.

A row group is cut into the segments of :class:`PageStatistics`, and those that survive are its row selection: the
intersection, across columns with different page borders, of what each column's pages leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
class PagePruneReport:
    """What pruning by pages left, for explain."""

    rows: int
    """Rows in the row groups that were looked at."""
    rows_left: int
    """Those that may match."""
    pages: int
    """Known pages, in these row groups, of the columns of the predicate."""
    pages_left: int
    """Those with a row that may match."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagesSelected:
    """What pages left of the row groups of one partition."""

    row_groups: IntArray
    """Numbers of the row groups that were looked at, without those of no rows, ascending."""
    selections: tuple[RowSelection, ...]
    """For each of them the rows that may match, possibly none."""
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
    """Join the segments that are kept to the ranges of each row group."""
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
