"""In which order the parts of a predicate are evaluated: those first that cost little and leave few rows.

The numbers are nanoseconds per row as measured with a million rows, and guesses of what is usually asked. Only their
ratios matter, and only for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.plan.bind import (
    BoundAnd,
    BoundComparison,
    BoundIn,
    BoundLiteral,
    BoundNot,
    BoundOr,
    ConstantUnlessNull,
)
from coldparquet.plan.predicate import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.bind import BoundPredicate

_MASK_NS = 0.3
_NUMBER_NS = 1.0
_DICTIONARY_NS = 4.0
_BYTES_NS = 9.0
_SEARCH_FACTOR = 4.0
"""Looking a value up in a set, against comparing it with one."""

_COPY_NUMBER_NS = 4.0
_COPY_BYTES_NS = 30.0

_SHARE_OF_EQUAL = 0.05
_SHARE_OF_OPERATOR = {Operator.EQUAL: _SHARE_OF_EQUAL, Operator.NOT_EQUAL: 1 - _SHARE_OF_EQUAL}
_SHARE_OF_RANGE = 0.4
_SHARE_OF_NULL = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateCost:
    """What evaluating a predicate costs, and what it leaves."""

    ns_per_row: float
    share_true: float
    """Guess of the share of rows for which it is true."""

    def order_among(self, *, of_and: bool) -> float:
        """Return by what parts are sorted: time per row that is decided by this part alone."""
        share_decided = 1 - self.share_true if of_and else self.share_true
        return self.ns_per_row / max(share_decided, 0.01)


def in_order(parts: Sequence[BoundPredicate], schema: pa.Schema, *, of_and: bool) -> list[BoundPredicate]:
    """Sort the parts of an AND, or of an OR, so that the first ones decide many rows in little time.

    Args:
        parts: The parts.
        schema: Types of the columns.
        of_and: Whether they are joined by AND.
    """
    return sorted(parts, key=lambda part: predicate_cost(part, schema).order_among(of_and=of_and))


def predicate_cost(bound: BoundPredicate, schema: pa.Schema) -> PredicateCost:
    """Estimate what evaluating a predicate costs.

    Args:
        bound: The predicate.
        schema: Types of the columns.
    """
    match bound:
        case BoundAnd(parts=parts) | BoundOr(parts=parts):
            costs = [predicate_cost(part, schema) for part in parts]
            shares = [cost.share_true for cost in costs]
            share = prod(shares) if isinstance(bound, BoundAnd) else min(sum(shares), 1.0)
            cost = PredicateCost(ns_per_row=sum(cost.ns_per_row for cost in costs), share_true=share)
        case BoundNot(part=part):
            opposite = predicate_cost(part, schema)
            cost = PredicateCost(ns_per_row=opposite.ns_per_row, share_true=1 - opposite.share_true)
        case BoundIn(field=field):
            ns_per_row = _SEARCH_FACTOR * _comparison_ns(_type_of(field.name, schema))
            cost = PredicateCost(ns_per_row=ns_per_row, share_true=2 * _SHARE_OF_EQUAL)
        case BoundComparison(field=field, operator=operator):
            share = _SHARE_OF_OPERATOR.get(operator, _SHARE_OF_RANGE)
            cost = PredicateCost(ns_per_row=_comparison_ns(_type_of(field.name, schema)), share_true=share)
        case ConstantUnlessNull(value=value) | BoundLiteral(value=value):
            cost = PredicateCost(ns_per_row=_MASK_NS, share_true=float(value or 0))
        case _:
            cost = PredicateCost(ns_per_row=_MASK_NS, share_true=_SHARE_OF_NULL)
    return cost


def copy_ns_per_row(names: Sequence[str], schema: pa.Schema) -> float:
    """Estimate what it costs to copy one row of some columns, by itself.

    Args:
        names: The columns.
        schema: Types of the columns.
    """
    return sum(_COPY_BYTES_NS if _is_text(_type_of(name, schema)) else _COPY_NUMBER_NS for name in names)


def _comparison_ns(type_: Any) -> float:
    if pa.types.is_dictionary(type_):
        return _DICTIONARY_NS
    is_wide = _is_text(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_)
    return _BYTES_NS if is_wide else _NUMBER_NS


def _is_text(type_: Any) -> bool:
    return pa.types.is_string(type_) or pa.types.is_binary(type_)


def _type_of(name: str, schema: pa.Schema) -> Any:
    index = schema.get_field_index(name)
    return schema.field(index).type if index >= 0 else pa.null()
