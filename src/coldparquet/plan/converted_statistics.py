"""Statistics of a column whose type was changed since: what they prove about the converted values.

Bounds stay bounds where the conversion keeps the order, makes no value of a null, and makes a null of no value; such a
bound may be rounded as the values are. Everything else proves nothing, so no row group is dropped and none is taken as
a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.column_types import Comparison, TypeTag
from coldparquet.plan.bounds import Bounds, NumericSide
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.type_changes import Family, family_of, holds_same_values
from coldparquet.plan.type_widening import bounds_factor, keeps_bounds, widens

if TYPE_CHECKING:
    from coldparquet.format.column_types import ColumnType
    from coldparquet.plan.bounds import Side

_INTEGER_BYTES = {TypeTag.BYTE: 1, TypeTag.SHORT: 2, TypeTag.INT: 4, TypeTag.LONG: 8}
_GREATEST_INT64 = (1 << 63) - 1


def bounds_after_type_change(
    bounds: Bounds, stored: ColumnType, wanted: ColumnType, *, has_nulls: bool
) -> Bounds | None:
    """Return what the bounds of stored values prove about the values that they become.

    Args:
        bounds: Of the values as they are stored.
        stored: Their type.
        wanted: The type of the column in the table.
        has_nulls: Whether the file can mark nulls. In a type without null they mark the rows from before the column
            existed, which read as null once the column has a type with null.

    Returns:
        None if nothing is proved.
    """
    if holds_same_values(stored, wanted) and (stored.arrow == wanted.arrow or family_of(stored) is Family.TEXT):
        return bounds
    if wanted.is_unified and widens(stored, wanted):
        return _widened(bounds, stored, wanted) if keeps_bounds(stored, wanted) else None
    match family_of(stored), family_of(wanted):
        case Family.INSTANT, Family.INSTANT:
            return _scaled(bounds, _nanoseconds(stored) // _nanoseconds(wanted))
        case Family.FLOAT, Family.FLOAT if wanted.arrow.name == "float64":
            # NaN and infinities, which QuestDB has no use for, become null when FLOAT becomes DOUBLE.
            return replace(bounds, may_hold_nulls=np.ones_like(bounds.may_hold_nulls))
        case _ if not _keeps_every_integer(stored, wanted):
            return None
    if stored.never_null and not wanted.never_null and has_nulls:
        bounds = replace(bounds, may_hold_nulls=np.ones_like(bounds.may_hold_nulls))
    return _rounded(bounds, wanted) if family_of(wanted) is Family.FLOAT else bounds


def _widened(bounds: Bounds, stored: ColumnType, wanted: ColumnType) -> Bounds | None:
    factor = bounds_factor(stored, wanted)
    if factor != 1:
        return _scaled(bounds, factor)
    becomes_float = wanted.comparison is Comparison.FLOAT and stored.comparison is not Comparison.FLOAT
    return _rounded(bounds, wanted) if becomes_float else bounds


def _keeps_every_integer(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether whole numbers become whole numbers of the same value, or the nearest float."""
    source, target = family_of(stored), family_of(wanted)
    if source is Family.INSTANT:
        return stored.arrow.name != "date32" and (wanted.tag is TypeTag.LONG or target is Family.FLOAT)
    if source is not Family.INTEGER:
        return False
    if target is Family.INTEGER:
        return _INTEGER_BYTES[wanted.tag] > _INTEGER_BYTES[stored.tag]
    return target in (Family.INSTANT, Family.FLOAT)


def _nanoseconds(instant: ColumnType) -> int:
    return NANOSECONDS_PER_UNIT[instant.arrow.unit or "d"]


def _scaled(bounds: Bounds, factor: int) -> Bounds | None:
    """Multiply: not where a bound, and so perhaps a value, leaves 64 bits. The factor 0 stands for a coarser unit."""
    lower, upper = bounds.lower, bounds.upper
    if factor == 0 or not (isinstance(lower, NumericSide) and isinstance(upper, NumericSide)):
        return None
    limit = _GREATEST_INT64 // factor
    fits = lower.known & upper.known & (lower.numbers >= -limit) & (upper.numbers <= limit)
    # Where it does not fit, values may wrap around to anything, the least number among them, which is null.
    return Bounds(
        lower=NumericSide(fits, np.where(fits, lower.numbers, 0) * factor),
        upper=NumericSide(fits, np.where(fits, upper.numbers, 0) * factor),
        may_hold_values=bounds.may_hold_values,
        may_hold_nulls=bounds.may_hold_nulls | ~fits & bounds.may_hold_values,
        may_hold_nan=bounds.may_hold_nan,
    )


def _rounded(bounds: Bounds, wanted: ColumnType) -> Bounds:
    """Round whole numbers to the nearest float, which keeps their order."""
    float_type = np.float32 if wanted.arrow.name == "float32" else np.float64
    return replace(bounds, lower=_nearest(bounds.lower, float_type), upper=_nearest(bounds.upper, float_type))


def _nearest(side: Side | None, float_type: type[np.float32 | np.float64]) -> Side | None:
    if not isinstance(side, NumericSide):
        return None
    return NumericSide(side.known, side.numbers.astype(float_type).astype(np.float64))
