"""Cuts the read of a row group to the pages with wanted rows, and into runs of rows that fit memory.

Each function takes a read, of whole chunks from ``prune_row_groups`` or already cut, and returns a smaller one. There
are cuts for pruned pages, for the first or last rows, for a run of rows that fits memory, and for deferred columns:
these wait until the predicate's columns show which rows remain.

Small row groups that are read whole are joined, so that a file of many is decoded in few steps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import InternalError
from coldparquet.format.types import distinct_values
from coldparquet.options import KIB
from coldparquet.plan.selection import RowSelection, selections_of
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coldparquet.format.pages import PartitionPages
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.model import Read


UNKNOWN_PAGE = -1
"""The page number of a chunk without known pages; it counts as a single page."""


class ChunkPages(Struct, frozen=True, kw_only=True, eq=False):
    """Pages in the order of their chunks; every array has shape ``(pages,)``."""

    chunk: IntArray
    """Position of the page's chunk among the requested chunks; ascending."""
    page: IntArray
    """Index in the arrays of ``PartitionPages``, or ``UNKNOWN_PAGE``."""
    first_rows: IntArray
    """First row of each page, counted in its row group; ascending within a chunk."""
    stop_rows: IntArray
    """One past its last row."""

    @property
    def is_known(self) -> BoolArray:
        """False for a page that represents a whole chunk of unknown pages."""
        return np.not_equal(self.page, UNKNOWN_PAGE)

    @property
    def row_counts(self) -> IntArray:
        """Rows of each page."""
        return self.stop_rows - self.first_rows


def pages_of_chunks(pages: PartitionPages, chunks: IntArray, row_counts: IntArray) -> ChunkPages:
    """List the pages of chunks."""
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


class _Pieces(Struct, frozen=True, kw_only=True, eq=False):
    """Pieces of some columns of one read, in the order of ``Read``."""

    columns: IntArray
    starts: IntArray
    stops: IntArray

    @property
    def byte_count(self) -> int:
        return int((self.stops - self.starts).sum())


def rows_of(read: Read) -> RowSelection:
    """Return the rows of a read, even if it reads the whole row group."""
    return RowSelection.of_range(0, read.row_group_rows) if read.selection is None else read.selection


def read_pages(read: Read, selection: RowSelection, *, least_saving_bytes: int) -> Read:
    """Read fewer rows of a row group, and only the pages that hold some of them.

    Each column keeps its dictionary page and the pages that overlap the selection. A column of unknown pages, or whose
    pages all overlap, is unchanged. If cutting one column is worth it, cutting the others costs nothing: requests read
    over small gaps in any case. So the total saving of all columns decides. Deferred columns are cut in the same way.
    """
    if selection.row_count == 0:
        raise InternalError(f"a read of no rows of row group {read.row_group}")
    if selection == rows_of(read):
        return read
    deferred = read.deferred
    if deferred is not None:
        deferred = read_pages(deferred, selection, least_saving_bytes=least_saving_bytes)
    selected, pages = replace(read, selection=selection, deferred=deferred), read.data.pages
    if pages is None or not read.columns:
        return selected
    listed = _list_pages(read, pages)
    kept = selection.overlaps(listed.first_rows, listed.stop_rows)
    loses_pages = np.zeros(len(read.columns), dtype=bool)
    loses_pages[listed.chunk[~kept & (listed.row_counts > 0)]] = True
    kept &= loses_pages[listed.chunk]
    cut = _pieces_of_pages(read, pages, listed, kept)
    stays = ~loses_pages[read.piece_columns]
    bytes_left = cut.byte_count + int((read.piece_stops - read.piece_starts)[stays].sum())
    bytes_before = int((read.piece_stops - read.piece_starts).sum())
    if not loses_pages.any() or bytes_before - bytes_left < least_saving_bytes:
        return selected
    pieces = _sorted(
        np.concatenate([read.piece_columns[stays], cut.columns]),
        np.concatenate([read.piece_starts[stays], cut.starts]),
        np.concatenate([read.piece_stops[stays], cut.stops]),
    )
    return replace(
        selected,
        column_rows=_column_rows(read, listed, kept, loses_pages),
        piece_columns=pieces.columns,
        piece_starts=pieces.starts,
        piece_stops=pieces.stops,
    )


def first_rows(read: Read, count: int, *, least_saving_bytes: int) -> Read:
    """Read exactly the first ``count`` rows of a read, or all if there are fewer; see :func:`read_pages`."""
    return read_pages(read, rows_of(read).first(count), least_saving_bytes=least_saving_bytes)


def last_rows(read: Read, count: int, *, least_saving_bytes: int) -> Read:
    """Read exactly the last ``count`` rows of a read, or all if there are fewer; see :func:`read_pages`."""
    return read_pages(read, rows_of(read).last(count), least_saving_bytes=least_saving_bytes)


