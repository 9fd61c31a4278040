from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import (
    MAX_DEPTH,
    NANOSECONDS_PER_UNIT,
    And,
    Comparison,
    In,
    Instant,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    col,
    format_instant,
    format_time_of_day,
    parse_instant,
    parse_time_of_day,
)

PRICE = col("price") > 3
SYMBOL = col("symbol").is_in(["BTC", "ETH"])


@pytest.mark.parametrize(
    ("predicate", "tree", "text"),
    [
        (col("a") == 1, Comparison("a", Operator.EQUAL, 1), "a = 1"),
        (col("a") != 1, Comparison("a", Operator.NOT_EQUAL, 1), "a != 1"),
        (col("a") < 1, Comparison("a", Operator.LESS, 1), "a < 1"),
        (col("a") <= 1, Comparison("a", Operator.LESS_OR_EQUAL, 1), "a <= 1"),
        (col("a") > 1, Comparison("a", Operator.GREATER, 1), "a > 1"),
        (col("a") >= 1, Comparison("a", Operator.GREATER_OR_EQUAL, 1), "a >= 1"),
        (1 < col("a"), Comparison("a", Operator.GREATER, 1), "a > 1"),  # noqa: SIM300 - the flipped form is the point
        (SYMBOL, In("symbol", ("BTC", "ETH")), "symbol IN ('BTC', 'ETH')"),
        (~SYMBOL, Not(SYMBOL), "symbol NOT IN ('BTC', 'ETH')"),
        (col("a").is_null(), IsNull("a"), "a IS NULL"),
        (~Like("a", r"%it's\__"), Not(Like("a", r"%it's\__")), r"a NOT LIKE '%it''s\__' ESCAPE '\'"),
        (~col("a").starts_with("it's"), Not(StartsWith("a", "it's")), "NOT (starts_with(a, 'it''s'))"),
        (col("a").is_not_null(), Not(IsNull("a")), "a IS NOT NULL"),
        (col("a").between(1, 2), And((col("a") >= 1, col("a") <= 2)), "a >= 1 AND a <= 2"),
        (PRICE & SYMBOL, And((PRICE, SYMBOL)), "price > 3 AND symbol IN ('BTC', 'ETH')"),
        (PRICE | SYMBOL, Or((PRICE, SYMBOL)), "price > 3 OR symbol IN ('BTC', 'ETH')"),
        (~PRICE, Not(PRICE), "NOT (price > 3)"),
        (
            PRICE & (SYMBOL | PRICE),
            And((PRICE, Or((SYMBOL, PRICE)))),
            "price > 3 AND (symbol IN ('BTC', 'ETH') OR price > 3)",
        ),
        (Literal(None) | Literal(True), Or((Literal(None), Literal(True))), "NULL OR TRUE"),
        (And(()), And(()), "TRUE"),
        (Or(()), Or(()), "FALSE"),
    ],
)
def test_expression_builds_tree_and_reads_as_sql(predicate: Predicate, tree: Predicate, text: str) -> None:
    assert predicate == tree
    assert hash(predicate) == hash(tree)
    assert str(predicate) == text
    assert pickle.loads(pickle.dumps(predicate)) == predicate  # noqa: S301
    assert copy.deepcopy(predicate) == predicate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's", "'it''s'"),
        (None, "NULL"),
        (True, "TRUE"),
        (-3, "-3"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "X'00ff'"),
        (datetime(2024, 3, 1, 12, tzinfo=UTC), "TIMESTAMP '2024-03-01T12:00:00+00:00'"),
        (date(2024, 3, 1), "DATE '2024-03-01'"),
        (time(12, 30), "'12:30:00'"),
        (Instant(1), "TIMESTAMP '1970-01-01T00:00:00.000000001Z'"),
        (Instant(0), "TIMESTAMP '1970-01-01T00:00:00Z'"),
        (np.datetime64("2024-03-01", "ms"), "TIMESTAMP '2024-03-01T00:00:00.000'"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
        (IPv4Address("1.2.3.4"), "'1.2.3.4'"),
    ],
)
def test_values_are_written_as_literals(value: object, text: str) -> None:
    assert str(col("a") == value) == f"a = {text}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ts", "ts"),
        ("Ts_2", "Ts_2"),
        ("select", '"select"'),
        ("IN", '"IN"'),
        ("a b", '"a b"'),
        ('a"b', '"a""b"'),
        ("größe", '"größe"'),
        ("2x", '"2x"'),
    ],
)
def test_names_are_quoted_where_sql_needs_it(name: str, text: str) -> None:
    assert str(col(name).is_null()) == f"{text} IS NULL"


