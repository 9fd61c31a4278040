"""Pruning with the statistics of values that are converted: no outcome of a converted row is ever ruled out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode.arrow import PLAIN_TEXT, TEXT_AS_STORED, arrow_type
from coldparquet.decode.conversion import convert_values
from coldparquet.decode.filter import filter_rows
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import UnsupportedError
from coldparquet.format.sidecar import Sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import ChunkSpec
from coldparquet.format.type_codes import parse_type_name
from coldparquet.format.types import ColumnType, resolve_type
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.predicate import Comparison, In, IsNull, Not, Operator, Predicate
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.plan.type_changes import can_convert
from tests.support.golden_values import type_named
from tests.support.one_column import bound_text, chunk, one_column
from tests.support.row_outcomes import filter_outcomes

INT32, INT64 = PhysicalType.INT32, PhysicalType.INT64


@dataclass(frozen=True, slots=True)
class Domain:
    """Values as a file stores them: integers in the column's own unit, floats, text."""

    values: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]


def integers(bits: int, pattern: str) -> Domain:
    limit = 1 << (bits - 1)
    edges = st.sampled_from([0, 1, -1, 127, 128, 300, 40_000, 2**24 + 1, 2**31, 2**53 + 1, limit - 1, 1 - limit])
    whole = st.one_of(edges, st.integers(-limit + 1, limit - 1), st.integers(-5, 5))
    return Domain(whole.filter(lambda value: -limit < value < limit), lambda value: struct.pack(pattern, value))


def floats(width: int, pattern: str) -> Domain:
    values = st.one_of(st.floats(width=width, allow_nan=False), st.integers(-300, 300).map(float))  # type: ignore[arg-type]
    return Domain(values, lambda value: struct.pack(pattern, value))


TEXT = Domain(st.one_of(st.integers(-200, 200).map(str), st.text("ab1", max_size=3).filter(bool)), str.encode)
DOMAINS = {
    "BYTE": integers(8, "<i"),
    "SHORT": integers(16, "<i"),
    "INT": integers(32, "<i"),
    "LONG": integers(64, "<q"),
    "DATE": integers(64, "<q"),
    "TIMESTAMP": integers(64, "<q"),
    "TIMESTAMP_NS": integers(64, "<q"),
    "FLOAT": floats(32, "<f"),
    "DOUBLE": floats(64, "<d"),
    "VARCHAR": TEXT,
    "SYMBOL": TEXT,
}
LITERALS = {
    "BOOLEAN": st.booleans(),
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "DATE", "TIMESTAMP", "TIMESTAMP_NS"), DOMAINS["LONG"].values),
    **dict.fromkeys(("FLOAT", "DOUBLE"), st.one_of(DOMAINS["LONG"].values, DOMAINS["FLOAT"].values)),
    **dict.fromkeys(("STRING", "VARCHAR", "SYMBOL"), TEXT.values),
}
PAIRS = [
    (stored, wanted)
    for stored in DOMAINS
    for wanted in LITERALS
    if stored != wanted and can_convert(type_named(stored), type_named(wanted))
]


def chunk_of(domain: Domain, rows: list[Any], draw: Callable[[st.SearchStrategy[Any]], Any]) -> ChunkSpec:
    bounded = sorted(row for row in rows if row is not None)
    nulls = len(rows) - len(bounded)
    low = domain.encode(bounded[0]) if bounded and draw(st.integers(0, 4)) else None
    high = domain.encode(bounded[-1]) if bounded and draw(st.integers(0, 4)) else None
    return chunk(low, high, draw(st.sampled_from([nulls, nulls, None])), num_values=len(rows))


def sidecar_of(type_: ColumnType, type_code: int, chunks: list[ChunkSpec], *, is_optional: bool = True) -> Sidecar:
    return one_column(
        chunks, type_code, type_.physical_type, max_def_level=int(is_optional), rows=None, is_writer_noted=False
    )


