"""Pruning by pages: no row that matches is lost, none that does not is called certain, and pages that can go do go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.plan.pages import PagesSelected, prune_pages
from coldparquet.plan.predicate import Predicate, col
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from tests.support.paged_columns import KINDS, LONG, Kind, Partition, chunk_of, partitions, predicates


def select(partition: Partition, predicate: Predicate, row_groups: list[int] | None = None) -> PagesSelected:
    bound, sidecar = partition.bind(predicate), partition.sidecar
    by_row_group = SidecarStatistics(sidecar, partition.places)
    if row_groups is None:
        verdict, _ = prune(bound, by_row_group, sidecar.row_group_count)
        row_groups = np.flatnonzero(verdict.survives).tolist()
    return prune_pages(
        bound,
        sidecar=sidecar,
        places=partition.places,
        pages=partition.pages,
        row_groups=np.array(row_groups, dtype=np.int64),
        by_row_group=by_row_group,
    )


def ranges(selected: PagesSelected) -> list[list[tuple[int, int]]]:
    return [list(zip(one.starts.tolist(), one.stops.tolist(), strict=True)) for one in selected.selections]


def check(kinds: list[Kind], data: st.DataObject) -> None:
    partition = data.draw(partitions(kinds), "partition")
    predicate = data.draw(predicates(kinds), "predicate")
    selected = select(partition, predicate)
    found = dict(
        zip(selected.row_groups.tolist(), zip(selected.selections, selected.all_rows_match, strict=True), strict=True)
    )
    rows_left = 0
    for row_group in range(len(partition.chunks)):
        matching = partition.matching(predicate, row_group)
        if row_group not in found:
            assert not matching.any()
            continue
        selection, all_rows_match = found[row_group]
        may_match = selection.holds(np.arange(len(matching)))
        assert not (matching & ~may_match).any()
        assert not all_rows_match or matching[may_match].all()
        assert (row_group in selected.emptied) == (not may_match.any())
        rows_left += int(may_match.sum())
    report = selected.report
    assert report.rows_left == rows_left <= report.rows
    assert 0 <= report.pages_left <= report.pages <= len(partition.pages.starts)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=10)
@given(data=st.data())
def test_no_row_is_lost(name: str, data: st.DataObject) -> None:
    check([KINDS[name]], data)


@settings(max_examples=30)
@given(data=st.data())
def test_no_row_is_lost_where_columns_combine(data: st.DataObject) -> None:
    check([LONG, KINDS["varchar"], KINDS["double"]], data)


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=1_000)
@given(data=st.data())
def test_no_row_is_lost_in_many_cases(name: str, data: st.DataObject) -> None:
    check([KINDS[name], LONG], data)


def longs(*columns: tuple[Sequence[int | None], Sequence[int] | None]) -> Partition:
    """One row group of LONG columns: values and where pages begin."""
    return Partition(
        kinds=[LONG] * len(columns), chunks=[[chunk_of(LONG, values, starts) for values, starts in columns]]
    )


def test_sorted_column_keeps_the_pages_in_between() -> None:
    partition = longs((list(range(100)), [0, 20, 40, 60, 80]))
    assert ranges(select(partition, col("c0").between(25, 59))) == [[(20, 60)]]
    assert ranges(select(partition, col("c0") >= 80)) == [[(80, 100)]]
    assert ranges(select(partition, (col("c0") < 5) | (col("c0") == 61))) == [[(0, 20), (60, 80)]]
    assert ranges(select(partition, ~col("c0").between(25, 99))) == [[(0, 40)]]
    assert select(partition, col("c0") >= 80).all_rows_match.tolist() == [True]
    assert select(partition, col("c0") >= 81).all_rows_match.tolist() == [False]


def test_descending_and_shuffled_pages() -> None:
    down = list(range(99, -1, -1))
    shuffled = [*range(60, 80), *range(20), *range(80, 100), *range(20, 60)]
    assert ranges(select(longs((down, [0, 20, 40, 60, 80])), col("c0") < 30)) == [[(60, 100)]]
    assert ranges(select(longs((shuffled, [0, 20, 40, 60, 80])), col("c0") < 30)) == [[(20, 40), (60, 80)]]


def test_columns_with_different_borders_are_intersected() -> None:
    partition = longs((list(range(12)), [0, 4, 8]), ([0] * 6 + [1] * 6, [0, 6]))
    assert ranges(select(partition, (col("c0") < 8) & (col("c1") == 1))) == [[(6, 8)]]
    assert ranges(select(partition, (col("c0") < 4) | (col("c1") == 1))) == [[(0, 4), (6, 12)]]
    # Each column alone could not rule the row group out: both do.
    selected = select(partition, (col("c0") < 4) & (col("c1") == 1))
    assert ranges(selected) == [[]]
    assert selected.emptied.tolist() == [0]


def test_page_of_nulls_goes() -> None:
    partition = longs(([1, 2, None, None, None, 3], [0, 2, 4]))
    assert ranges(select(partition, col("c0") > 0)) == [[(0, 2), (4, 6)]]
    assert ranges(select(partition, col("c0").is_null())) == [[(2, 6)]]
    assert ranges(select(partition, col("c0").is_not_null())) == [[(0, 2), (4, 6)]]


def test_chunk_of_unknown_pages_counts_as_one() -> None:
    partition = longs((list(range(12)), None), ([0] * 6 + [1] * 6, [0, 6]))
    assert ranges(select(partition, (col("c0") < 3) & (col("c1") == 1))) == [[(6, 12)]]
    assert ranges(select(partition, col("c0") < 3)) == [[(0, 12)]]
    nothing_known = longs((list(range(12)), None))
    assert ranges(select(nothing_known, col("c0") < 3)) == [[(0, 12)]]
    assert select(nothing_known, col("c0") >= 0).all_rows_match.tolist() == [True]


def test_row_groups_keep_their_own_rows() -> None:
    groups = [list(range(10)), list(range(10, 20)), list(range(20, 30))]
    partition = Partition(kinds=[LONG], chunks=[[chunk_of(LONG, values, [0, 5])] for values in groups])
    selected = select(partition, col("c0").between(7, 22), [0, 1, 2])
    assert ranges(selected) == [[(5, 10)], [(0, 10)], [(0, 5)]]
    assert selected.all_rows_match.tolist() == [False, True, False]
    assert ranges(select(partition, col("c0").between(7, 22), [0, 2])) == [[(5, 10)], [(0, 5)]]
    assert ranges(select(partition, col("c0") < 0, [0])) == [[]]
    assert ranges(select(partition, col("c0") < 0, [])) == []


def test_report_counts_rows_and_pages() -> None:
    partition = longs((list(range(12)), [0, 4, 8]), ([0] * 6 + [1] * 6, [0, 6]))
    report = select(partition, (col("c0") < 8) & (col("c1") == 1)).report
    assert (report.rows, report.rows_left, report.pages, report.pages_left) == (12, 2, 5, 2)


def test_thousands_of_pages_in_one_step() -> None:
    page_starts = list(range(0, 60_000, 10))
    partition = longs(
        (list(range(60_000)), page_starts), ([number % 977 for number in range(60_000)], page_starts[::3])
    )
    predicate = col("c0").is_in(range(5, 60_000, 1_000)) & (col("c1") >= 0)
    wanted = [(start, start + 10) for start in range(0, 60_000, 1_000)]
    assert ranges(select(partition, predicate)) == [wanted]
    assert all(stop <= start for (_, stop), (start, _) in pairwise(wanted))
