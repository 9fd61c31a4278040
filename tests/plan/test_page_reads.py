"""Reads cut down to pages: which bytes and rows of each column are left."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.errors import InternalError
from coldparquet.plan.model import Read
from coldparquet.plan.reads import (
    defer_columns,
    first_rows,
    last_rows,
    narrow_read,
    read_pages,
    rows_of,
    without_filter,
)
from coldparquet.plan.selection import RowSelection
from coldparquet.records import replace
from tests.support.paged_columns import LONG, Partition, four_pages, partitions, pieces, rows, selected, whole_read
from tests.support.row_outcomes import selection_of


def wanted_pages(
    partition: Partition, row_group: int, column: int, mask: npt.NDArray[np.bool_]
) -> list[tuple[range, range]] | None:
    """Rows and bytes of the pages that hold selected rows, by a loop; None where none can be left out."""
    pages, chunk = partition.pages, row_group * len(partition.kinds) + column
    numbers = range(pages.first_page[chunk], pages.first_page[chunk + 1])
    borders = [*(int(pages.first_rows[number]) for number in numbers), len(mask)]
    listed = [
        (range(borders[position], borders[position + 1]), range(int(pages.starts[number]), int(pages.stops[number])))
        for position, number in enumerate(numbers)
    ]
    kept = [page for page in listed if mask[page[0].start : page[0].stop].any()]
    return None if len(kept) == len(listed) else kept


def check_read(partition: Partition, read: Read, mask: npt.NDArray[np.bool_], found: Read) -> None:
    """Compare the pieces of every column with a loop over its pages."""
    assert rows_of(found) == selection_of(mask)
    assert found.columns == read.columns
    assert (np.diff(found.piece_columns) >= 0).all()
    for position, column in enumerate(read.columns):
        of_column = [piece for piece in pieces(found) if piece[0] == column]
        assert all(one[2] < other[1] for one, other in pairwise(of_column))
        fetched = {byte for _, start, stop in of_column for byte in range(start, stop)}
        kept = wanted_pages(partition, read.row_group, column, mask)
        if kept is None:
            assert found.column_rows[position] is None
            assert of_column == [piece for piece in pieces(read) if piece[0] == column]
            continue
        chunk = read.row_group * len(partition.kinds) + column
        dictionary = range(int(partition.pages.dictionary_starts[chunk]), int(partition.pages.dictionary_stops[chunk]))
        assert fetched == set(dictionary).union(*(span for _, span in kept))
        of_pages = found.column_rows[position]
        assert of_pages is not None
        assert of_pages.holds(np.arange(len(mask))).tolist() == [
            any(row in held for held, _ in kept) for row in range(len(mask))
        ]
        of_pages.positions_of(rows_of(found))
    assert len(found.buffer_offsets) == len(found.piece_starts)
    assert found.bytes_wanted <= read.bytes_wanted


@settings(max_examples=40)
@given(data=st.data())
def test_each_column_keeps_its_dictionary_and_the_pages_of_wanted_rows(data: st.DataObject) -> None:
    partition = data.draw(partitions([LONG] * 3))
    row_group = data.draw(st.integers(0, len(partition.chunks) - 1))
    count = len(partition.chunks[row_group][0].values)
    read = whole_read(partition, row_group, data.draw(st.permutations([0, 1, 2])))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any)), dtype=bool)
    found = read_pages(read, selection_of(mask), least_saving_bytes=0)
    check_read(partition, read, mask, found)
    # Cutting twice leaves what cutting once does.
    fewer = mask & np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
    if fewer.any():
        again = read_pages(found, selection_of(fewer), least_saving_bytes=0)
        check_read(partition, read, fewer, again)


def test_runs_of_pages_that_touch_are_one_piece() -> None:
    partition = four_pages(dictionary_bytes=7)
    read = whole_read(partition, 0, [0])
    cut = read_pages(read, selected((12, 15), (38, 39)), least_saving_bytes=1)
    assert pieces(cut) == [(0, 4, 11), (0, 111, 211), (0, 311, 411)]
    assert rows(cut.column_rows[0]) == [(10, 20), (30, 40)]
    # The dictionary page touches the first page.
    cut = read_pages(read, selected((3, 15)), least_saving_bytes=1)
    assert pieces(cut) == [(0, 4, 211)]
    assert rows(cut.column_rows[0]) == [(0, 20)]
    assert (cut.row_count, cut.bytes_wanted) == (12, 207)


def test_all_columns_together_decide_whether_cutting_pays() -> None:
    partition = four_pages()
    read = whole_read(partition, 0, [0, 1, 2])
    cut = read_pages(read, selected((0, 30)), least_saving_bytes=300)
    assert (cut.bytes_wanted, rows(cut.column_rows[2])) == (900, [(0, 30)])
    whole = read_pages(read, selected((0, 30)), least_saving_bytes=301)
    assert (whole.bytes_wanted, whole.column_rows, rows(whole.selection)) == (1_200, (None, None, None), [(0, 30)])


def test_chunks_of_unknown_pages_stay_whole() -> None:
    partition = four_pages(rows_known=1)
    read = whole_read(partition, 0, [0, 2], made=(1,))
    cut = read_pages(read, selected((5, 8)), least_saving_bytes=1)
    assert cut.made_columns == (1,)
    assert [rows(one) for one in cut.column_rows] == [[(0, 10)], None]
    assert pieces(cut) == [(0, 4, 104), (2, 504, 604)]
    unknown = read_pages(replace(read, data=replace(read.data, pages=None)), selected((5, 8)), least_saving_bytes=1)
    assert (rows(unknown.selection), unknown.bytes_wanted) == ([(5, 8)], 500)


def test_all_rows_leave_a_read_as_it_is() -> None:
    partition = four_pages()
    read = whole_read(partition, 0, [0, 1])
    assert read_pages(read, selected((0, 40)), least_saving_bytes=0) is read
    cut = read_pages(read, selected((0, 5)), least_saving_bytes=0)
    assert read_pages(cut, selected((0, 5)), least_saving_bytes=0) is cut


def test_a_read_of_made_columns_only_selects() -> None:
    read = whole_read(four_pages(), 0, [], made=(0, 1))
    cut = read_pages(read, selected((5, 8)), least_saving_bytes=0)
    assert (cut.row_count, cut.bytes_wanted, cut.column_rows) == (3, 0, ())


def test_no_rows_are_no_read() -> None:
    partition = four_pages()
    with pytest.raises(InternalError, match="no rows of row group 0"):
        read_pages(whole_read(partition, 0, [0]), RowSelection.of_range(0, 0), least_saving_bytes=0)


def test_first_and_last_rows_fetch_the_pages_that_hold_them() -> None:
    partition = four_pages()
    read = whole_read(partition, 0, [0, 1])
    first = first_rows(read, 10, least_saving_bytes=1)
    assert (rows(first.selection), pieces(first)) == ([(0, 10)], [(0, 4, 104), (1, 404, 504)])
    last = last_rows(read, 11, least_saving_bytes=1)
    assert (rows(last.selection), pieces(last)) == ([(29, 40)], [(0, 204, 404), (1, 604, 804)])
    pruned = read_pages(read, selected((8, 12), (22, 40)), least_saving_bytes=1)
    assert rows(first_rows(pruned, 6, least_saving_bytes=1).selection) == [(8, 12), (22, 24)]
    assert first_rows(pruned, 22, least_saving_bytes=1) is pruned
    assert last_rows(pruned, 99, least_saving_bytes=1) is pruned


def test_without_a_filter_only_the_result_is_read() -> None:
    partition = four_pages()
    read = read_pages(whole_read(partition, 0, [1, 0, 2], made=(3, 4)), selected((0, 5)), least_saving_bytes=1)
    found = without_filter(read, {2, 0, 4})
    assert (found.columns, found.made_columns, found.all_rows_match) == ((0, 2), (4,), True)
    assert pieces(found) == [(0, 4, 104), (2, 804, 904)]
    assert [rows(one) for one in found.column_rows] == [[(0, 10)]] * 2


def test_deferred_columns_are_read_where_rows_survive() -> None:
    partition = four_pages()
    read = defer_columns(whole_read(partition, 0, [0, 1, 2], made=(3,)), {1})
    assert (read.columns, read.made_columns, read.bytes_wanted) == ((1,), (3,), 1_200)
    assert read.deferred is not None
    assert (read.deferred.columns, read.deferred.made_columns) == ((0, 2), ())
    narrowed = narrow_read(read, selected((3, 4), (33, 35)), least_saving_bytes=1)
    assert pieces(narrowed) == [(0, 4, 104), (0, 304, 404), (2, 804, 904), (2, 1_104, 1_204)]
    assert (narrowed.all_rows_match, rows(narrowed.selection)) == (True, [(3, 4), (33, 35)])
    everything = narrow_read(read, selected((0, 40)), least_saving_bytes=1)
    assert pieces(everything) == pieces(read.deferred)


def test_pruned_pages_are_cut_from_deferred_columns_as_well() -> None:
    partition = four_pages()
    read = defer_columns(whole_read(partition, 0, [0, 1, 2]), {1})
    cut = read_pages(read, selected((10, 20)), least_saving_bytes=1)
    assert cut.deferred is not None
    assert rows(cut.deferred.selection) == [(10, 20)]
    assert (cut.bytes_wanted, cut.deferred.bytes_wanted) == (300, 200)


def test_nothing_to_defer() -> None:
    read = whole_read(four_pages(), 0, [0, 1])
    assert defer_columns(read, {0, 1, 5}) is read
    with pytest.raises(InternalError, match="no column of row group 0 was deferred"):
        narrow_read(replace(read, deferred=None), selected((0, 1)), least_saving_bytes=0)
