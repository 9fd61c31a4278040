"""Checking what is said of the pages of a file, whoever says it: all chunks in one step, bad ones are left out.

A page index is optional, so one that lies must cost no more than its use: its chunk counts as unknown, and is then read
as a whole. What cannot be seen here, such as bounds that are merely wrong, nobody can see without decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.distinct_values import distinct_values
from coldparquet.format.partition_pages import PageBounds, PagesFound, PartitionPages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt

    from coldparquet.format.chunk_places import ChunkPlaces


@dataclass(slots=True, kw_only=True)
class BoundsList:
    """Bounds of one side, collected page by page."""

    lengths: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def add(self, bounds: Iterable[bytes | None]) -> None:
        """Add the bounds of consecutive pages; None where there is none."""
        for bound in bounds:
            self.lengths.append(-1 if bound is None else len(bound))
            self.values.append(bound or b"")

    def as_arrays(self) -> PageBounds:
        """Return them all."""
        lengths = np.array(self.lengths, np.int64)
        stops = np.cumsum(np.maximum(lengths, 0))
        return PageBounds(
            offsets=stops - np.maximum(lengths, 0),
            lengths=lengths,
            values=np.frombuffer(b"".join(self.values), np.uint8),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimedPages:
    """Data pages of some chunks as somebody describes them: nothing is checked yet, but all numbers fit 64 bits."""

    chunks: npt.NDArray[np.int64]
    """Chunk of each page, ``row_group * column_count + column``, ascending, shape ``(pages,)``; those of a chunk in order."""
    starts: npt.NDArray[np.int64]
    """First byte of each page in the file."""
    lengths: npt.NDArray[np.int64]
    """Its bytes, header included."""
    first_rows: npt.NDArray[np.int64]
    """First row of each page, counted in its row group."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each page; -1 where unknown."""
    lower: PageBounds
    upper: PageBounds


def first_rows_of(
    chunks: npt.NDArray[np.int64], page_rows: npt.NDArray[np.int64], places: ChunkPlaces
) -> npt.NDArray[np.int64]:
    """Return the first row of each page from the rows of all pages.

    Args:
        chunks: Chunk of each page, ascending.
        page_rows: Rows of each page; their sum must fit 64 bits.
        places: What the sidecar says of the chunks.

    Returns:
        Row numbers within the row group; -1 in chunks whose pages do not have as many rows as the row group.
    """
    stops = np.cumsum(page_rows)
    page_counts = np.bincount(chunks, minlength=places.chunk_count)
    before = np.concatenate([np.zeros(1, np.int64), stops])[np.cumsum(page_counts) - page_counts]
    totals = np.concatenate([np.zeros(1, np.int64), stops])[np.cumsum(page_counts)] - before
    adds_up = totals == np.repeat(places.row_counts, places.column_count)
    return np.where(adds_up[chunks], stops - page_rows - before[chunks], -1)


_NOT_IN_PLACE = "its pages do not follow one another up to the end of the chunk"
_ROWS_NOT_ASCENDING = "its pages do not share out the rows of the row group"
_NULLS_DO_NOT_ADD_UP = "its counts of NULLs do not add up"


def check_pages(
    claimed: ClaimedPages, places: ChunkPlaces, *, source: str, problems: Mapping[int, str] | None = None
) -> PagesFound:
    """Leave out the chunks whose pages cannot be as they are described.

    Args:
        claimed: The pages.
        places: What the sidecar says of the chunks.
        source: Who describes them, for the notes: ``page index``.
        problems: Chunks that were left out already, and why.

    Returns:
        The pages of all other chunks, and a note for each reason; no pages if none are left.
    """
    is_last = np.append(claimed.chunks[1:] != claimed.chunks[:-1], np.ones(min(len(claimed.chunks), 1), np.bool_))
    is_bad = np.zeros(places.chunk_count, np.bool_)
    reasons: dict[int, str] = dict(problems or {})
    page_rows, in_order = _rows_of_pages(claimed, places, is_last)
    for is_right, reason in (
        (_in_place(claimed, places, is_last), _NOT_IN_PLACE),
        (in_order, _ROWS_NOT_ASCENDING),
        (_nulls_fit(claimed, places, page_rows), _NULLS_DO_NOT_ADD_UP),
    ):
        for chunk in distinct_values(claimed.chunks[~is_right]).tolist():
            is_bad[chunk] = True
            reasons.setdefault(chunk, reason)
    kept = ~is_bad[claimed.chunks]
    notes = tuple(_notes(reasons, places, source))
    if not kept.any():
        return PagesFound(pages=None, notes=notes)
    return PagesFound(pages=_assemble(claimed, places, kept), notes=notes)


