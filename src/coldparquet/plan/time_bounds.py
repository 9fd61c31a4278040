"""What a predicate says about the designated timestamp: the smallest range that holds every row it can select.

Partitions in QuestDB's native format have no statistics, but their rows are in time order: the range of the timestamps
becomes a range of rows. The designated timestamp is never null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.plan.bind import (
    BoundAnd,
    BoundComparison,
    BoundIn,
    BoundIsNull,
    BoundLiteral,
    BoundNot,
    BoundOr,
    BoundPredicate,
    ConstantUnlessNull,
)
from coldparquet.plan.predicate import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def timestamp_bounds(predicate: BoundPredicate | None, timestamp_index: int | None) -> tuple[int | None, int | None]:
    """Bound the timestamps of the rows that a predicate can select.

    Args:
        predicate: What the rows satisfy; None selects every row.
        timestamp_index: Index of the designated timestamp among the table's columns; None where there is none.

    Returns:
        Lower and upper bound, both inclusive, in the unit of the column; None where the predicate does not say. A lower
        bound above the upper one: no row.
    """
    found = _interval(predicate, timestamp_index)
    return (
        found.lower if found.lower > _LEAST else None,
        found.upper if found.upper < _GREATEST else None,
    )


def is_time_range(predicate: BoundPredicate | None, timestamp_index: int | None) -> bool:
    """Tell whether a predicate selects just the rows within its :func:`timestamp_bounds`, so that no filter has to run.

    Args:
        predicate: What the rows satisfy.
        timestamp_index: Index of the designated timestamp among the table's columns; None where there is none.
    """
    return _interval(predicate, timestamp_index).is_exact


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interval:
    """Timestamps ``lower`` to ``upper``, both included; none of them if ``lower`` is above ``upper``."""

    lower: int
    upper: int
    is_exact: bool
    """True: the predicate is true for all timestamps inside and false, not NULL, for all others."""

    @property
    def is_empty(self) -> bool:
        return self.lower > self.upper


_ALL = _Interval(lower=_LEAST, upper=_GREATEST, is_exact=True)
_NONE = _Interval(lower=_GREATEST, upper=_LEAST, is_exact=True)
_UNKNOWN = _Interval(lower=_LEAST, upper=_GREATEST, is_exact=False)
_NEVER_TRUE = _Interval(lower=_GREATEST, upper=_LEAST, is_exact=False)
"""No row is selected; but some may be NULL rather than false, so that the opposite does not select every row."""


def _interval(  # noqa: PLR0911 - one case per kind of predicate
    predicate: BoundPredicate | None, timestamp: int | None
) -> _Interval:
    match predicate:
        case None:
            return _ALL
        case BoundAnd(parts=parts):
            return _intersection(_interval(part, timestamp) for part in parts)
        case BoundOr(parts=parts):
            return _union([_interval(part, timestamp) for part in parts])
        case BoundNot(part=part):
            return _complement(_interval(part, timestamp))
        case BoundLiteral(value=None):
            return _NEVER_TRUE
        case BoundLiteral(value=value):
            return _ALL if value else _NONE
        case BoundComparison() | BoundIn() | BoundIsNull() | ConstantUnlessNull():
            if predicate.field.index == timestamp:
                return _of_timestamp(predicate)
            never_true = isinstance(predicate, ConstantUnlessNull) and not predicate.value
            return _NEVER_TRUE if never_true else _UNKNOWN
    return _UNKNOWN


def _of_timestamp(predicate: BoundComparison | BoundIn | BoundIsNull | ConstantUnlessNull) -> _Interval:
    match predicate:
        case BoundIsNull():
            return _NONE
        case ConstantUnlessNull(value=value):
            return _ALL if value else _NONE
        case BoundIn(values=values):
            return _Interval(lower=int(values[0]), upper=int(values[-1]), is_exact=False)
        case BoundComparison(operator=operator, value=value):
            return _of_comparison(operator, int(value))


def _of_comparison(operator: Operator, value: int) -> _Interval:
    match operator:
        case Operator.EQUAL:
            return _Interval(lower=value, upper=value, is_exact=True)
        case Operator.NOT_EQUAL:
            return _UNKNOWN
        case Operator.LESS:
            return _Interval(lower=_LEAST, upper=value - 1, is_exact=True)
        case Operator.LESS_OR_EQUAL:
            return _Interval(lower=_LEAST, upper=value, is_exact=True)
        case Operator.GREATER:
            return _Interval(lower=value + 1, upper=_GREATEST, is_exact=True)
        case Operator.GREATER_OR_EQUAL:
            return _Interval(lower=value, upper=_GREATEST, is_exact=True)


def _intersection(parts: Iterable[_Interval]) -> _Interval:
    found = _ALL
    for part in parts:
        found = _Interval(
            lower=max(found.lower, part.lower),
            upper=min(found.upper, part.upper),
            is_exact=found.is_exact and part.is_exact,
        )
    return found


def _union(parts: list[_Interval]) -> _Interval:
    filled = sorted((part for part in parts if not part.is_empty), key=lambda part: part.lower)
    is_exact = all(part.is_exact for part in parts)
    if not filled:
        return _NONE if is_exact else _NEVER_TRUE
    upper = filled[0].upper
    for part in filled[1:]:
        is_exact = is_exact and part.lower <= upper + 1  # a hole between the parts belongs to neither
        upper = max(upper, part.upper)
    return _Interval(lower=filled[0].lower, upper=upper, is_exact=is_exact)


def _complement(part: _Interval) -> _Interval:
    if not part.is_exact:
        return _UNKNOWN
    if part.is_empty:
        return _ALL
    if part.lower == _LEAST:
        return _NONE if part.upper == _GREATEST else _Interval(lower=part.upper + 1, upper=_GREATEST, is_exact=True)
    if part.upper == _GREATEST:
        return _Interval(lower=_LEAST, upper=part.lower - 1, is_exact=True)
    return _UNKNOWN
