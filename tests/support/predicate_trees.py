"""Trees of conditions to draw, and what SQL says that they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from coldparquet.plan.predicate import And, Comparison, In, Literal, Not, Operator, Or, Predicate

COMPARE: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def trees(
    leaves: st.SearchStrategy[Any], *, least: int = 1, most: int = 3, max_leaves: int = 6
) -> st.SearchStrategy[Any]:
    """Draw AND, OR and NOT of leaves; ``least`` and ``most`` parts of an AND or OR."""

    def joined(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(parts, min_size=least, max_size=most).map(tuple)
        return st.one_of(st.builds(And, some), st.builds(Or, some), st.builds(Not, parts))

    return st.recursive(leaves, joined, max_leaves=max_leaves)


def truth(predicate: Predicate, of_leaf: Callable[[Predicate], bool | None]) -> bool | None:
    """SQL's three-valued logic of one row, None being NULL; ``of_leaf`` is asked for comparisons and IS NULL."""
    match predicate:
        case Literal():
            return predicate.value
        case Not(part=part):
            inner = truth(part, of_leaf)
            return None if inner is None else not inner
        case And(parts=parts) | Or(parts=parts):
            decisive = isinstance(predicate, Or)
            outcomes = [truth(part, of_leaf) for part in parts]
            return decisive if decisive in outcomes else None if None in outcomes else not decisive
        case In(column=name, values=values):
            return truth(Or(tuple(Comparison(name, Operator.EQUAL, value) for value in values)), of_leaf)
    return of_leaf(predicate)
