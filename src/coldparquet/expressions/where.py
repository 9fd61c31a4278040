"""Parses the ``where`` argument of every read: SQL text, a list of tuples, or a predicate made with ``col``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from coldparquet.errors import InvalidInputError
from coldparquet.expressions.sql import parse_sql
from coldparquet.plan.predicate import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    leaves,
    parse_instant,
    quote_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.plan.bind import BoundField

_COMPARISONS = {operator.value: operator for operator in Operator} | {
    "==": Operator.EQUAL,
    "<>": Operator.NOT_EQUAL,
}
_OTHERS = ("in", "not in", "between", "is null", "is not null")


def parse_tuples(filters: Sequence[Any]) -> Predicate:
    """Make a predicate of tuples: a list is AND, a list of lists is OR of ANDs.

    Operators: = == != <> < <= > >=, ``in`` and ``not in`` (several values), ``between`` (two values), ``is null`` and
    ``is not null`` (value None or omitted). A comparison with None is never true, as in SQL.
    """
    if not filters:
        raise InvalidInputError(
            "the list of filters is empty; give None to read every row, or at least one (column, operator, value)",
            kind="InvalidPredicate",
        )
    if isinstance(filters[0], str):
        raise _malformed(filters, "put a single condition in a list: [('price', '>', 3)]")
    if _is_list_of_lists(filters):
        alternatives = tuple(_conjunction(part) for part in filters)
        return alternatives[0] if len(alternatives) == 1 else Or(alternatives)
    return _conjunction(filters)


def _is_list_of_lists(filters: Sequence[Any]) -> bool:
    # A condition may itself be a list, as in filters from JSON; but it never begins with a list.
    first = filters[0]
    return isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], list | tuple)


def _conjunction(conditions: object) -> Predicate:
    if not isinstance(conditions, list | tuple) or not conditions or isinstance(conditions[0], str):
        raise _malformed(conditions, "expected a list of (column, operator, value)")
    parts = tuple(_condition(condition) for condition in conditions)
    return parts[0] if len(parts) == 1 else And(parts)


def _condition(condition: object) -> Predicate:
    if not isinstance(condition, list | tuple) or len(condition) not in (2, 3) or not isinstance(condition[1], str):
        raise _malformed(condition, "expected (column, operator, value)")
    column, written = condition[:2]
    operator = " ".join(written.lower().split())
    if operator in ("is null", "is not null") and (len(condition) == 2 or condition[2] is None):
        return IsNull(column) if operator == "is null" else Not(IsNull(column))
    if len(condition) != 3:
        raise _malformed(condition, "expected (column, operator, value)")
    value = condition[2]
    if operator in _COMPARISONS:
        return Comparison(column, _COMPARISONS[operator], value)
    if operator in ("in", "not in", "between"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise _malformed(condition, f"{operator!r} takes several values: {('symbol', operator, ['BTC', 'ETH'])}")
        values = tuple(value)
        if operator != "between":
            return In(column, values) if operator == "in" else Not(In(column, values))
        if len(values) == 2:
            return Column(column).between(*values)
        raise _malformed(condition, "'between' takes two values: ('price', 'between', (3, 5))")
    raise _malformed(condition, f"known operators are {' '.join(_COMPARISONS)}, {', '.join(_OTHERS)}")


def _malformed(part: object, expected: str) -> InvalidInputError:
    shown = repr(part)
    shown = shown if len(shown) <= 100 else shown[:97] + "..."
    return InvalidInputError(f"the filter {shown} is malformed: {expected}", kind="InvalidPredicate")


Where: TypeAlias = "str | Sequence[Any] | Predicate | Column | None"
"""Allowed values of ``where``; None reads every row."""


def parse_predicate(where: Where) -> Predicate | None:
    """Convert a ``where`` argument to a predicate; one of pyarrow needs a table, see ``expressions.predicate``."""
    match where:
        case None | Predicate():
            return where
        case Column():
            return Comparison(where.name, Operator.EQUAL, value=True)
        case str():
            return parse_sql(where)
        case list() | tuple():
            return parse_tuples(where)
        case _:
            is_of_polars = type(where).__module__.partition(".")[0] == "polars"
            hint = (
                "; an expression of Polars goes to the table's lazy frame: table.lazy().filter(...)"
                if is_of_polars
                else ""
            )
            raise InvalidInputError(
                f"a predicate cannot be of type {type(where).__name__}; expected SQL text, a list of (column, operator, value),"
                " a predicate such as col('price') > 3, or pyarrow's field('price') > 3" + hint,
                kind="InvalidPredicate",
            )


_PERIODS = {len("2024"): "year", len("2024-03"): "month", len("2024-03-01"): "day"}


def hint_on_dates(predicate: Predicate, fields: Mapping[str, BoundField]) -> str | None:
    """Say what to write instead if a time is to equal a date, which is its midnight alone; None if none is."""
    for leaf in leaves(predicate):
        match leaf:
            case Comparison(operator=Operator.EQUAL, column=column, value=value):
                values: tuple[object, ...] = (value,)
            case In(column=column, values=values):
                pass
            case _:
                continue
        if fields[column].type.arrow.name != "timestamp":
            continue
        for given in values:
            text = str(given) if isinstance(given, str | date) and not isinstance(given, datetime) else ""
            period = _PERIODS.get(len(text))
            if period is not None and (instant := parse_instant(text)) is not None:
                return (
                    f"no row matches, and {quote_name(column)} is compared with the instant {instant}: for the whole {period}"
                    f" write {quote_name(column)} in '{text}' (SQL text, no parentheses)"
                )
    return None
