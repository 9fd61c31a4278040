"""The pages of some chunks as flat arrays, with the rows that each holds. A chunk of unknown pages counts as one page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.plan.bounds import BoolArray, IntArray

UNKNOWN_PAGE = -1
"""Stands for the one page of a chunk of which no pages are known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkPages:
    """Pages in the order of their chunks; every array has shape ``(pages,)``."""

    chunk: IntArray
    """Position of the page's chunk among the chunks that were asked for; ascending."""
    page: IntArray
    """Index in the arrays of ``PartitionPages``, or ``UNKNOWN_PAGE``."""
    first_rows: IntArray
    """First row of each page, counted in its row group; ascending within a chunk."""
    stop_rows: IntArray
    """One past its last row."""

    @property
    def is_known(self) -> BoolArray:
        """False where the page stands for a whole chunk of unknown pages."""
        return np.not_equal(self.page, UNKNOWN_PAGE)

    @property
    def row_counts(self) -> IntArray:
        """Rows of each page."""
        return self.stop_rows - self.first_rows


def pages_of_chunks(pages: PartitionPages, chunks: IntArray, row_counts: IntArray) -> ChunkPages:
    """List the pages of chunks.

    Args:
        pages: All pages of a file.
        chunks: Numbers of the chunks, ``row_group * column_count + column``, in any order.
        row_counts: Rows of the row group of each.
    """
    first_page = pages.first_page[chunks]
    page_counts = pages.first_page[chunks + 1] - first_page
    listed_counts = np.maximum(page_counts, 1)
    listed_stops = np.cumsum(listed_counts)
    chunk = np.repeat(np.arange(len(chunks)), listed_counts)
    position = np.arange(len(chunk)) - (listed_stops - listed_counts)[chunk]
    is_known = page_counts[chunk] > 0
    page = np.where(is_known, first_page[chunk] + position, UNKNOWN_PAGE)
    first_rows = np.zeros(len(chunk), np.int64)
    first_rows[is_known] = pages.first_rows[page[is_known]]
    stop_rows = np.append(first_rows[1:], 0)[: len(chunk)]
    stop_rows[listed_stops - 1] = row_counts
    return ChunkPages(chunk=chunk, page=page, first_rows=first_rows, stop_rows=stop_rows)
