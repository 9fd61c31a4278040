"""Cut the read of a row group down to the pages that hold wanted rows.

Everything here takes the read of whole chunks that ``prune_row_groups`` found, or one that was cut already, and returns a
smaller one: for pages that were pruned, for the first or last rows, for a run of rows that fits memory, and for the
columns that wait until the predicate's columns have shown which rows are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format.distinct_values import distinct_values
from coldparquet.plan.chunk_pages import pages_of_chunks
from coldparquet.plan.row_selection import RowSelection, selections_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.chunk_pages import ChunkPages
    from coldparquet.plan.read_plan import RowGroupRead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pieces:
    """Pieces of some columns of one read, in the order that ``RowGroupRead`` asks for."""

    columns: IntArray
    starts: IntArray
    stops: IntArray

    @property
    def byte_count(self) -> int:
        return int((self.stops - self.starts).sum())


def rows_of(read: RowGroupRead) -> RowSelection:
    """Return the rows of a read, also where it reads the whole row group."""
    return RowSelection.of_range(0, read.row_group_rows) if read.selection is None else read.selection


def read_pages(
    read: RowGroupRead, selection: RowSelection, *, pages: PartitionPages | None, least_saving_bytes: int
) -> RowGroupRead:
    """Read fewer rows of a row group, and only the pages that hold some of them.

    Each column keeps its dictionary page and the pages that overlap the selection; a column of unknown pages, or all of
    whose pages overlap it, stays as it was. Where cutting one column is worth it, cutting the others costs nothing:
    requests read over small gaps in any case. Hence the saving of all columns together decides. Deferred columns are cut
    in the same way.

    Args:
        read: Whole chunks, or what an earlier cut left.
        selection: Rows of the read, at least one.
        pages: The pages of the Parquet file; None if they are not known.
        least_saving_bytes: Where fewer bytes would be saved, chunks stay whole: the gap that requests read over.

    Raises:
        InternalError: The selection is empty.
    """
    if selection.row_count == 0:
        raise InternalError(f"a read of no rows of row group {read.row_group}")
    if selection == rows_of(read):
        return read
    deferred = read.deferred
    if deferred is not None:
        deferred = read_pages(deferred, selection, pages=pages, least_saving_bytes=least_saving_bytes)
    selected = replace(read, selection=selection, deferred=deferred)
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


def first_rows(
    read: RowGroupRead, count: int, *, pages: PartitionPages | None, least_saving_bytes: int
) -> RowGroupRead:
    """Read exactly the first ``count`` rows of a read, or all if there are fewer; see :func:`read_pages`."""
    return read_pages(read, rows_of(read).first(count), pages=pages, least_saving_bytes=least_saving_bytes)


def last_rows(read: RowGroupRead, count: int, *, pages: PartitionPages | None, least_saving_bytes: int) -> RowGroupRead:
    """Read exactly the last ``count`` rows of a read, or all if there are fewer; see :func:`read_pages`."""
    return read_pages(read, rows_of(read).last(count), pages=pages, least_saving_bytes=least_saving_bytes)


def without_filter(read: RowGroupRead, output_columns: Collection[int]) -> RowGroupRead:
    """Leave out the columns that only the predicate needs, for a read of which every selected row matches.

    Args:
        read: What is read.
        output_columns: Sidecar indexes of the columns of the result.
    """
    kept = np.isin(np.array(read.columns, dtype=np.int64), list(output_columns))
    made = tuple(column for column in read.made_columns if column in output_columns)
    return replace(_with_columns(read, kept), made_columns=made, all_rows_match=True)


def defer_columns(read: RowGroupRead, first_columns: Collection[int]) -> RowGroupRead:
    """Let all columns but some wait until those have shown which rows are left.

    Args:
        read: What is read.
        first_columns: Sidecar indexes of the columns that the predicate needs.

    Returns:
        A read of these, with the others deferred; the read itself if there is none among them.
    """
    is_first = np.isin(np.array(read.columns, dtype=np.int64), list(first_columns))
    if is_first.all():
        return read
    deferred = replace(_with_columns(read, ~is_first), made_columns=())
    return replace(_with_columns(read, is_first), deferred=deferred)


def narrow_read(
    read: RowGroupRead, surviving: RowSelection, *, pages: PartitionPages | None, least_saving_bytes: int
) -> RowGroupRead:
    """Return the read of the deferred columns, once the rows that satisfy the predicate are known.

    Args:
        read: A read with deferred columns.
        surviving: The rows that satisfy the predicate, counted in the row group, at least one.
        pages: As for :func:`read_pages`.
        least_saving_bytes: As for :func:`read_pages`.

    Raises:
        InternalError: Nothing is deferred, or no row survived, so that nothing has to be read.
    """
    if read.deferred is None:
        raise InternalError(f"no column of row group {read.row_group} was deferred")
    narrowed = read_pages(read.deferred, surviving, pages=pages, least_saving_bytes=least_saving_bytes)
    return replace(narrowed, all_rows_match=True)


def _list_pages(read: RowGroupRead, pages: PartitionPages) -> ChunkPages:
    """List the pages of every column of a read."""
    columns = np.array(read.columns, dtype=np.int64)
    chunks = read.row_group * pages.column_count + columns
    return pages_of_chunks(pages, chunks, np.full(len(columns), read.row_group_rows))


def _pieces_of_pages(read: RowGroupRead, pages: PartitionPages, listed: ChunkPages, kept: BoolArray) -> _Pieces:
    """Join the pages that are kept, and the dictionary pages before them, where they touch in the file."""
    columns, page = listed.chunk[kept], listed.page[kept]
    with_page = distinct_values(columns)
    chunks = read.row_group * pages.column_count + np.array(read.columns, dtype=np.int64)[with_page]
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
    read: RowGroupRead, listed: ChunkPages, kept: BoolArray, loses_pages: BoolArray
) -> tuple[RowSelection | None, ...]:
    """Say which rows the fetched pages of each column hold; a page that is kept ends where the next one begins."""
    of_pages = selections_of(listed.chunk[kept], listed.first_rows[kept], listed.stop_rows[kept], len(read.columns))
    return tuple(
        after if is_cut else before
        for before, after, is_cut in zip(read.column_rows, of_pages, loses_pages.tolist(), strict=True)
    )


def _with_columns(read: RowGroupRead, kept: BoolArray) -> RowGroupRead:
    """Keep some of the fetched columns."""
    kept_pieces = kept[read.piece_columns]
    new_position = np.cumsum(kept) - 1
    positions = np.flatnonzero(kept).tolist()
    return replace(
        read,
        columns=tuple(read.columns[position] for position in positions),
        column_rows=tuple(read.column_rows[position] for position in positions),
        piece_columns=new_position[read.piece_columns[kept_pieces]],
        piece_starts=read.piece_starts[kept_pieces],
        piece_stops=read.piece_stops[kept_pieces],
    )
