"""Never lose a row: verdicts from statistics against an independent evaluation of every row.

Each `Domain` is one type: how its rows and literals are made, how its bounds are stored, and how both become things
that Python itself compares exactly (fractions, strings, bytes), without the code under test.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.errors import InternalError
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import ChunkSpec
from coldparquet.format.types import resolve_type
from coldparquet.plan.bind import BoundComparison, BoundField, BoundIn, BoundIsNull, BoundPredicate, bind
from coldparquet.plan.predicate import (
    Comparison,
    In,
    Instant,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Predicate,
    StartsWith,
    col,
)
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from tests.support.golden_values import FILES, GOLDEN, domain_values, sidecar_of, some_of
from tests.support.one_column import chunk, one_column
from tests.support.predicate_trees import COMPARE, trees, truth
from tests.support.row_outcomes import has_form

INT32, INT64, BYTES = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.BYTE_ARRAY
FIXED = PhysicalType.FIXED_LEN_BYTE_ARRAY


def exact(value: Any) -> Any:
    """Turn a number into something that compares exactly with every other number."""
    return value if isinstance(value, float) and not math.isfinite(value) else Fraction(value)


def like_a_double(literal: Any) -> Any:
    is_rounded = isinstance(literal, Decimal) and (not literal.is_finite() or math.isfinite(float(literal)))
    return exact(float(literal) if is_rounded else literal)  # 1e400 is no infinity, only larger than every double


def of_unit(nanoseconds: int) -> Callable[[Any], Any]:
    return lambda value: Fraction(value.nanoseconds, nanoseconds) if isinstance(value, Instant) else exact(value)


@dataclass(frozen=True)
class Domain:
    """One column type under test."""

    type_code: int
    physical_type: PhysicalType
    rows: st.SearchStrategy[Any]
    literals: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    row_value: Callable[[Any], Any] = exact
    literal_value: Callable[[Any], Any] = exact
    width: int = 0
    zero_when_null: bool = False
    has_order: bool = True
    widen: Callable[[Any, Any], tuple[Any, Any]] = lambda low, high: (low, high)
    """Loosens a pair of bounds as a writer may do, on encoded bytes."""


def packed(layout: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(layout, value)


def near(*edges: int) -> st.SearchStrategy[int]:
    """Few numbers, so that bounds, rows and literals meet often."""
    return st.one_of(st.integers(-4, 4), *(st.integers(edge - 1, edge + 1) for edge in edges))


def within(low: int, high: int) -> st.SearchStrategy[int]:
    return near(low, high).filter(lambda value: low <= value <= high)


FRACTIONS = st.sampled_from([Decimal("0.5"), -1.5, 2.25, math.inf, -math.inf, Decimal("1e30"), 1e-300])
TEXT = st.text(alphabet="ab\0é", max_size=3).flatmap(lambda tail: st.sampled_from([tail, "prefix-of-8" + tail]))
PATTERNS = st.tuples(TEXT, st.text("%_ab\\", max_size=3)).map("".join)
DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.0**53, 1e308, 5e-324])
SINGLES = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 0.10000000149011612])
FLOAT_LITERALS = st.one_of(
    near(2**53, 2**1024), st.sampled_from([0.0, -0.0, 0.1, Decimal("0.1"), Decimal("1e400"), math.inf, -1.5])
)


def integers(
    type_code: int, physical_type: PhysicalType, layout: str, low: int, high: int, *, zero_when_null: bool = False
) -> Domain:
    literals = st.one_of(near(low, high), FRACTIONS)
    return Domain(type_code, physical_type, within(low, high), literals, packed(layout), zero_when_null=zero_when_null)


def instants(type_code: int, physical_type: PhysicalType, layout: str, unit_ns: int) -> Domain:
    literals = st.one_of(
        near(), st.integers(-3 * unit_ns, 3 * unit_ns).map(Instant), st.just(Instant(0, has_rest=False))
    )
    convert = of_unit(unit_ns)
    return Domain(type_code, physical_type, near(), literals, packed(layout), literal_value=convert)


def byte_strings(
    type_code: int, *, literals: st.SearchStrategy[Any], rows: st.SearchStrategy[bytes], **more: Any
) -> Domain:
    def as_bytes(value: Any) -> bytes:
        return value.encode() if isinstance(value, str) else bytes(value)

    return Domain(type_code, more.pop("physical_type", BYTES), rows, literals, bytes, row_value=bytes,
                  literal_value=more.pop("literal_value", as_bytes), **more)  # fmt: skip


def truncated(low: bytes, high: bytes) -> tuple[bytes, bytes]:
    """Cut bounds to 8 bytes; the upper one goes up by one in its last byte that can."""
    kept = high[:8]
    while kept and kept[-1] == 0xFF:
        kept = kept[:-1]
    upper = kept[:-1] + bytes([kept[-1] + 1]) if len(high) > 8 and kept else high
    return low[:8], upper


def like_questdb(low: bytes, high: bytes) -> tuple[bytes, bytes]:
    """QuestDB's rule for BINARY: at most 9 bytes, all ones where no larger prefix exists."""
    if len(high) <= 8:
        return low[:9], high
    number = int.from_bytes(high[:8], "big") + 1
    return low[:9], b"\xff" * 9 if number == 1 << 64 else number.to_bytes(8, "big")