def predicates(wanted: str) -> st.SearchStrategy[Predicate]:
    literals = LITERALS[wanted]
    operators = st.sampled_from([Operator.EQUAL, Operator.NOT_EQUAL] if wanted == "BOOLEAN" else list(Operator))
    leaf = st.one_of(
        st.builds(Comparison, st.just("x"), operators, literals),
        st.builds(In, st.just("x"), st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.just(IsNull("x")),
    )
    return st.one_of(leaf, leaf.map(Not))


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
@settings(max_examples=4)
@given(data=st.data())
def test_no_outcome_of_a_converted_row_is_ruled_out(stored: str, wanted: str, data: st.DataObject) -> None:
    check_pruning(stored, wanted, data)


@pytest.mark.soak
@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
@settings(max_examples=2_000)
@given(data=st.data())
def test_no_outcome_of_a_converted_row_is_ruled_out_in_many_cases(
    stored: str, wanted: str, data: st.DataObject
) -> None:
    check_pruning(stored, wanted, data)


def check_pruning(stored: str, wanted: str, data: st.DataObject) -> None:
    """Convert, then filter all rows; compare with what pruning says of the row groups before the conversion."""
    domain, source, target = DOMAINS[stored], type_named(stored), type_named(wanted)
    groups = data.draw(st.lists(st.lists(st.one_of(st.none(), domain.values, domain.values), min_size=1, max_size=4),
                                min_size=1, max_size=4), "rows")  # fmt: skip
    sidecar = sidecar_of(source, parse_type_name(stored), [chunk_of(domain, rows, data.draw) for rows in groups])
    field = BoundField("x", 0, target)
    bound = bind(data.draw(predicates(wanted), "predicate"), {"x": field})
    verdict, _ = prune(bound, SidecarStatistics(sidecar, {0: 0}), len(groups))
    for index, rows in enumerate(groups):
        table = converted(rows, source, target)
        if table is None:
            continue  # reading the row group raises, whatever the pruning
        outcomes = set(filter_outcomes(bound, table))
        possible = {True: verdict.may_be_true, False: verdict.may_be_false, None: verdict.may_be_null}
        assert not {outcome for outcome in outcomes if not possible[outcome][index]}, (index, outcomes)
        assert verdict.survives[index] or filter_rows(bound, table).num_rows == 0
        assert not verdict.all_rows_match[index] or filter_rows(bound, table).num_rows == len(rows)


def converted(rows: list[Any], source: ColumnType, target: ColumnType) -> pa.Table | None:
    """Return the rows as reading converts them, None if it refuses them."""
    type_: Any = arrow_type(source, text=PLAIN_TEXT)
    plain: Any = pa.array(rows, pa.int64()).cast(type_) if pa.types.is_timestamp(type_) else pa.array(rows, type_)
    result = arrow_type(target, text=TEXT_AS_STORED)
    label = ChunkLabel(path=None, row_group=0, columns=("x",))
    try:
        return pa.table({"x": convert_values(plain, source, target, result=result, label=label)})
    except UnsupportedError:
        return None


def outcome(sidecar: Sidecar, wanted: str, where: str) -> tuple[bool, bool]:
    """Return whether the only row group survives, and whether all of its rows match."""
    bound = bound_text(where, BoundField("x", 0, type_named(wanted)))
    verdict, _ = prune(bound, SidecarStatistics(sidecar, {0: 0}), 1)
    return bool(verdict.survives[0]), bool(verdict.all_rows_match[0])


def of_type(name: str, low: Any, high: Any, nulls: int | None = 0, *, is_optional: bool = True) -> Sidecar:
    encode = DOMAINS[name].encode
    chunks = [chunk(encode(low), encode(high), nulls)]
    return sidecar_of(type_named(name), parse_type_name(name), chunks, is_optional=is_optional)


@pytest.mark.parametrize(
    ("stored", "bounds", "wanted", "where", "expected"),
    [
        ("INT", (10, 20), "LONG", "x > 20", (False, False)),
        ("INT", (10, 20), "LONG", "x >= 10", (True, True)),
        ("INT", (10, 20), "LONG", "x is null", (False, False)),
        ("INT", (10, 20), "DOUBLE", "x < 9.5", (False, False)),
        ("INT", (10, 20), "DOUBLE", "x > 9.5", (True, True)),
        ("LONG", (2**53, 2**53 + 1), "DOUBLE", "x = 9007199254740992", (True, True)),
        ("INT", (2**24 + 1, 2**24 + 1), "FLOAT", "x = 16777216", (True, True)),
        ("INT", (10, 20), "TIMESTAMP", "x > '1970-01-01T00:00:00.000020Z'", (False, False)),
        ("TIMESTAMP", (10, 20), "LONG", "x <= 20", (True, True)),
        ("DATE", (10, 20), "TIMESTAMP", "x > '1970-01-01T00:00:00.020Z'", (False, False)),
        ("DATE", (10, 20), "TIMESTAMP_NS", "x >= '1970-01-01T00:00:00.010Z'", (True, True)),
        ("VARCHAR", ("a", "b"), "SYMBOL", "x = 'c'", (False, False)),
        ("SYMBOL", ("a", "a"), "STRING", "x = 'a'", (True, True)),
        ("FLOAT", (1.0, 2.0), "DOUBLE", "x > 3", (False, False)),
        # Order or exactness is lost: nothing is dropped, nothing taken as a whole.
        ("INT", (10, 20), "BYTE", "x > 20", (True, False)),
        ("LONG", (10, 20), "INT", "x >= 10", (True, False)),
        ("DOUBLE", (1.0, 2.0), "FLOAT", "x > 3", (True, False)),
        ("FLOAT", (1.0, 2.0), "DOUBLE", "x < 3", (True, False)),
        ("INT", (10, 20), "VARCHAR", "x = '5'", (True, False)),
        ("VARCHAR", ("10", "20"), "INT", "x > 30", (True, False)),
        ("TIMESTAMP", (10, 20), "DATE", "x > '2024-01-01'", (True, False)),
        ("DATE", (10, 2**62), "TIMESTAMP", "x > '1970-01-02'", (True, False)),
        ("INT", (10, 20), "BOOLEAN", "x = false", (True, False)),
        ("INT", (10, 20), "DECIMAL(18,3)", "x > 30", (True, False)),
    ],
)  # fmt: skip
def test_what_is_left_of_statistics(
    stored: str, bounds: tuple[Any, Any], wanted: str, where: str, expected: tuple[bool, bool]
) -> None:
    assert outcome(of_type(stored, *bounds), wanted, where) == expected


def test_wrapped_values_may_be_null() -> None:
    beyond = of_type("DATE", 10, 2**62)
    assert outcome(beyond, "TIMESTAMP", "x is null") == (True, False)
    assert outcome(of_type("DATE", 10, 20), "TIMESTAMP", "x is null") == (False, False)


@pytest.mark.parametrize(("is_optional", "nulls", "expected"), [(True, 0, True), (True, 4, True), (False, 4, False)])
def test_rows_from_before_a_byte_column_existed_may_be_null(*, is_optional: bool, nulls: int, expected: bool) -> None:
    """Where a file marks them they become null, so a row group may hold some; REQUIRED files hold 0."""
    sidecar = of_type("BYTE", 5, 9, nulls, is_optional=is_optional)
    assert outcome(sidecar, "INT", "x is null") == (expected, False)
    assert outcome(sidecar, "INT", "x > 9") == (False, False)
    assert outcome(sidecar, "INT", "x = 0") == (nulls > 0, False)
    assert outcome(sidecar, "SHORT", "x > 9") == (False, False)


def test_dates_counted_in_days_bound_dates() -> None:
    days = resolve_type(7, INT32, 0, 0)
    sidecar = sidecar_of(days, 7, [chunk(struct.pack("<i", 19_782), struct.pack("<i", 19_783))])
    assert outcome(sidecar, "DATE", "x < '2024-02-29'") == (False, False)
    assert outcome(sidecar, "DATE", "x < '2024-03-02'") == (True, True)
    assert outcome(sidecar, "TIMESTAMP", "x > '2024-03-01T00:00:00.000001Z'") == (False, False)


def test_nulls_stay_nulls() -> None:
    nothing = sidecar_of(type_named("DATE"), 7, [chunk(nulls=10)])
    assert outcome(nothing, "TIMESTAMP", "x > 0") == (False, False)
    assert outcome(nothing, "TIMESTAMP", "x is null") == (True, True)
    unknown = sidecar_of(type_named("DATE"), 7, [chunk(nulls=None)])
    assert outcome(unknown, "TIMESTAMP", "x > 0") == (True, False)
    assert outcome(unknown, "TIMESTAMP", "x is null") == (True, False)
