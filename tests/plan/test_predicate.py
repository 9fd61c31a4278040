from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from ipaddress import IPv4Address
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import (
    MAX_DEPTH,
    And,
    Comparison,
    In,
    Instant,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    col,
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