def decimals(type_code: int, physical_type: PhysicalType, encode: Callable[[int], bytes], width: int = 0) -> Domain:
    literals = st.one_of(
        near().map(lambda n: Decimal(n) / 100),
        near(99_999).map(lambda n: Decimal(n) / 1000),
        st.sampled_from([10**6, -0.125, "0.02"]),
    )
    return Domain(type_code, physical_type, within(-99_999, 99_999), literals, encode, width=width,
                  row_value=lambda unscaled: Fraction(unscaled, 100), literal_value=Fraction)  # fmt: skip


def shortest_big_endian(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)


BINARY_VALUES = st.sampled_from(
    [b"a", b"a\0", b"prefix-1", b"prefix-12", b"prefix-13", b"\xff" * 8, b"\xff" * 9, b"\xff" * 12]
)
SIXTEEN = st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\xff" * 16])
DECIMAL_5_2 = 30 | 5 << 8 | 2 << 18

DOMAINS = {
    "byte": integers(2, INT32, "<i", -128, 127, zero_when_null=True),
    "short": integers(3, INT32, "<i", -(2**15), 2**15 - 1, zero_when_null=True),
    "char": integers(4, INT32, "<i", 0, 0xFFFF, zero_when_null=True),
    "int": integers(5, INT32, "<i", -(2**31), 2**31 - 1),
    "long": integers(6, INT64, "<q", -(2**63), 2**63 - 1),
    "geohash": integers(75_793, INT64, "<q", -1, 2**40 - 1),
    "date": instants(7, INT64, "<q", 10**6),
    "date32": instants(7, INT32, "<i", 86_400 * 10**9),
    "timestamp": instants(8, INT64, "<q", 10**3),
    "timestamp_ns": instants(262_152, INT64, "<q", 1),
    "ipv4": Domain(25, INT32, within(0, 2**32 - 1), st.one_of(near(2**32), within(0, 2**32 - 1).map(IPv4Address)), packed("<I"),
                   literal_value=lambda literal: Fraction(int(literal))),
    "float": Domain(9, PhysicalType.FLOAT, SINGLES, FLOAT_LITERALS, packed("<f"), literal_value=like_a_double),
    "double": Domain(10, PhysicalType.DOUBLE, DOUBLES, FLOAT_LITERALS, packed("<d"), literal_value=like_a_double),
    "varchar": byte_strings(26, rows=TEXT.map(str.encode), literals=TEXT, widen=truncated),
    "symbol": byte_strings(12, rows=TEXT.map(str.encode), literals=TEXT),
    "binary": byte_strings(18, rows=BINARY_VALUES, literals=BINARY_VALUES, widen=like_questdb),
    "uuid": byte_strings(19, rows=SIXTEEN, literals=SIXTEEN.map(lambda b: UUID(bytes=b)), physical_type=FIXED, width=16,
                         literal_value=lambda uuid: uuid.bytes),
    "long128": byte_strings(24, rows=SIXTEEN, literals=SIXTEEN, physical_type=FIXED, width=16, has_order=False),
    "decimal_fixed": decimals(DECIMAL_5_2, FIXED, lambda value: value.to_bytes(5, "big", signed=True), width=5),
    "decimal_bytes": decimals(DECIMAL_5_2, BYTES, shortest_big_endian),
    "decimal_int32": decimals(DECIMAL_5_2, INT32, packed("<i")),
    "decimal128": decimals(32 | 20 << 8 | 2 << 18, FIXED, lambda value: value.to_bytes(16, "big", signed=True), width=16),
    "boolean": Domain(1, PhysicalType.BOOLEAN, st.booleans(), st.booleans(), packed("<?"), has_order=False),
}  # fmt: skip


