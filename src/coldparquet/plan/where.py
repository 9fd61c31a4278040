"""The ``where`` argument of every read: SQL text, a list of tuples, or a predicate made with ``col``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import Column, Comparison, Operator, Predicate
from coldparquet.plan.predicate_sql import parse_sql
from coldparquet.plan.predicate_tuples import parse_tuples

if TYPE_CHECKING:
    from collections.abc import Sequence

Where: TypeAlias = "str | Sequence[Any] | Predicate | Column | None"
"""What may be given as ``where``; None reads every row."""


def parse_predicate(where: Where) -> Predicate | None:
    """Understand a ``where`` argument.

    Args:
        where: SQL text (``"price > 3 AND symbol IN ('BTC', 'ETH')"``), a list of ``(column, operator, value)`` (AND) or
            a list of such lists (OR of ANDs), a predicate, a boolean column made with ``col``, or None.

    Returns:
        The predicate, or None where every row is wanted.

    Raises:
        InvalidInputError: It is none of these, or cannot be understood; ``kind`` says which: ``InvalidPredicate``,
            ``UnsupportedPredicate``, ``InvalidLiteral``, ``InvalidColumnName``, ``PredicateTooDeep``.
    """
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
            raise InvalidInputError(
                f"a predicate cannot be of type {type(where).__name__}; expected SQL text, a list of (column, operator, value)"
                " or a predicate such as col('price') > 3",
                kind="InvalidPredicate",
            )