def _in_place(claimed: ClaimedPages, places: ChunkPlaces, is_last: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which pages lie inside their chunk and end where the next one begins, the last one where the chunk ends."""
    starts, lengths = claimed.starts, claimed.lengths
    chunk_stops = places.stops[claimed.chunks]
    inside = (starts >= places.starts[claimed.chunks]) & (starts < chunk_stops) & (lengths > 0)
    inside &= lengths <= chunk_stops - starts
    stops = np.where(inside, starts, 0) + np.where(inside, lengths, 0)
    inside &= stops == np.where(is_last, chunk_stops, np.roll(starts, -1))
    return inside


def _rows_of_pages(
    claimed: ClaimedPages, places: ChunkPlaces, is_last: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the number of rows of each page, and whether it holds any, and begins at row 0 if it is its chunk's first."""
    row_counts = places.row_counts[claimed.chunks // max(places.column_count, 1)]
    first_rows = claimed.first_rows
    inside = (first_rows >= 0) & (first_rows < row_counts)
    page_rows = np.where(is_last, row_counts, np.roll(first_rows, -1)) - first_rows
    is_first = np.roll(is_last, 1)
    return page_rows, inside & (page_rows > 0) & (~is_first | (first_rows == 0))


def _nulls_fit(claimed: ClaimedPages, places: ChunkPlaces, page_rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which pages have no more NULLs than rows, in chunks whose NULLs they share out; lists count otherwise."""
    if not len(claimed.chunks):
        return np.ones(0, np.bool_)
    is_known = (claimed.null_counts >= 0) & (claimed.null_counts <= page_rows)
    first_pages = np.flatnonzero(np.append(True, claimed.chunks[1:] != claimed.chunks[:-1]))
    chunk_nulls = places.null_counts[claimed.chunks[first_pages]]
    adds_up = (chunk_nulls < 0) | (np.add.reduceat(claimed.null_counts, first_pages) == chunk_nulls)
    all_known = np.logical_and.reduceat(is_known, first_pages)
    all_unknown = np.logical_and.reduceat(claimed.null_counts == -1, first_pages)
    fits = np.repeat((all_known & adds_up) | all_unknown, np.diff(np.append(first_pages, len(claimed.chunks))))
    return fits | ~places.is_flat[claimed.chunks % places.column_count]


def _assemble(claimed: ClaimedPages, places: ChunkPlaces, kept: npt.NDArray[np.bool_]) -> PartitionPages:
    chunks = claimed.chunks[kept]
    columns = chunks % places.column_count
    page_counts = np.bincount(chunks, minlength=places.chunk_count)
    first_page = np.concatenate([np.zeros(1, np.int64), np.cumsum(page_counts, dtype=np.int64)])
    starts = claimed.starts[kept]
    dictionary_stops = places.starts.copy()
    is_known = page_counts > 0
    dictionary_stops[is_known] = starts[first_page[:-1][is_known]]
    return PartitionPages(
        row_group_count=places.row_group_count,
        column_count=places.column_count,
        first_page=first_page,
        first_rows=claimed.first_rows[kept],
        starts=starts,
        stops=starts + claimed.lengths[kept],
        dictionary_starts=places.starts,
        dictionary_stops=dictionary_stops,
        null_counts=np.where(places.is_flat[columns], claimed.null_counts[kept], -1),
        lower=_usable_bounds(claimed.lower, places, columns, kept),
        upper=_usable_bounds(claimed.upper, places, columns, kept),
    )


def _usable_bounds(
    bounds: PageBounds, places: ChunkPlaces, columns: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]
) -> PageBounds:
    """Leave out bounds of a width that no value of the column has."""
    lengths, widths = bounds.lengths[kept], places.bound_bytes[columns]
    is_usable = places.has_bounds[columns] & np.where(widths >= 0, lengths == widths, lengths >= 0)
    is_usable &= (lengths > 0) | places.may_be_empty[columns]
    return replace(bounds, offsets=bounds.offsets[kept], lengths=np.where(is_usable, lengths, -1))


def _notes(reasons: Mapping[int, str], places: ChunkPlaces, source: str) -> Iterator[str]:
    by_reason: dict[str, list[int]] = {}
    for chunk in sorted(reasons):
        by_reason.setdefault(reasons[chunk], []).append(chunk)
    for reason, chunks in by_reason.items():
        others = f" and {len(chunks) - 1:,} more column chunks" if len(chunks) > 1 else ""
        yield f"the {source} of {places.describe(chunks[0])}{others} left aside: {reason}"
