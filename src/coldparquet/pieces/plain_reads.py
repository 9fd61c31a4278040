"""Row group reads, and the pages of a partition, as sections of numbers, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.partition_pages import PageBounds, PartitionPages
from coldparquet.pieces.sections import split
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.row_selection import RowSelection

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from coldparquet.pieces.sections import SectionReader, SectionWriter
    from coldparquet.plan.bounds import IntArray

_ALL_ROWS_MATCH, _HAS_DEFERRED = 1, 2
"""Bits of a read's flags. What a read defers follows it as a read of its own."""

_ALL_ROWS = -1
"""In place of the number of ranges of a row selection: there is none, all rows are meant."""


def add_reads(sections: SectionWriter, reads: Sequence[RowGroupRead]) -> None:
    """Write the reads of all partitions of a piece: few long arrays cost less than many short ones."""
    flat = list(_with_deferred(reads))
    selections = [selection for read in flat for selection in (read.selection, *read.column_rows)]
    ranges = [selection for selection in selections if selection is not None]
    sections.add_numbers([read.partition_index for read in flat])
    sections.add_numbers([read.row_group for read in flat])
    sections.add_numbers([read.row_groups_left_out for read in flat])
    sections.add_numbers([read.row_group_rows for read in flat])
    sections.add_numbers([_flags(read) for read in flat])
    sections.add_numbers([len(read.columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.columns])
    sections.add_numbers([len(read.made_columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.made_columns])
    sections.add_numbers([len(read.piece_columns) for read in flat])
    sections.add_numbers(_joined(read.piece_columns for read in flat))
    _add_ranges(sections, _joined(read.piece_starts for read in flat), _joined(read.piece_stops for read in flat))
    sections.add_numbers([_ALL_ROWS if selection is None else len(selection.starts) for selection in selections])
    sections.add_numbers(_joined(selection.starts for selection in ranges))
    sections.add_numbers(_joined(selection.stops for selection in ranges))


def next_reads(sections: SectionReader) -> list[RowGroupRead]:
    """Undo :func:`add_reads`."""
    owners, row_groups, left_out, row_counts, flags = (sections.numbers().tolist() for _ in range(5))
    columns = [tuple(found.tolist()) for found in sections.lists()]
    made_columns = [tuple(found.tolist()) for found in sections.lists()]
    piece_counts = sections.numbers()
    piece_columns = split(sections.numbers(), piece_counts)
    piece_starts, piece_stops = (split(edges, piece_counts) for edges in _next_ranges(sections))
    selections = _selections(sections.numbers(), sections.numbers(), sections.numbers())
    reads: list[RowGroupRead] = []
    # From behind, so that what a read defers is made before it.
    for number in reversed(range(len(row_groups))):
        of_read = [selections.pop() for _ in range(1 + len(columns[number]))][::-1]
        read = RowGroupRead(
            partition_index=owners[number],
            row_group=row_groups[number],
            row_group_rows=row_counts[number],
            selection=of_read[0],
            columns=columns[number],
            column_rows=tuple(of_read[1:]),
            piece_columns=piece_columns[number],
            piece_starts=piece_starts[number],
            piece_stops=piece_stops[number],
            made_columns=made_columns[number],
            all_rows_match=bool(flags[number] & _ALL_ROWS_MATCH),
            deferred=reads.pop() if flags[number] & _HAS_DEFERRED else None,
            row_groups_left_out=left_out[number],
        )
        reads.append(read)
    reads.reverse()
    return reads


def add_pages(sections: SectionWriter, pages: PartitionPages) -> None:
    """Write where the pages of a partition lie, but nothing of what is in them."""
    sections.add_numbers(np.diff(pages.first_page))
    sections.add_numbers(pages.first_rows)
    _add_ranges(sections, pages.starts, pages.stops)
    _add_ranges(sections, pages.dictionary_starts, pages.dictionary_stops)


def next_pages(sections: SectionReader, *, row_group_count: int, column_count: int) -> PartitionPages:
    """Undo :func:`add_pages`."""
    counts, first_rows = sections.numbers(), sections.numbers()
    starts, stops = _next_ranges(sections)
    dictionary_starts, dictionary_stops = _next_ranges(sections)
    return PartitionPages(
        row_group_count=row_group_count,
        column_count=column_count,
        first_page=_edges(counts),
        first_rows=first_rows,
        starts=starts,
        stops=stops,
        dictionary_starts=dictionary_starts,
        dictionary_stops=dictionary_stops,
        null_counts=np.full(len(starts), -1, dtype=np.int64),
        lower=_no_bounds(len(starts)),
        upper=_no_bounds(len(starts)),
    )


def reduced_pages(
    pages: PartitionPages, *, row_groups: IntArray, columns: Sequence[int], wanted: Collection[int]
) -> PartitionPages:
    """Keep the pages of some columns of some row groups, numbered anew as in a reduced sidecar, without their bounds.

    Args:
        pages: Of the whole Parquet file.
        row_groups: Numbers of the row groups that are kept, ascending.
        columns: Indexes of the columns of the reduced sidecar, ascending.
        wanted: Those of them of which pages are kept.
    """
    of_columns = np.array(columns, dtype=np.int64)
    chunks = (row_groups[:, None] * pages.column_count + of_columns).ravel()
    counts = np.diff(pages.first_page)[chunks]
    counts[~np.tile(np.isin(of_columns, list(wanted)), len(row_groups))] = 0
    first_page = _edges(counts)
    kept = np.repeat(pages.first_page[chunks] - first_page[:-1], counts) + np.arange(first_page[-1])
    return PartitionPages(
        row_group_count=len(row_groups),
        column_count=len(columns),
        first_page=first_page,
        first_rows=pages.first_rows[kept],
        starts=pages.starts[kept],
        stops=pages.stops[kept],
        dictionary_starts=pages.dictionary_starts[chunks],
        dictionary_stops=pages.dictionary_stops[chunks],
        null_counts=pages.null_counts[kept],
        lower=_no_bounds(len(kept)),
        upper=_no_bounds(len(kept)),
    )


def _add_ranges(sections: SectionWriter, starts: IntArray, stops: IntArray) -> None:
    """Write ranges: how far each begins behind the end of the one before, mostly not at all, and how long it is."""
    sections.add_numbers(np.diff(stops, prepend=0) - (stops - starts))
    sections.add_numbers(stops - starts)


def _next_ranges(sections: SectionReader) -> tuple[IntArray, IntArray]:
    """Undo :func:`_add_ranges`."""
    gaps, lengths = sections.numbers(), sections.numbers()
    stops = np.cumsum(gaps + lengths)
    return stops - lengths, stops


def _with_deferred(reads: Iterable[RowGroupRead]) -> Iterator[RowGroupRead]:
    for read in reads:
        yield read
        if read.deferred is not None:
            yield read.deferred


def _flags(read: RowGroupRead) -> int:
    return _ALL_ROWS_MATCH * read.all_rows_match | _HAS_DEFERRED * (read.deferred is not None)


def _joined(arrays: Iterable[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


def _edges(counts: IntArray) -> IntArray:
    """Return where each list begins, and at last where the last one ends."""
    edges: IntArray = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    return edges


def _selections(counts: IntArray, starts: IntArray, stops: IntArray) -> list[RowSelection | None]:
    lengths = np.maximum(counts, 0)
    ranges = zip(counts.tolist(), split(starts, lengths), split(stops, lengths), strict=True)
    return [
        None if count == _ALL_ROWS else RowSelection(starts=of_starts, stops=of_stops)
        for count, of_starts, of_stops in ranges
    ]


def _no_bounds(page_count: int) -> PageBounds:
    return PageBounds(
        offsets=np.zeros(page_count, dtype=np.int64),
        lengths=np.full(page_count, -1, dtype=np.int64),
        values=np.empty(0, dtype=np.uint8),
    )
