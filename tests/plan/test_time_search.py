"""Finding the rows of a time range: the right ones, with few looks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InternalError
from coldparquet.plan.native import PROBES, WINDOW_ROWS, TimeSearch

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def run(timestamps: np.ndarray, lower: int | None, upper: int | None) -> tuple[range, list[int]]:
    """Search; returns the rows, and how many timestamps each round trip took."""
    search = TimeSearch(len(timestamps), lower=lower, upper=upper, path="ts.d")
    round_trips = []
    while wanted := search.wanted():
        round_trips.append(sum(map(len, wanted)))
        for rows in wanted:
            search.receive(rows, timestamps[rows.start : rows.stop])
    return search.rows, round_trips


@given(
    values=st.lists(st.integers(-50, 50) | st.sampled_from([LEAST, GREATEST]), max_size=60),
    repeats=st.sampled_from([1, 400, 1000]),
    lower=st.none() | st.integers(-52, 52) | st.sampled_from([LEAST, GREATEST]),
    upper=st.none() | st.integers(-52, 52) | st.sampled_from([LEAST, GREATEST]),
)
def test_finds_just_the_rows_in_the_range(
    values: list[int], repeats: int, lower: int | None, upper: int | None
) -> None:
    timestamps = np.repeat(np.array(sorted(values), dtype=np.int64), repeats)
    rows, _ = run(timestamps, lower, upper)
    inside = [
        row
        for row, value in enumerate(timestamps.tolist())
        if (lower is None or value >= lower) and (upper is None or value <= upper)
    ]
    assert list(rows) == inside


def test_no_bounds_need_no_look() -> None:
    assert run(np.arange(100_000), None, None) == (range(100_000), [])
    assert run(np.arange(100_000), None, GREATEST) == (range(100_000), [])


def test_bounds_that_contradict_each_other_need_no_look() -> None:
    assert run(np.arange(100_000), 7, 6) == (range(0), [])


def test_a_small_partition_takes_one_look_for_both_bounds() -> None:
    assert run(np.arange(WINDOW_ROWS), 1000, 1999) == (range(1000, 2000), [WINDOW_ROWS])


def test_rows_on_one_side_of_both_bounds_take_one_round_trip() -> None:
    assert run(np.arange(1_000_000), -5, 2_000_000) == (range(1_000_000), [PROBES])
    assert run(np.arange(1_000_000), 2_000_000, 3_000_000) == (range(1_000_000, 1_000_000), [PROBES])


class _Ascending:
    """Timestamps of more rows than memory holds: row r has the timestamp 10 * r."""

    def __len__(self) -> int:
        return 200_000_000

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.arange(rows.start, rows.stop, dtype=np.int64) * 10


def test_a_large_partition_takes_four_round_trips() -> None:
    rows, round_trips = run(_Ascending(), 1_234_567_891, 1_234_569_000)  # type: ignore[arg-type]
    assert rows == range(123_456_790, 123_456_901)
    assert len(round_trips) == 4
    assert round_trips[:3] == [PROBES] * 3  # both bounds share their probes as long as they are near each other
    assert round_trips[3] <= WINDOW_ROWS


@pytest.mark.parametrize("row_count", [10, 100_000])
def test_unsorted_timestamps_are_refused(row_count: int) -> None:
    timestamps = np.arange(row_count)[::-1].copy()
    with pytest.raises(FormatError, match="smaller than that of a row before it") as caught:
        run(timestamps, row_count // 3, 2 * row_count // 3)
    assert caught.value.path == "ts.d"


def test_rows_are_not_known_before_the_end() -> None:
    with pytest.raises(InternalError):
        _ = TimeSearch(10, lower=3, upper=None, path="ts.d").rows