def without_filter(read: Read, output_columns: Collection[int]) -> Read:
    """Drop the columns that only the predicate needs, from a read whose selected rows all match."""
    output_columns = read.data.leaves_of(output_columns)
    kept = np.isin(np.array(read.columns, dtype=np.int64), list(output_columns))
    made = [
        (column, value)
        for column, value in zip(read.made_columns, read.made_values, strict=True)
        if column in output_columns
    ]
    return replace(
        _with_columns(read, kept),
        made_columns=tuple(column for column, _ in made),
        made_values=tuple(value for _, value in made),
        all_rows_match=True,
    )


def defer_columns(read: Read, first_columns: Collection[int]) -> Read:
    """Defer all columns but the first ones until these show which rows remain."""
    is_first = np.isin(np.array(read.columns, dtype=np.int64), list(read.data.leaves_of(first_columns)))
    if is_first.all():
        return read
    deferred = replace(_with_columns(read, ~is_first), made_columns=(), made_values=())
    return replace(_with_columns(read, is_first), deferred=deferred)


def narrow_read(read: Read, surviving: RowSelection, *, least_saving_bytes: int) -> Read:
    """Return the read of the deferred columns, given the rows that satisfy the predicate."""
    if read.deferred is None:
        raise InternalError(f"no column of row group {read.row_group} was deferred")
    narrowed = read_pages(read.deferred, surviving, least_saving_bytes=least_saving_bytes)
    return replace(narrowed, all_rows_match=True)


def _list_pages(read: Read, pages: PartitionPages) -> ChunkPages:
    """List the pages of every column of a read."""
    chunks = _chunk_numbers(read, pages)
    return pages_of_chunks(pages, chunks, np.full(len(chunks), read.row_group_rows))


def _chunk_numbers(read: Read, pages: PartitionPages) -> IntArray:
    """Return the number of each column's chunk among those whose pages are known."""
    columns = np.array(read.columns, dtype=np.int64)
    return (read.row_group - pages.first_row_group) * pages.column_count + columns


def _pieces_of_pages(read: Read, pages: PartitionPages, listed: ChunkPages, kept: BoolArray) -> _Pieces:
    """Join the kept pages, and the dictionary pages before them, where they are adjacent in the file."""
    columns, page = listed.chunk[kept], listed.page[kept]
    with_page = distinct_values(columns)
    chunks = _chunk_numbers(read, pages)[with_page]
    dictionary_starts, dictionary_stops = pages.dictionary_starts[chunks], pages.dictionary_stops[chunks]
    exists = dictionary_stops > dictionary_starts
    sorted_pages = _sorted(
        np.concatenate([with_page[exists], columns]),
        np.concatenate([dictionary_starts[exists], pages.starts[page]]),
        np.concatenate([dictionary_stops[exists], pages.stops[page]]),
    )
    begins = np.ones(len(sorted_pages.starts), dtype=bool)
    begins[1:] = (np.diff(sorted_pages.columns) != 0) | (sorted_pages.starts[1:] != sorted_pages.stops[:-1])
    ends = np.append(begins[1:], True)[: len(begins)]
    return _Pieces(
        columns=sorted_pages.columns[begins], starts=sorted_pages.starts[begins], stops=sorted_pages.stops[ends]
    )


def _sorted(columns: IntArray, starts: IntArray, stops: IntArray) -> _Pieces:
    order = np.lexsort((starts, columns))
    return _Pieces(columns=columns[order], starts=starts[order], stops=stops[order])


def _column_rows(
    read: Read, listed: ChunkPages, kept: BoolArray, loses_pages: BoolArray
) -> tuple[RowSelection | None, ...]:
    """Return the rows in the fetched pages of each column; a kept page ends where the next one begins."""
    of_pages = selections_of(listed.chunk[kept], listed.first_rows[kept], listed.stop_rows[kept], len(read.columns))
    return tuple(
        after if is_cut else before
        for before, after, is_cut in zip(read.column_rows, of_pages, loses_pages.tolist(), strict=True)
    )


def _with_columns(read: Read, kept: BoolArray) -> Read:
    """Keep some of the columns to fetch."""
    kept_pieces = kept[read.piece_columns]
    new_position = np.cumsum(kept) - 1
    positions = np.flatnonzero(kept).tolist()
    return replace(
        read,
        columns=tuple(read.columns[position] for position in positions),
        column_rows=tuple(read.column_rows[position] for position in positions),
        chunks=read.chunks[kept],
        piece_columns=new_position[read.piece_columns[kept_pieces]],
        piece_starts=read.piece_starts[kept_pieces],
        piece_stops=read.piece_stops[kept_pieces],
    )


class _PageCosts(Struct, frozen=True, kw_only=True, eq=False):
    """The size of a read's pages, compressed and decoded; arrays of shape ``(pages,)``."""

    column: IntArray
    """Position of the page's column in the read."""
    first_rows: IntArray
    stop_rows: IntArray
    cost_bytes: npt.NDArray[np.float64]
    each_run_bytes: float
    """What every run needs again: dictionaries, and whole chunks of unknown pages."""

    def up_to(self, borders: IntArray, rows: IntArray, side: Literal["left", "right"]) -> npt.NDArray[np.float64]:
        """Sum the cost of pages whose row (first or last, by ``rows``) is below each border (``right``: or at it)."""
        order = np.argsort(rows, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(self.cost_bytes[order])])
        return sums[np.searchsorted(rows[order], borders, side=side)]