def evaluate(predicate: Predicate, domain: Domain, row: Any) -> bool | None:
    def of_leaf(leaf: Predicate) -> bool | None:
        if isinstance(leaf, IsNull):
            return row is None
        if isinstance(leaf, StartsWith):
            return None if row is None else bool(row.startswith(leaf.prefix.encode()))
        if isinstance(leaf, Like):
            return None if row is None else has_form(row.decode(), leaf.pattern)
        assert isinstance(leaf, Comparison)
        if row is None or leaf.value is None:
            return None
        return bool(COMPARE[leaf.operator](domain.row_value(row), domain.literal_value(leaf.value)))

    return truth(predicate, of_leaf)


def chunk_of(domain: Domain, rows: list[Any], draw: Callable[[st.SearchStrategy[Any]], Any]) -> ChunkSpec:
    """Write the statistics of rows as some writer would: exact, loosened, one-sided or not at all."""
    bounded = sorted((row for row in rows if row is not None and row == row), key=domain.row_value)  # noqa: PLR0124
    low = high = None
    if bounded:
        low, high = domain.encode(bounded[0]), domain.encode(bounded[-1])
        if draw(st.booleans()):
            low, high = domain.widen(low, high)
    nulls = sum(row is None for row in rows)
    if draw(st.integers(0, 4)) == 0:
        low = None
    if draw(st.integers(0, 4)) == 0:
        high = None
    return chunk(low, high, draw(st.sampled_from([nulls, nulls, None])), num_values=len(rows))


def predicates(domain: Domain) -> st.SearchStrategy[Predicate]:
    literals = st.one_of(domain.literals, domain.literals, st.none())
    operators = st.sampled_from(Operator if domain.has_order else [Operator.EQUAL, Operator.NOT_EQUAL])
    leaf = st.one_of(
        st.builds(Comparison, st.just("x"), operators, literals),
        st.builds(Comparison, st.just("x"), operators, literals),
        st.builds(In, st.just("x"), st.lists(literals, max_size=4).map(tuple)),
        st.just(IsNull("x")),
        st.builds(Literal, st.sampled_from([True, False, None])),
        *([st.builds(StartsWith, st.just("x"), domain.literals)] if domain.literals is TEXT else []),
        *([st.builds(Like, st.just("x"), PATTERNS)] if domain.literals is TEXT else []),
    )
    return trees(leaf, least=0, max_leaves=5)


@pytest.mark.parametrize("name", DOMAINS)
@settings(max_examples=12)
@given(data=st.data())
def test_no_outcome_of_a_row_is_ruled_out(name: str, data: st.DataObject) -> None:
    check_verdict(DOMAINS[name], data)


@pytest.mark.soak
@pytest.mark.parametrize("name", DOMAINS)
@settings(max_examples=2_000)
@given(data=st.data())
def test_no_outcome_of_a_row_is_ruled_out_in_many_cases(name: str, data: st.DataObject) -> None:
    check_verdict(DOMAINS[name], data)