@pytest.mark.parametrize(
    ("given", "kept", "type_"),
    [
        (np.int8(3), 3, int),
        (np.uint64(2**64 - 1), 2**64 - 1, int),
        (np.float32(0.1), 0.10000000149011612, float),
        (np.bool_(True), True, bool),
        (np.str_("x"), "x", str),
        (np.bytes_(b"x"), b"x", bytes),
        (bytearray(b"x"), b"x", bytes),
        (np.datetime64("NaT"), None, type(None)),
        (pd.NaT, None, type(None)),
        (float("nan"), None, type(None)),
        (np.float32("nan"), None, type(None)),
        (Decimal("sNaN"), None, type(None)),
    ],
)
def test_numpy_and_pandas_scalars_become_plain_values(given: object, kept: object, type_: type) -> None:
    comparison = col("a") == given
    assert isinstance(comparison, Comparison)
    assert comparison.value == kept
    assert type(comparison.value) is type_


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), np.timedelta64(1, "s"), 1j, col("b")])
def test_other_values_are_refused_when_the_predicate_is_built(value: object) -> None:
    with pytest.raises(InvalidInputError, match="column 'a' is compared with") as caught:
        _ = col("a") == value
    assert caught.value.kind == "InvalidLiteral"
    assert caught.value.details["column"] == "a"


def test_columns_are_listed_once_in_order_of_appearance() -> None:
    predicate = (col("b") > 1) & ~((col("a") < 2) | col("b").is_null()) & Literal(None)
    assert predicate.columns() == ("b", "a")


def test_negation_twice_is_the_predicate_itself() -> None:
    assert ~~PRICE is PRICE


@pytest.mark.parametrize(
    "misuse", [lambda: PRICE and SYMBOL, lambda: not PRICE, lambda: 1 < col("a") < 3, lambda: bool(SYMBOL)]
)
def test_truth_value_of_a_predicate_is_an_error_that_explains_itself(misuse: object) -> None:
    with pytest.raises(InvalidInputError, match=r"& \| ~ instead of 'and'") as caught:
        misuse()  # type: ignore[operator]
    assert caught.value.kind == "PredicateAsBoolean"


def test_column_has_no_truth_value_and_no_hash() -> None:
    with pytest.raises(InvalidInputError, match="compare it"):
        bool(col("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(col("a"))
    assert repr(col("a")) == "col('a')"


@pytest.mark.parametrize("values", ["BTC", b"BTC", 3, None])
def test_is_in_needs_several_values(values: object) -> None:
    with pytest.raises(InvalidInputError, match="expected several values"):
        col("a").is_in(values)  # type: ignore[arg-type]


def test_is_in_takes_arrays_and_generators() -> None:
    assert col("a").is_in(np.array([1, 2])) == col("a").is_in(x for x in (1, 2))


@pytest.mark.parametrize("name", ["", None, 3])
def test_columns_are_named_by_strings(name: object) -> None:
    with pytest.raises(InvalidInputError, match="non-empty string"):
        col(name)  # type: ignore[arg-type]


def test_only_predicates_combine_with_predicates() -> None:
    with pytest.raises(InvalidInputError, match="parentheses") as caught:
        _ = PRICE & 3  # type: ignore[operator]
    assert caught.value.kind == "InvalidPredicate"


def test_long_chains_stay_flat_and_deep_trees_are_refused() -> None:
    chain: Predicate = PRICE
    for number in range(1, 2000):
        chain &= col("a") > number
    assert chain.depth == 2
    assert str(chain).count(" AND ") == 1999

    deep: Predicate = PRICE
    for level in range(1, MAX_DEPTH):
        deep = (deep & SYMBOL) if level % 2 else (deep | SYMBOL)
    assert deep.depth == MAX_DEPTH
    with pytest.raises(InvalidInputError, match=f"deeper than {MAX_DEPTH} levels") as caught:
        _ = ~deep
    assert caught.value.kind == "PredicateTooDeep"
    # The deepest tree that can be built survives everything that recurses over it.
    assert pickle.loads(pickle.dumps(deep)) == copy.deepcopy(deep)  # noqa: S301
    assert str(deep).count("IN") == MAX_DEPTH - 1


def test_comparisons_without_parentheses_are_explained() -> None:
    with pytest.raises(InvalidInputError, match="parentheses"):
        _ = 100 & col("symbol")
    with pytest.raises(InvalidInputError, match="parentheses"):
        _ = col("a") | col("b")


UNITS = st.sampled_from(sorted(NANOSECONDS_PER_UNIT))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=OFFSETS), st.sampled_from("T "))
def test_iso_text_means_what_datetime_means(moment: datetime, separator: str) -> None:
    parsed = parse_instant(moment.isoformat(sep=separator))
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since_epoch.days * 86_400 + since_epoch.seconds) * 10**6 + since_epoch.microseconds
    assert parsed == Instant(microseconds * 1_000)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_nanoseconds_agree_with_numpy(nanoseconds: int) -> None:
    text = f"{np.datetime64(nanoseconds, 'ns')}"
    assert parse_instant(text) == Instant(nanoseconds)
    assert format_instant(nanoseconds, "ns") == f"{text}Z"


