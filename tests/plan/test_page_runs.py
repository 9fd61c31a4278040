"""Large row groups split into runs of rows: together the same rows, each within the limit where pages allow it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.errors import InternalError
from coldparquet.plan.model import Read
from coldparquet.plan.reads import defer_columns, read_pages, rows_of, split_into_runs
from coldparquet.records import replace
from tests.support.paged_columns import (
    LONG,
    Chunk,
    Partition,
    four_pages,
    partitions,
    pieces,
    rows,
    selected,
    whole_read,
)
from tests.support.row_outcomes import selection_of


def split(read: Read, max_bytes: int, row_bytes: int = 0) -> tuple[Read, ...]:
    read.chunks["decoded_bytes"] = row_bytes * read.row_group_rows
    return split_into_runs(read, max_bytes=max_bytes)


@settings(max_examples=40)
@given(data=st.data())
def test_runs_are_the_rows_of_the_read_in_order(data: st.DataObject) -> None:
    partition = data.draw(partitions([LONG] * 3))
    count = len(partition.chunks[0][0].values)
    read = whole_read(partition, 0, [0, 1, 2])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any)), dtype=bool)
    read = read_pages(read, selection_of(mask), least_saving_bytes=data.draw(st.integers(0, 50)))
    max_bytes = data.draw(st.integers(1, 400))
    runs = split(read, max_bytes, data.draw(st.integers(0, 20)))
    taken = [row for run in runs for row in np.flatnonzero(rows_of(run).holds(np.arange(count))).tolist()]
    assert taken == np.flatnonzero(mask).tolist()
    for run in runs:
        assert run.columns == read.columns
        assert all(held is None or held.positions_of(rows_of(run)) for held in run.column_rows)


def test_runs_end_where_the_limit_is_reached() -> None:
    partition = four_pages()
    read = whole_read(partition, 0, [0, 1, 2])
    assert split(read, 1_200) == (read,)
    assert [rows(run.selection) for run in split(read, 1_199)] == [[(0, 30)], [(30, 40)]]
    halves = split(read, 600)
    assert [rows(run.selection) for run in halves] == [[(0, 20)], [(20, 40)]]
    assert pieces(halves[1]) == [(0, 204, 404), (1, 604, 804), (2, 1_004, 1_204)]
    # 10 rows of 3 columns take 300 bytes as fetched, and 600 decoded.
    assert [rows(run.selection) for run in split(read, 900, row_bytes=20)] == [
        [(0, 10)], [(10, 20)], [(20, 30)], [(30, 40)]
    ]  # fmt: skip


def test_a_run_has_at_least_one_page_of_the_widest_column() -> None:
    partition = four_pages()
    runs = split(whole_read(partition, 0, [0, 1, 2]), 1)
    assert [run.row_count for run in runs] == [10] * 4


def test_only_selected_rows_count() -> None:
    partition = four_pages()
    read = read_pages(whole_read(partition, 0, [0, 1, 2]), selected((2, 5), (22, 40)), least_saving_bytes=1)
    assert split(read, 900) == (read,)
    runs = split(read, 600)
    assert [rows(run.selection) for run in runs] == [[(2, 5), (22, 30)], [(30, 40)]]
    assert [run.bytes_wanted for run in runs] == [600, 300]


def test_cuts_lie_where_pages_of_the_widest_column_begin() -> None:
    wide = Chunk(values=range(40), page_starts=[0, 16, 32], page_bytes=[4_000] * 3)
    narrow = Chunk(values=range(40), page_starts=list(range(0, 40, 4)), page_bytes=[10] * 10)
    partition = Partition(kinds=[LONG] * 2, chunks=[[narrow, wide]])
    runs = split(whole_read(partition, 0, [0, 1]), 5_000)
    assert [rows(run.selection) for run in runs] == [[(0, 16)], [(16, 32)], [(32, 40)]]
    assert sum(run.bytes_wanted for run in runs) == 12_100


def test_what_every_run_fetches_anew_bounds_their_number() -> None:
    partition = four_pages(dictionary_bytes=50)
    runs = split(whole_read(partition, 0, [0, 1, 2]), 450)
    assert [run.bytes_wanted for run in runs] == [450] * 4
    # Below three dictionaries no limit can be kept: a run brings at least as much that is new, here one page of each.
    assert [run.bytes_wanted for run in split(whole_read(partition, 0, [0, 1, 2]), 10)] == [450] * 4
    large = four_pages(dictionary_bytes=250)
    assert [run.bytes_wanted for run in split(whole_read(large, 0, [0, 1, 2]), 10)] == [1_350, 1_350]


def test_columns_of_unknown_pages_stay_whole_in_every_run() -> None:
    partition = four_pages(rows_known=2)
    read = whole_read(partition, 0, [0, 1, 2])
    runs = split(read, 500)
    assert [rows(run.selection) for run in runs] == [[(0, 20)], [(20, 40)]]
    assert [run.bytes_wanted for run in runs] == [500, 500]
    assert all(run.column_rows[2] is None for run in runs)
    unknown = four_pages(rows_known=0)
    read = whole_read(unknown, 0, [0, 1])
    assert split(read, 10) == (read,)
    read = replace(read, data=replace(read.data, pages=None))
    assert split_into_runs(read, max_bytes=1) == (read,)


def test_a_read_is_split_before_columns_are_deferred() -> None:
    partition = four_pages()
    with pytest.raises(InternalError, match="before columns of it are deferred"):
        split(defer_columns(whole_read(partition, 0, [0, 1]), {0}), 1)
