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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingCost:
    """What the parts of an AND cost that are still to be evaluated, in nanoseconds per row."""

    evaluation_ns: float
    copy_ns: float
    """What it takes to copy their columns."""
    columns: frozenset[str]

    def dropping_pays(self, matching_count: int, row_count: int) -> bool:
        """Tell whether evaluating them for few rows saves more than copying the values of these costs."""
        few = matching_count * (self.copy_ns + self.evaluation_ns)
        return few + row_count < row_count * self.evaluation_ns


class PredicateCosts:
    """What evaluating predicates on rows of one schema costs; each part of a predicate is looked at once.

    Args:
        schema: Types of the columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._types: dict[str, Any] = {}
        # By identity: to hash a predicate takes as long as its list of values. The predicate is kept, and so is its identity.
        self._known: dict[int, tuple[BoundPredicate, PredicateCost]] = {}

    def in_order(self, parts: Sequence[BoundPredicate], *, of_and: bool) -> list[BoundPredicate]:
        """Sort the parts of an AND, or of an OR, so that the first ones decide many rows in little time."""
        return sorted(parts, key=lambda part: self.of(part).order_among(of_and=of_and))

    def of(self, bound: BoundPredicate) -> PredicateCost:
        """Estimate what evaluating a predicate costs."""
        known = self._known.get(id(bound))
        if known is None:
            known = self._known[id(bound)] = (bound, self._estimate(bound))
        return known[1]

    def _estimate(self, bound: BoundPredicate) -> PredicateCost:
        match bound:
            case BoundAnd(parts=parts) | BoundOr(parts=parts):
                costs = [self.of(part) for part in parts]
                shares = [cost.share_true for cost in costs]
                share = prod(shares) if isinstance(bound, BoundAnd) else min(sum(shares), 1.0)
                cost = PredicateCost(ns_per_row=sum(cost.ns_per_row for cost in costs), share_true=share)
            case BoundNot(part=part):
                opposite = self.of(part)
                cost = PredicateCost(ns_per_row=opposite.ns_per_row, share_true=1 - opposite.share_true)
            case BoundIn(field=field):
                ns_per_row = _SEARCH_FACTOR * _comparison_ns(self._type_of(field.name))
                cost = PredicateCost(ns_per_row=ns_per_row, share_true=2 * _SHARE_OF_EQUAL)
            case BoundComparison(field=field, operator=operator):
                share = _SHARE_OF_OPERATOR.get(operator, _SHARE_OF_RANGE)
                cost = PredicateCost(ns_per_row=_comparison_ns(self._type_of(field.name)), share_true=share)
            case ConstantUnlessNull(value=value) | BoundLiteral(value=value):
                cost = PredicateCost(ns_per_row=_MASK_NS, share_true=float(value or 0))
            case _:
                cost = PredicateCost(ns_per_row=_MASK_NS, share_true=_SHARE_OF_NULL)
        return cost

    def after_each(self, parts: Sequence[BoundPredicate]) -> list[RemainingCost]:
        """Say what the parts behind each one cost together, for parts that are evaluated in this order."""
        remaining = [RemainingCost(evaluation_ns=0.0, copy_ns=0.0, columns=frozenset())]
        for part in reversed(parts[1:]):
            later = remaining[-1]
            new = {field.name for field in part.fields()} - later.columns
            remaining.append(
                RemainingCost(
                    evaluation_ns=later.evaluation_ns + self.of(part).ns_per_row,
                    copy_ns=later.copy_ns + sum(_copy_ns(self._type_of(name)) for name in new),
                    columns=later.columns | new if new else later.columns,
                )
            )
        return remaining[::-1][: len(parts)]

    def _type_of(self, name: str) -> Any:
        if name not in self._types:
            index = self._schema.get_field_index(name)
            self._types[name] = self._schema.field(index).type if index >= 0 else pa.null()
        return self._types[name]


def _copy_ns(type_: Any) -> float:
    return _COPY_BYTES_NS if _is_text(type_) else _COPY_NUMBER_NS


def _comparison_ns(type_: Any) -> float:
    if pa.types.is_dictionary(type_):
        return _DICTIONARY_NS
    is_wide = _is_text(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_)
    return _BYTES_NS if is_wide else _NUMBER_NS


def _is_text(type_: Any) -> bool:
    return pa.types.is_string(type_) or pa.types.is_binary(type_)
