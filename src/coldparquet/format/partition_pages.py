"""The data pages of every column chunk of one Parquet file: where they lie, which rows they hold, what bounds them.

Flat arrays over all pages of all chunks, so that planning works on thousands of pages at once. They come from the page
index of the file itself or from a ``_pages`` file of ours, which was made by walking the page headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageBounds:
    """One side's bounds of every page, as the bytes that statistics hold."""

    offsets: npt.NDArray[np.int64]
    """Where the bytes of each bound begin in ``values``, shape ``(pages,)``."""
    lengths: npt.NDArray[np.int64]
    """Their number; -1 where there is no bound."""
    values: npt.NDArray[np.uint8]
    """The bytes of all bounds; bounds may be truncated, so that they need not be values of the page."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionPages:
    """Pages of one Parquet file, chunk by chunk.

    Chunk ``row_group * column_count + column`` has the pages ``[first_page[chunk], first_page[chunk + 1])``; a chunk of
    which nothing is known has none. Whoever makes one has checked it: within a chunk the rows begin at 0 and ascend to
    below the row count, and the pages lie inside the chunk, in order, without overlap, the dictionary page before them.
    """

    row_group_count: int
    column_count: int
    first_page: npt.NDArray[np.int64]
    """Shape ``(row_group_count * column_count + 1,)``."""
    first_rows: npt.NDArray[np.int64]
    """First row of each page, counted in its row group, shape ``(pages,)``; a page begins where a row does."""
    starts: npt.NDArray[np.int64]
    """First byte of each page, header included, in the Parquet file."""
    stops: npt.NDArray[np.int64]
    """One past its last byte."""
    dictionary_starts: npt.NDArray[np.int64]
    """First byte of each chunk's dictionary page, shape ``(row_group_count * column_count,)``."""
    dictionary_stops: npt.NDArray[np.int64]
    """One past its last byte; equal to the start where there is none."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each page, shape ``(pages,)``; -1 where unknown."""
    lower: PageBounds
    upper: PageBounds


def join_pages(preferred: PartitionPages, others: PartitionPages) -> PartitionPages:
    """Add the pages of chunks that are unknown in one description of a file from another description of it."""
    unknown = np.diff(preferred.first_page) == 0
    chunk_of_other = np.repeat(np.arange(len(unknown)), np.diff(others.first_page))
    added = np.flatnonzero(unknown[chunk_of_other])
    chunks = np.concatenate([np.repeat(np.arange(len(unknown)), np.diff(preferred.first_page)), chunk_of_other[added]])
    order = np.argsort(chunks, kind="stable")

    def both(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.concatenate([first, second[added]])[order]

    def both_bounds(first: PageBounds, second: PageBounds) -> PageBounds:
        return PageBounds(
            offsets=both(first.offsets, second.offsets + len(first.values)),
            lengths=both(first.lengths, second.lengths),
            values=np.concatenate([first.values, second.values]),
        )

    page_counts = np.bincount(chunks, minlength=len(unknown))
    return PartitionPages(
        row_group_count=preferred.row_group_count,
        column_count=preferred.column_count,
        first_page=np.concatenate([np.zeros(1, np.int64), np.cumsum(page_counts, dtype=np.int64)]),
        first_rows=both(preferred.first_rows, others.first_rows),
        starts=both(preferred.starts, others.starts),
        stops=both(preferred.stops, others.stops),
        dictionary_starts=np.where(unknown, others.dictionary_starts, preferred.dictionary_starts),
        dictionary_stops=np.where(unknown, others.dictionary_stops, preferred.dictionary_stops),
        null_counts=both(preferred.null_counts, others.null_counts),
        lower=both_bounds(preferred.lower, others.lower),
        upper=both_bounds(preferred.upper, others.upper),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagesFound:
    """What a search for the pages of a file brought."""

    pages: PartitionPages | None
    """None where nothing of any use was found."""
    notes: tuple[str, ...] = ()
    """What was left out, and why, one sentence each."""
    etag: str | None = None
    """Version of the Parquet object that they describe; None where that is not known."""
