"""Which rows match: by plain Python with SQL's rules for NULL (it knows nothing of Arrow or plans), by the row filter, by masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coldparquet.decode import filter as row_filter
from coldparquet.plan.bind import BoundPredicate
from coldparquet.plan.predicate import (
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)
from coldparquet.plan.selection import RowSelection
from tests.support.predicate_trees import COMPARE
from tests.support.random_values import literal_value

Columns: TypeAlias = Mapping[str, Sequence[Any]]


# --- Predicates evaluated value by value in plain Python, with SQL's rules for NULL -----------------------------------


Outcomes: TypeAlias = list[bool | None]


def matching_rows(predicate: Predicate | None, columns: Columns, row_count: int) -> list[int]:
    """Return the numbers of the rows for which the predicate is true, ascending.

    Args:
        predicate: What is asked; None is true for every row.
        columns: The values of each column as Python compares them, None for NULL.
        row_count: Number of rows.
    """
    if predicate is None:
        return list(range(row_count))
    return [row for row, outcome in enumerate(_outcomes(predicate, columns, row_count)) if outcome]


def _outcomes(  # noqa: PLR0911 - one per kind
    predicate: Predicate, columns: Columns, row_count: int
) -> Outcomes:
    match predicate:
        case And(parts=parts):
            outcomes = [_outcomes(part, columns, row_count) for part in parts]
            return [_negated(_any(map(_negated, of_row))) for of_row in zip(*outcomes, strict=True)]
        case Or(parts=parts):
            return [
                _any(of_row) for of_row in zip(*(_outcomes(part, columns, row_count) for part in parts), strict=True)
            ]
        case Not(part=part):
            return [_negated(outcome) for outcome in _outcomes(part, columns, row_count)]
        case Literal(value=value):
            return [value] * row_count
        case IsNull(column=name):
            return [value is None for value in columns[name]]
        case In(column=name, values=literals):
            alternatives = [_compared(columns[name], Operator.EQUAL, literal) for literal in literals]
            return [_any(of_row) for of_row in zip(*alternatives, strict=True)] if literals else [False] * row_count
        case Comparison(column=name, operator=compare, value=literal):
            return _compared(columns[name], compare, literal)
        case StartsWith(column=name, prefix=prefix):
            return [None if value is None else value.startswith(prefix) for value in columns[name]]
        case Like(column=name, pattern=pattern):
            return [None if value is None else has_form(value, pattern) for value in columns[name]]
    raise AssertionError(predicate)


def has_form(text: str, pattern: str) -> bool:
    """Tell whether a text has the form of a pattern with backslashes before literal wildcards, character by character."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(has_form(text[start:], pattern[1:]) for start in range(len(text) + 1))
    is_escaped = pattern[0] == "\\" and len(pattern) > 1
    wanted = pattern[1] if is_escaped else pattern[0]
    matches = text != "" and (text[0] == wanted or (wanted == "_" and not is_escaped))
    return matches and has_form(text[1:], pattern[2:] if is_escaped else pattern[1:])


def _compared(values: Sequence[Any], compare: Operator, literal: Any) -> Outcomes:
    wanted = literal_value(literal)
    if wanted is None:
        return [None] * len(values)
    holds = COMPARE[compare]
    return [None if value is None else holds(value, wanted) for value in values]


def _any(outcomes: Any) -> bool | None:
    found = tuple(outcomes)
    return True if True in found else None if None in found else False


def _negated(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


# --- What the row filter says of every row: true, false or unknown ----------------------------------------------------


def filter_outcomes(bound: BoundPredicate, table: pa.Table) -> list[bool | None]:
    """Return the outcome of a predicate for each row; unknown (None) is what neither it nor its negation keeps."""
    is_true, is_false = (row_filter.matching_rows(one, table).to_pylist() for one in (bound, Not(bound)))
    assert not any(true and false for true, false in zip(is_true, is_false, strict=True))
    return [True if true else False if false else None for true, false in zip(is_true, is_false, strict=True)]


# --- Row selections from masks: the plainest way to say which rows are meant ------------------------------------------


def selection_of(mask: npt.NDArray[np.bool_]) -> RowSelection:
    """Select the rows where ``mask``, shape ``(rows,)``, is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return RowSelection(starts=edges[::2].astype(np.int64), stops=edges[1::2].astype(np.int64))