@given(st.integers(-719_162, 2_932_896), st.integers(0, 10**18), UNITS)
def test_text_of_every_unit_reads_back(days: int, part: int, unit: str) -> None:
    steps_per_day = NANOSECONDS_PER_UNIT["d"] // NANOSECONDS_PER_UNIT[unit]
    steps = days * steps_per_day + part % steps_per_day
    parsed = parse_instant(format_instant(steps, unit))
    assert parsed is not None
    assert parsed.in_unit(unit) == (steps, False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2024", "2024-01-01T00:00:00Z"),
        ("2024-03", "2024-03-01T00:00:00Z"),
        ("2024-03-01", "2024-03-01T00:00:00Z"),
        ("2024-03-01T12", "2024-03-01T12:00:00Z"),
        ("2024-03-01 12:30", "2024-03-01T12:30:00Z"),
        ("2024-03-01T12:30:00.5", "2024-03-01T12:30:00.500000Z"),
        ("2024-03-01t12:30:00z", "2024-03-01T12:30:00Z"),
        ("2024-03-01T12:30:00 +0200", "2024-03-01T10:30:00Z"),
        ("2024-03-01T12:30-05", "2024-03-01T17:30:00Z"),
        ("2024-02-29T23:59:59.999999999", "2024-02-29T23:59:59.999999999Z"),
    ],
)
def test_spellings_of_questdb_users(text: str, same: str) -> None:
    assert parse_instant(text) == parse_instant(same) is not None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "24",
            "2024-",
            "2024-13",
            "2023-02-29",
            "0000",
            "2024-03-01T",
            "2024-03-01T24",
            "2024-03-01T12:60",
            "now",
        ),
        *("2024-03-01T12:00:60", "2024-03-01Z", "2024-03-01T12:00+25", "\u0662024", "2024-03-01T12:00:00.", "2024\n"),
    ],
)
def test_other_text_is_no_instant(text: str) -> None:
    assert parse_instant(text) is None


def test_digits_beyond_nanoseconds_leave_a_rest() -> None:
    assert parse_instant("1970-01-01T00:00:00.0000000010") == Instant(1)
    assert parse_instant("1970-01-01T00:00:00.0000000011") == Instant(1, has_rest=True)
    assert Instant(1_999).in_unit("us") == (1, True)
    assert Instant(-1).in_unit("us") == (-1, True)
    assert Instant(5, has_rest=True).in_unit("ns") == (5, True)


def test_text_has_no_more_digits_than_needed() -> None:
    assert str(Instant(0)) == "1970-01-01T00:00:00Z"
    assert str(Instant(1_500_000)) == "1970-01-01T00:00:00.0015Z"
    assert str(Instant(2**70)) == str(2**70)


def test_years_beyond_iso_are_written_as_numbers() -> None:
    assert format_instant(2**62, "us") == str(2**62)
    assert format_instant(-(2**62), "ms") == str(-(2**62))


@given(st.integers(0, 86_399_999_999))
def test_times_of_day_read_back(microseconds: int) -> None:
    parsed = parse_time_of_day(format_time_of_day(microseconds, "us"))
    assert parsed == Instant(microseconds * 1_000)


@pytest.mark.parametrize("text", ["24:00", "12:60", "1:00", "12:00Z", ""])
def test_other_text_is_no_time_of_day(text: str) -> None:
    assert parse_time_of_day(text) is None
