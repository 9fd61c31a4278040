"""The bounds of the designated timestamp that a predicate implies: never too narrow, and exact where they say so."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.filter import filter_rows
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
from coldparquet.plan.predicate import And, Literal, Not, Operator, Or
from coldparquet.plan.prune import is_time_range, timestamp_bounds
from coldparquet.plan.where import parse_predicate

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
PREDICATES: st.SearchStrategy[BoundPredicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)


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