def check_verdict(domain: Domain, data: st.DataObject) -> None:
    groups = data.draw(
        st.lists(st.lists(st.one_of(st.none(), domain.rows, domain.rows), max_size=4), max_size=4), "rows"
    )
    is_boolean = domain.physical_type is PhysicalType.BOOLEAN
    # QuestDB writes types without NULL as REQUIRED; rows from before the column was added count as NULL and hold 0.
    sidecar = one_column(
        [chunk_of(domain, rows, data.draw) for rows in groups],
        domain.type_code,
        domain.physical_type,
        width=domain.width,
        max_def_level=0 if domain.zero_when_null else 1,
        rows=None,
    )
    field = BoundField("x", 0, resolve_type(domain.type_code, domain.physical_type, domain.width, 0))
    predicate = data.draw(predicates(domain), "predicate")

    verdict, report = prune(bind(predicate, {"x": field}), SidecarStatistics(sidecar), len(groups))

    missing = 0 if domain.zero_when_null else False if is_boolean else None
    for index, rows in enumerate(groups):
        outcomes = {evaluate(predicate, domain, missing if row is None else row) for row in rows}
        possible = {True: verdict.may_be_true, False: verdict.may_be_false, None: verdict.may_be_null}
        ruled_out = {outcome for outcome, may_be in possible.items() if not may_be[index]}
        assert not outcomes & ruled_out, f"row group {index}: {outcomes} of {rows}"
        assert not verdict.all_rows_match[index] or outcomes <= {True}
    assert all(0 <= condition.row_groups <= len(groups) for condition in report.dropped)


NUMBERS = resolve_type(6, INT64, 0, 0)
DOUBLE = resolve_type(10, PhysicalType.DOUBLE, 0, 0)


def statistics_of(*intervals: tuple[float, float], type_code: int = 6, nulls: int = 0) -> SidecarStatistics:
    is_double = type_code == 10
    encode = packed("<d" if is_double else "<q")
    chunks = [chunk(encode(low), encode(high), nulls) for low, high in intervals]
    return SidecarStatistics(one_column(chunks, type_code, PhysicalType.DOUBLE if is_double else INT64))


@pytest.mark.parametrize(
    ("predicate", "survivors", "all_match"),
    [
        (col("x") == 5, "010", "000"),
        (col("x") == 7, "011", "001"),
        (col("x") != 7, "110", "100"),
        (col("x") < 3, "100", "000"),
        (col("x") <= 3, "110", "100"),
        (col("x") > 7, "000", "000"),
        (col("x") >= 7, "011", "001"),
        (col("x") > 3, "011", "001"),
        (~(col("x") > 3), "110", "100"),
        (col("x").between(4, 6), "010", "000"),
        (col("x").is_in([0, 4, 9]), "010", "000"),
        (col("x").is_in([7, 8]), "011", "001"),
        (~col("x").is_in([7, 8]), "110", "100"),
        (col("x").is_in([8, 9, None]), "000", "000"),
        ((col("x") < 3) | (col("x") > 6), "111", "001"),
        ((col("x") > 3) & ~(col("x") > 3), "010", "000"),
        (col("x").is_null(), "000", "000"),
        (col("x").is_not_null(), "111", "111"),
        (col("x") == 3.5, "000", "000"),
        (col("x") != 3.5, "111", "111"),
        (col("x") < 10**30, "111", "111"),
        (Literal(value=True), "111", "111"),
        (Literal(None), "000", "000"),
    ],
)
def test_what_is_pruned_and_what_needs_no_filter(predicate: Predicate, survivors: str, all_match: str) -> None:
    """Row groups hold 1..3, 3..7 and 7..7."""
    bound = bind(predicate, {"x": BoundField("x", 0, NUMBERS)})
    verdict, _ = prune(bound, statistics_of((1, 3), (3, 7), (7, 7)), 3)
    assert "".join("01"[bit] for bit in verdict.survives.astype(int)) == survivors
    assert "".join("01"[bit] for bit in verdict.all_rows_match.astype(int)) == all_match


