"""Cut the read of a large row group into runs of rows that fit memory one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from coldparquet.errors import InternalError
from coldparquet.format.distinct_values import distinct_values
from coldparquet.plan.chunk_pages import pages_of_chunks
from coldparquet.plan.page_reads import read_pages, rows_of
from coldparquet.plan.row_selection import RowSelection

if TYPE_CHECKING:
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.read_plan import RowGroupRead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PageCosts:
    """What the fetched pages of a read take, compressed and decoded; arrays of shape ``(pages,)``."""

    column: IntArray
    """Position of the page's column in the read."""
    first_rows: IntArray
    stop_rows: IntArray
    cost_bytes: npt.NDArray[np.float64]
    each_run_bytes: float
    """What every run takes anew: dictionaries, and whole chunks of unknown pages."""

    def up_to(self, borders: IntArray, rows: IntArray, side: Literal["left", "right"]) -> npt.NDArray[np.float64]:
        """Sum the cost of the pages whose row, their first or their last one, is below each border (``right``: or at it)."""
        order = np.argsort(rows, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(self.cost_bytes[order])])
        return sums[np.searchsorted(rows[order], borders, side=side)]


def split_into_runs(
    read: RowGroupRead, *, pages: PartitionPages | None, row_bytes: npt.NDArray[np.float64], max_bytes: int
) -> tuple[RowGroupRead, ...]:
    """Split a read whose bytes, as fetched and decoded, exceed a limit.

    Cuts lie where pages of the widest column begin, so that few bytes are fetched twice. A run may still exceed the limit:
    by one such page, and by what every run needs, which is dictionaries and columns of unknown pages.

    Args:
        read: A read without deferred columns: it is split first.
        pages: The pages of the Parquet file; None if they are not known, so that the read stays whole.
        row_bytes: Estimated bytes of one decoded row of each fetched column, shape ``(columns,)``.
        max_bytes: What one run may take: its pieces, and the rows of its pages decoded.

    Returns:
        Reads of rows in ascending order, together exactly the rows of the read.

    Raises:
        InternalError: The read has deferred columns.
    """
    if read.deferred is not None:
        raise InternalError("a read is split before columns of it are deferred")
    most_bytes = (read.piece_stops - read.piece_starts).sum() + read.row_group_rows * row_bytes.sum()
    if pages is None or not read.columns or most_bytes <= max_bytes:
        return (read,)
    selection = rows_of(read)
    borders = _borders(_page_costs(read, pages, row_bytes), selection, max_bytes)
    parts = [selection.intersect(RowSelection.of_range(start, stop)) for start, stop in pairwise(borders)]
    return tuple(read_pages(read, part, pages=pages, least_saving_bytes=0) for part in parts if part.row_count)


def _page_costs(read: RowGroupRead, pages: PartitionPages, row_bytes: npt.NDArray[np.float64]) -> _PageCosts:
    chunks = read.row_group * pages.column_count + np.array(read.columns, dtype=np.int64)
    listed = pages_of_chunks(pages, chunks, np.full(len(chunks), read.row_group_rows))
    is_known = listed.is_known
    is_fetched = rows_of(read).overlaps(listed.first_rows, listed.stop_rows) & is_known
    page, column = listed.page[is_fetched], listed.chunk[is_fetched]
    piece_bytes = np.bincount(read.piece_columns, read.piece_stops - read.piece_starts, minlength=len(chunks))
    whole = listed.chunk[~is_known]
    dictionary_bytes = pages.dictionary_stops[chunks] - pages.dictionary_starts[chunks]
    return _PageCosts(
        column=column,
        first_rows=listed.first_rows[is_fetched],
        stop_rows=listed.stop_rows[is_fetched],
        cost_bytes=pages.stops[page] - pages.starts[page] + listed.row_counts[is_fetched] * row_bytes[column],
        each_run_bytes=float(
            dictionary_bytes.sum() + (piece_bytes[whole] + read.row_group_rows * row_bytes[whole]).sum()
        ),
    )


def _borders(costs: _PageCosts, selection: RowSelection, max_bytes: int) -> list[int]:
    """Return the rows at which runs begin, and the end of the last one."""
    begin, end = int(selection.starts[0]), int(selection.stops[-1])
    if not len(costs.column) or costs.each_run_bytes + costs.cost_bytes.sum() <= max_bytes:
        return [begin, end]
    # A run brings at least as much that is new as it takes anew: smaller ones would cost more network than they save memory.
    budget_bytes = max(max_bytes - costs.each_run_bytes, costs.each_run_bytes)
    widest = np.argmax(np.bincount(costs.column, costs.cost_bytes))
    inner = costs.first_rows[(costs.column == widest) & (costs.first_rows > begin) & (costs.first_rows < end)]
    borders = distinct_values(np.concatenate([[begin, end], inner]))
    # A run takes the pages that begin before its end, without those that end before its start.
    begun = costs.up_to(borders, costs.first_rows, "left")
    ended = costs.up_to(borders, costs.stop_rows, "right")
    chosen = [0]
    while chosen[-1] < len(borders) - 1:
        furthest = int(np.searchsorted(begun, ended[chosen[-1]] + budget_bytes, side="right")) - 1
        chosen.append(max(furthest, chosen[-1] + 1))
    return [int(border) for border in borders[chosen]]
