"""Row selections against boolean masks, for which every operation is one of numpy's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.errors import InternalError
from coldparquet.plan.selection import RowSelection, selections_of
from tests.support.row_outcomes import selection_of

ROWS = 24

masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(lambda bits: np.array(bits, dtype=bool))
properties = settings()


def mask_of(selection: RowSelection, rows: int = ROWS) -> npt.NDArray[np.bool_]:
    """Spell a selection out, and check on the way that it is in its one form."""
    mask = np.zeros(rows, dtype=bool)
    for start, stop in zip(selection.starts.tolist(), selection.stops.tolist(), strict=True):
        assert 0 <= start < stop <= rows
        mask[start:stop] = True
    assert (selection.starts[1:] > selection.stops[:-1]).all()
    assert selection.starts.dtype == selection.stops.dtype == np.int64
    return mask


def selected(*ranges: tuple[int, int]) -> RowSelection:
    starts, stops = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    return RowSelection.of_ranges(starts, stops)


@properties
@given(mask=masks)
def test_mask_and_back(mask: npt.NDArray[np.bool_]) -> None:
    selection = selection_of(mask)
    assert (mask_of(selection) == mask).all()
    assert selection.row_count == mask.sum()
    assert selection.holds(np.arange(ROWS)).tolist() == mask.tolist()
    assert not selection.holds(np.array([-1, ROWS, ROWS + 5])).any()


@properties
@given(one=masks, other=masks)
def test_intersection_and_equality(one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> None:
    left, right = selection_of(one), selection_of(other)
    assert (mask_of(left.intersect(right)) == (one & other)).all()
    assert (left == right) == bool((one == other).all())
    assert left != one.tolist()


@properties
@given(mask=masks, edges=st.lists(st.integers(0, ROWS), min_size=1, max_size=6).map(sorted))
def test_ranges_that_overlap_a_selection(mask: npt.NDArray[np.bool_], edges: list[int]) -> None:
    starts, stops = np.array(edges[:-1], dtype=np.int64), np.array(edges[1:], dtype=np.int64)
    overlaps = selection_of(mask).overlaps(starts, stops)
    assert overlaps.tolist() == [bool(mask[start:stop].any()) for start, stop in zip(starts, stops, strict=True)]


@properties
@given(outer=masks, inner=masks)
def test_positions_among_the_selected_rows_and_back(outer: npt.NDArray[np.bool_], inner: npt.NDArray[np.bool_]) -> None:
    fetched, kept = selection_of(outer), selection_of(outer & inner)
    positions = fetched.positions_of(kept)
    assert (mask_of(positions, int(outer.sum())) == inner[outer]).all()
    assert fetched.rows_at(positions) == kept


@properties
@given(mask=masks, count=st.integers(0, ROWS + 2))
def test_first_and_last_rows(mask: npt.NDArray[np.bool_], count: int) -> None:
    rows = np.flatnonzero(mask)
    first, last = selection_of(mask).first(count), selection_of(mask).last(count)
    assert np.flatnonzero(mask_of(first)).tolist() == rows[:count].tolist()
    assert np.flatnonzero(mask_of(last)).tolist() == rows[max(len(rows) - count, 0) :].tolist()


@properties
@given(
    lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6),
)
def test_empty_ranges_vanish_and_touching_ones_are_joined(lengths: list[tuple[int, int]]) -> None:
    ranges, row = [], 0
    for gap, length in lengths:
        ranges.append((row + gap, row + gap + length))
        row += gap + length
    mask = np.zeros(30, dtype=bool)
    for start, stop in ranges:
        mask[start:stop] = True
    assert (mask_of(selected(*ranges), 30) == mask).all()


@properties
@given(of_owners=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=4))
def test_many_selections_in_one_pass(of_owners: list[list[bool]]) -> None:
    # Every selected row is a range of its own, so that those that touch have to be joined.
    owners, rows = np.nonzero(np.array(of_owners, dtype=bool).reshape(-1, 5))
    found = selections_of(owners, rows, rows + 1, len(of_owners))
    assert [mask_of(selection, 5).tolist() for selection in found] == of_owners


def test_one_range_or_none() -> None:
    assert selected((3, 7)) == RowSelection.of_range(3, 7)
    assert RowSelection.of_range(5, 5).row_count == 0
    assert RowSelection.of_range(5, 5) == selected() == selection_of(np.zeros(0, dtype=bool))


def test_ranges_out_of_order_are_refused() -> None:
    with pytest.raises(InternalError, match="overlap or are out of order"):
        selected((5, 9), (0, 2))
    with pytest.raises(InternalError, match="overlap or are out of order"):
        selected((0, 5), (4, 9))


@pytest.mark.parametrize("kept", [(0, 3), (1, 5), (4, 12), (20, 22)])
def test_rows_that_were_not_fetched_have_no_position(kept: tuple[int, int]) -> None:
    with pytest.raises(InternalError, match="not fetched"):
        selected((2, 5), (8, 12)).positions_of(selected(kept))
    with pytest.raises(InternalError, match="not fetched"):
        selected().positions_of(selected(kept))


def test_positions_beyond_the_selected_rows_are_refused() -> None:
    assert selected((2, 5), (8, 12)).rows_at(selected((0, 7))) == selected((2, 5), (8, 12))
    with pytest.raises(InternalError, match="position 7 among 7 selected rows"):
        selected((2, 5), (8, 12)).rows_at(selected((6, 8)))