def split_into_runs(read: Read, *, max_bytes: int) -> tuple[Read, ...]:
    """Split a read whose bytes, fetched plus decoded, exceed a limit.

    Cuts are at page borders of the widest column, so that few bytes are fetched twice. A run may still exceed the
    limit: by one such page, and by what every run needs, which is dictionaries and columns of unknown pages.
    """
    if read.deferred is not None:
        raise InternalError("a read is split before columns of it are deferred")
    pages = read.data.pages
    most_bytes = (read.piece_stops - read.piece_starts).sum() + read.chunks["decoded_bytes"].sum()
    if pages is None or not read.columns or most_bytes <= max_bytes:
        return (read,)
    selection = rows_of(read)
    borders = _borders(_page_costs(read, pages), selection, max_bytes)
    parts = [selection.intersect(RowSelection.of_range(start, stop)) for start, stop in pairwise(borders)]
    return tuple(read_pages(read, part, least_saving_bytes=0) for part in parts if part.row_count)


def _page_costs(read: Read, pages: PartitionPages) -> _PageCosts:
    row_bytes = read.chunks["decoded_bytes"] / max(read.row_group_rows, 1)
    chunks, listed = _chunk_numbers(read, pages), _list_pages(read, pages)
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
    # A run has at least as much new data as it needs again: smaller runs would cost more network than they save memory.
    budget_bytes = max(max_bytes - costs.each_run_bytes, costs.each_run_bytes)
    widest = np.argmax(np.bincount(costs.column, costs.cost_bytes))
    inner = costs.first_rows[(costs.column == widest) & (costs.first_rows > begin) & (costs.first_rows < end)]
    borders = distinct_values(np.concatenate([[begin, end], inner]))
    # A run holds the pages that begin before its end and end after its start.
    begun = costs.up_to(borders, costs.first_rows, "left")
    ended = costs.up_to(borders, costs.stop_rows, "right")
    chosen = [0]
    while chosen[-1] < len(borders) - 1:
        furthest = int(np.searchsorted(begun, ended[chosen[-1]] + budget_bytes, side="right")) - 1
        chosen.append(max(furthest, chosen[-1] + 1))
    return [int(border) for border in borders[chosen]]


_MOST_JOINED_ROWS = 1 << 16
_MOST_JOINED_BYTES = 512 * KIB
"""Larger row groups take longer to decode than the steps around it, which take a millisecond for each. They may also stay
inside their answer, which joined ones never do."""

_MOST_JOINED_SHARE = 1 / 64
"""Of the memory limit, for the decoded bytes of joined reads."""


def join_small_reads(reads: Sequence[Read], *, memory_limit_bytes: int) -> tuple[Read, ...]:
    """Join the reads of small neighbouring row groups of one partition that are read whole, and in the same way.

    A joined read is fetched and decoded at once, in the order of its rows.
    """
    runs: list[list[Read]] = []
    sizes, is_whole = (0, 0, 0), False
    limits = _MOST_JOINED_ROWS, _MOST_JOINED_BYTES, memory_limit_bytes * _MOST_JOINED_SHARE
    for read in reads:
        own = read.row_count, read.bytes_wanted, int(read.chunks["decoded_bytes"].sum())
        together = sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2]
        was_whole, is_whole = is_whole, _is_read_whole(read)
        fits = all(size <= limit for size, limit in zip(together, limits, strict=True))
        if fits and was_whole and is_whole and _may_follow(runs[-1][-1], read):
            runs[-1].append(read)
            sizes = together
        else:
            runs.append([read])
            sizes = own
    return tuple(run[0] if len(run) == 1 else _joined(run) for run in runs)


def _may_follow(before: Read, read: Read) -> bool:
    return (
        before.piece_stops[-1] <= read.piece_starts[0]
        and before.columns == read.columns
        and (before.made_columns, before.made_values) == (read.made_columns, read.made_values)
        and before.all_rows_match == read.all_rows_match
    )


def _is_read_whole(read: Read) -> bool:
    """Tell whether the chunks of a read are fetched whole, each in one piece, in the order of the file."""
    return (
        read.data.decoder == "parquet"
        and read.selection is None
        and read.deferred is None
        and len(read.columns) > 0
        and all(rows is None for rows in read.column_rows)
        and bool((read.piece_stops[:-1] <= read.piece_starts[1:]).all())
    )


def _joined(reads: Sequence[Read]) -> Read:
    return replace(
        reads[0],
        row_group_rows=sum(read.row_group_rows for read in reads),
        columns=reads[0].columns * len(reads),
        column_rows=reads[0].column_rows * len(reads),
        chunks=np.concatenate([read.chunks for read in reads]),
        piece_columns=np.arange(len(reads[0].columns) * len(reads)),
        piece_starts=np.concatenate([read.piece_starts for read in reads]),
        piece_stops=np.concatenate([read.piece_stops for read in reads]),
        joined=tuple(reads),
    )
