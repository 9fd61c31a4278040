from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import Predicate, col
from coldparquet.plan.where import parse_predicate


@pytest.mark.parametrize(
    ("filters", "tree"),
    [
        ([("a", "=", 1)], col("a") == 1),
        ([("a", "==", 1)], col("a") == 1),
        ([("a", "!=", 1)], col("a") != 1),
        ([("a", "<>", 1)], col("a") != 1),
        ([("a", "<", 1), ("b", ">=", "x")], (col("a") < 1) & (col("b") >= "x")),
        ([["a", "<=", 1], ["b", ">", 2]], (col("a") <= 1) & (col("b") > 2)),
        ([[("a", "=", 1)], [("b", "=", 2), ("c", "=", 3)]], (col("a") == 1) | ((col("b") == 2) & (col("c") == 3))),
        ([[("a", "=", 1), ("b", "=", 2)]], (col("a") == 1) & (col("b") == 2)),
        (((("a", "=", 1),), (("b", "=", 2),)), (col("a") == 1) | (col("b") == 2)),
        ((("a", "=", 1), ("b", "=", 2)), (col("a") == 1) & (col("b") == 2)),
        ([("a", "in", ["x", "y"])], col("a").is_in(["x", "y"])),
        ([("a", " NOT  IN ", {3})], ~col("a").is_in([3])),
        ([("a", "in", np.array([1, 2]))], col("a").is_in([1, 2])),
        ([("a", "between", (1, 2))], col("a").between(1, 2)),
        ([("a", "is null", None)], col("a").is_null()),
        ([("a", "IS NOT NULL")], col("a").is_not_null()),
        ([("a", "=", None)], col("a") == None),  # noqa: E711
        ([("a", ">", date(2024, 3, 1))], col("a") > date(2024, 3, 1)),
    ],
)
def test_tuples_become_the_same_tree_as_python(filters: Any, tree: Predicate) -> None:
    assert parse_predicate(filters) == tree


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "give None to read every row"),
        (("a", "=", 1), "put a single condition in a list"),
        ([("a", "~", 1)], "known operators are"),
        ([("a", "like", "x%")], "known operators are"),
        ([("a", "=")], r"expected \(column, operator, value\)"),
        ([("a", "=", 1, 2)], r"expected \(column, operator, value\)"),
        ([("a", 1, 2)], r"expected \(column, operator, value\)"),
        ([(1, "=", 2)], "a column is named by a non-empty string"),
        ([("a", "in", "xy")], "takes several values"),
        ([("a", "in", 3)], "takes several values"),
        ([("a", "between", (1,))], "takes two values"),
        ([("a", "is null", 3)], "known operators are"),
        ([[("a", "=", 1)], []], "expected a list of"),
        ([("a", "=", 1), "b"], r"expected \(column, operator, value\)"),
        ([[("a", "=", 1)], ("b", "=", 2)], "expected a list of"),
        ([3], r"expected \(column, operator, value\)"),
    ],
)
def test_malformed_filters_say_what_is_expected(filters: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_predicate(filters)


def test_a_long_malformed_filter_is_shown_in_part() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_predicate([("a", "~", "x" * 100_000)])
    assert len(caught.value.message) < 300


def test_where_takes_every_form() -> None:
    price = col("price") > 3
    assert parse_predicate(None) is None
    assert parse_predicate(price) is price
    assert parse_predicate("price > 3") == price
    assert parse_predicate([("price", ">", 3)]) == price
    assert parse_predicate(col("flag")) == (col("flag") == True)  # noqa: E712


@pytest.mark.parametrize("where", [3, {"a": 1}, b"a = 1", True])
def test_where_refuses_other_things(where: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"a predicate cannot be of type (int|dict|bytes|bool);") as caught:
        parse_predicate(where)
    assert caught.value.kind == "InvalidPredicate"