def test_floats_may_hide_nan() -> None:
    field = BoundField("x", 0, DOUBLE)
    statistics = statistics_of((1.0, 1.0), type_code=10)
    outcomes = {}
    for predicate in (
        col("x") > 0,
        ~(col("x") > 0),
        col("x") != 1,
        col("x") == 1,
        col("x").is_in([1, 2]),
        col("x") > 1,
    ):
        verdict, _ = prune(bind(predicate, {"x": field}), statistics, 1)
        outcomes[str(predicate)] = (bool(verdict.survives[0]), bool(verdict.all_rows_match[0]))
    assert outcomes == {
        "x > 0": (True, False),
        "NOT (x > 0)": (True, False),
        "x != 1": (True, False),
        "x = 1": (True, False),
        "x IN (1, 2)": (True, False),
        "x > 1": (False, False),
    }


def test_report_counts_what_each_condition_drops() -> None:
    bound = bind(
        (col("x") > 3) & (col("x") < 7) & ((col("x") == 1) | (col("x") == 2)), {"x": BoundField("x", 0, NUMBERS)}
    )
    verdict, report = prune(bound, statistics_of((1, 3), (3, 7), (7, 7)), 3)
    assert not verdict.survives.any()
    assert report.dropped == (("x > 3", 1), ("x < 7", 1), ("x IN (1, 2)", 2))
    assert str(report).splitlines()[0] == "x > 3 dropped 1 of 3 row groups"


def test_100_000_values_prune_thousands_of_row_groups() -> None:
    statistics = statistics_of(*((number * 100, number * 100 + 9) for number in range(2_000)))
    wanted = range(50, 100_000, 3)
    bound = bind(col("x").is_in(wanted), {"x": BoundField("x", 0, NUMBERS)})
    verdict, _ = prune(bound, statistics, 2_000)
    expected = [any(number * 100 <= value <= number * 100 + 9 for value in range(number * 100, number * 100 + 10)
                    if value in wanted) for number in range(2_000)]  # fmt: skip
    assert verdict.survives.tolist() == expected


def test_number_of_row_groups_must_agree() -> None:
    bound = bind(col("x") > 3, {"x": BoundField("x", 0, NUMBERS)})
    with pytest.raises(InternalError, match="statistics of 1 row groups, expected 2"):
        prune(bound, statistics_of((1, 3)), 2)


# --- Statistics that QuestDB itself wrote must never rule out a value that the row group holds ------------------------


VALUES_TRIED = 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.parent.relative_to(GOLDEN)))
def test_values_of_genuine_files_survive(path: Path) -> None:
    sidecar = sidecar_of(path)
    file = pq.ParquetFile(path)
    statistics = SidecarStatistics(sidecar)
    assert sidecar.row_group_count == file.num_row_groups
    for index, column in enumerate(sidecar.columns):
        column_type = resolve_type(
            column.type_code, column.physical_type, column.fixed_byte_length, column.max_rep_level
        )
        field = BoundField(column.name, index, column_type)
        if index == sidecar.designated_timestamp:
            bounds = statistics.bounds(field)
            assert bounds is not None
            assert bounds.lower is not None
            assert bounds.lower.known.all()
        for row_group in range(sidecar.row_group_count):
            rows = file.read_row_group(row_group, columns=[column.name])[0]
            must_survive: list[BoundPredicate] = []
            if rows.null_count < len(rows):
                must_survive.append(Not(BoundIsNull(field)))
            if rows.null_count:
                must_survive.append(BoundIsNull(field))
            if column_type.arrow.name != "list":
                values = some_of(domain_values(rows, field), VALUES_TRIED)
                must_survive += [BoundComparison(field, Operator.EQUAL, value) for value in values]
                must_survive += [BoundIn(field, tuple(values))] if len(values) > 1 else []
            for predicate in must_survive:
                verdict, _ = prune(predicate, statistics, sidecar.row_group_count)
                assert verdict.survives[row_group], f"row group {row_group}: {predicate}"
