"""Leaving out the row groups and rows of a partition that lie outside of the range of rows that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.page_reads import read_pages
from coldparquet.plan.row_selection import RowSelection

if TYPE_CHECKING:
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import RowGroupRead


def within_window(
    reads: tuple[RowGroupRead, ...],
    window: tuple[int, int],
    sidecar: Sidecar,
    *,
    pages: PartitionPages | None,
    least_saving_bytes: int,
) -> tuple[RowGroupRead, ...]:
    """Cut the reads of a partition to some of its rows.

    Args:
        reads: Whole row groups, ascending.
        window: The rows ``[first, stop)`` of the partition that are asked for.
        sidecar: That of the partition.
        pages: Its pages; without them a row group that is cut is fetched whole.
        least_saving_bytes: Where pages would save less, chunks stay whole.
    """
    first_row, stop_row = window
    begins = np.cumsum(sidecar.row_counts) - sidecar.row_counts
    cut = []
    for read in reads:
        begin = int(begins[read.row_group])
        start, stop = max(first_row - begin, 0), min(stop_row - begin, read.row_group_rows)
        if start < stop:
            selection = RowSelection.of_range(start, stop)
            cut.append(read_pages(read, selection, pages=pages, least_saving_bytes=least_saving_bytes))
    return tuple(cut)
