"""The bounds of the designated timestamp that a predicate implies: never too narrow, and exact where they say so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.filter import filter_rows
from coldparquet.errors import FormatError, InternalError
from coldparquet.expressions.where import parse_predicate
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.plan.bind import (
    BoundComparison,
    BoundField,
    BoundIn,
    BoundIsNull,
    BoundPredicate,
    ConstantUnlessNull,
    bind,
)
from coldparquet.plan.native import PROBES, WINDOW_ROWS, TimeSearch
from coldparquet.plan.predicate import Literal, Operator
from coldparquet.plan.prune import is_time_range, timestamp_bounds
from tests.support.predicate_trees import trees

TS = BoundField("ts", 0, canonical_type(TypeTag.TIMESTAMP))
X = BoundField("x", 1, canonical_type(TypeTag.INT))
FIELDS = {field.name: field for field in (TS, X)}
SECOND = 1_000_000
NONE = (1, 0)
"""Stands for any bounds that hold nothing."""

ROWS = pa.table(
    {
        "ts": pa.array([value for value in range(12) for _ in range(3)], pa.timestamp("us", "UTC")),
        "x": pa.array([1, 2, None] * 12, pa.int32()),
    }
)


@pytest.mark.parametrize(
    ("where", "bounds", "is_exact"),
    [
        ("ts >= '1970-01-01T00:00:01Z' AND ts < '1970-01-01T00:00:02Z'", (SECOND, 2 * SECOND - 1), True),
        ("ts = '1970-01-01T00:00:01Z'", (SECOND, SECOND), True),
        ("ts > '1970-01-01T00:00:01Z'", (SECOND + 1, None), True),
        ("ts <= '1970-01-01T00:00:01Z'", (None, SECOND), True),
        ("ts != '1970-01-01T00:00:01Z'", (None, None), False),
        ("NOT ts < '1970-01-01T00:00:01Z'", (SECOND, None), True),
        ("NOT (ts < '1970-01-01T00:00:01Z' OR ts >= '1970-01-01T00:00:03Z')", (None, None), False),
        ("ts BETWEEN '1970-01-01T00:00:01Z' AND '1970-01-01T00:00:03Z'", (SECOND, 3 * SECOND), True),
        ("ts IN ('1970-01-01T00:00:03Z', '1970-01-01T00:00:01Z')", (SECOND, 3 * SECOND), False),
        ("ts < '1970-01-01T00:00:01Z' AND ts > '1970-01-01T00:00:03Z'", NONE, True),
        ("ts < '1970-01-01T00:00:01Z' OR ts >= '1970-01-01T00:00:01Z'", (None, None), True),
        ("ts < '1970-01-01T00:00:01Z' OR ts >= '1970-01-01T00:00:03Z'", (None, None), False),
        ("ts = '1970-01-01T00:00:01Z' OR ts = '1970-01-01T00:00:03Z'", (SECOND, 3 * SECOND), False),
        ("ts >= '1970-01-01T00:00:01Z' AND x = 3", (SECOND, None), False),
        ("ts >= '1970-01-01T00:00:01Z' OR x = 3", (None, None), False),
        ("x = 3", (None, None), False),
        ("ts IS NULL", NONE, True),
        ("ts IS NOT NULL", (None, None), True),
    ],
)
def test_bounds_of_a_predicate(where: str, bounds: tuple[int | None, int | None], is_exact: bool) -> None:
    predicate = parse_predicate(where)
    assert predicate is not None
    bound = bind(predicate, FIELDS)
    lower, upper = timestamp_bounds(bound, 0)
    if bounds == NONE:
        assert lower is not None
        assert upper is not None
        assert lower > upper
    else:
        assert (lower, upper) == bounds
    assert is_time_range(bound, 0) == is_exact


def test_no_predicate_selects_every_row() -> None:
    assert timestamp_bounds(None, 0) == (None, None)
    assert is_time_range(None, 0)


def test_a_table_without_designated_timestamp_has_no_bounds() -> None:
    bound = BoundComparison(TS, Operator.GREATER, 5)
    assert timestamp_bounds(bound, None) == (None, None)
    assert not is_time_range(bound, None)


LEAVES = st.one_of(
    st.builds(BoundComparison, st.just(TS), st.sampled_from(Operator), st.integers(-1, 12)),
    st.builds(BoundComparison, st.just(X), st.sampled_from(Operator), st.integers(0, 3)),
    st.builds(lambda values: BoundIn(TS, tuple(sorted(values))), st.sets(st.integers(-1, 12), min_size=2, max_size=4)),
    st.builds(BoundIsNull, st.sampled_from([TS, X])),
    st.builds(ConstantUnlessNull, st.sampled_from([TS, X]), st.booleans()),
    st.builds(Literal, st.sampled_from([True, False, None])),
)
PREDICATES = trees(LEAVES)


@given(PREDICATES)
def test_no_selected_row_lies_outside_the_bounds(predicate: BoundPredicate) -> None:
    lower, upper = timestamp_bounds(predicate, 0)
    selected = timestamps(filter_rows(predicate, ROWS))
    inside = [
        value for value in timestamps(ROWS) if (lower is None or value >= lower) and (upper is None or value <= upper)
    ]
    assert set(selected) <= set(inside)
    if is_time_range(predicate, 0):
        assert selected == inside


def timestamps(rows: pa.Table) -> list[int]:
    return [value.value for value in rows.column("ts")]


# --- Finding the rows of a time range: the right ones, with few looks -------------------------------------------------


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
