"""What proves that a row group holds no other keys than those that were seen already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.type_codes import TypeTag
from coldparquet.plan.bind import BoundAnd, BoundComparison, BoundIn, BoundIsNull, BoundNot
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.predicate import Operator

if TYPE_CHECKING:
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, Bounds, SortedValues


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDomain:
    """Which keys the rows of a question can have."""

    value_count: int | None
    """At most so many different ones that are not NULL; None where nobody knows."""
    may_be_null: bool

    def has_all_values(self, seen_values: int) -> bool:
        """Tell whether no other value can come after so many different ones."""
        return self.value_count is not None and seen_values >= self.value_count


def key_domain(field: BoundField, predicate: BoundPredicate | None, *, symbol_count: int | None) -> KeyDomain:
    """Find out which keys the rows that satisfy a predicate can have.

    Args:
        field: The key.
        predicate: What the rows satisfy.
        symbol_count: Number of symbols of the table, if it is a SYMBOL column and all partitions hold it as such.
    """
    parts = predicate.parts if isinstance(predicate, BoundAnd) else (predicate,)
    value_count = 2 if field.type.tag is TypeTag.BOOLEAN else symbol_count
    may_be_null = not field.type.never_null
    for part in parts:
        match part:
            case BoundComparison(field=named, operator=Operator.EQUAL) if named == field:
                value_count, may_be_null = 1, False
            case BoundIn(field=named, values=values) if named == field:
                value_count = len(values) if value_count is None else min(value_count, len(values))
                may_be_null = False
            case BoundNot(part=BoundIsNull(field=named)) if named == field:
                may_be_null = False
            case _:
                pass
    return KeyDomain(value_count=value_count, may_be_null=may_be_null)


def holds_only(bounds: Bounds, seen: SortedValues) -> BoolArray:
    """Tell where every value that is not NULL is one of those seen, shape ``(row_groups,)``.

    So it is where both bounds are the same seen value and, for whole numbers, where all between the bounds were seen.
    """
    lower, upper = bounds.lower, bounds.upper
    has_no_value = ~bounds.may_hold_values
    if lower is None or upper is None or bounds.may_hold_nan:
        return has_no_value
    below_lower, up_to_lower = lower.ranks(seen)
    below_upper, up_to_upper = upper.ranks(seen)
    if isinstance(lower, NumericSide) and isinstance(upper, NumericSide):
        if lower.numbers.dtype != np.int64 or upper.numbers.dtype != np.int64:
            return has_no_value
        # Distances of up to 2**64 - 1 wrap around to the right unsigned number.
        others = (upper.numbers - lower.numbers).view(np.uint64)
        seen_between = np.maximum(up_to_upper - below_lower, 0)
        all_seen = (seen_between > 0) & (others == (seen_between - 1).astype(np.uint64))
    else:
        all_seen = (up_to_lower > below_lower) & (up_to_upper > below_upper) & (below_lower == below_upper)
    result: BoolArray = has_no_value | (lower.known & upper.known & all_seen)
    return result
