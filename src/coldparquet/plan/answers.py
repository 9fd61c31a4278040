"""Tells where metadata proves the exact minimum and maximum of a column, and its null count.

A bound that drops row groups may be outside of the data; one that answers ``min(price)`` must not. So of the bounds
that ``plan/statistics.py`` trusts, only those count here that are certainly values of the chunk:

* The sidecar marks the bound as exact, and it is in the range of the column's type.
* The column's type never changed, or Arrow widens the old type to it exactly: other conversions may round.
* It is not zero in a float column: writers choose the sign of zero bounds, and a bound of 0.0 also covers -0.0.
* BYTE, SHORT and CHAR: the number of rows that hold 0 instead of NULL is known, for the bounds exclude these rows.
* Text: QuestDB wrote it, and it is shorter than any text that QuestDB truncates. Parquet lets writers truncate text
  bounds without marking them, and foreign files do not tell which writers did. BINARY bounds are always truncated.

Everything else proves nothing here, and the column is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import Struct

from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import StatisticsTrust, ValueOrder
from coldparquet.plan.bind import BoundComparison, BoundIn, BoundIsNull
from coldparquet.plan.bounds import PREFIX_BYTES, Bounds, ByteSide, NumericSide
from coldparquet.plan.predicate import And, Not, Operator
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.plan.type_changes import holds_same_values, widens

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.types import ColumnType
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, IntArray, Side, SortedValues
    from coldparquet.plan.literals import DomainValue


_SHORTEST_CUT_TEXT_BYTES = 61
"""QuestDB truncates the bounds of text to 64 bytes at most, before a character of up to 4 (note section 3.3)."""

_NARROW_INTEGERS = frozenset({"int8", "int16", "uint8", "uint16"})
"""Arrow types whose bounds take more bytes than their values: damaged bounds may exceed the type's range."""


class ExactSide(Struct, frozen=True, kw_only=True, eq=False):
    """What is known of the minimum, or of the maximum, of a column; every array has shape ``(row_groups,)``."""

    side: Side | None
    largest: bool
    """Whether this is the maximum."""
    is_known: BoolArray
    """True if the bound is the value, or there is no value at all."""
    has_values: BoolArray
    """False if every row is known to be NULL."""

    def best(self, row_groups: BoolArray) -> DomainValue | None:
        """Return the extreme of the row groups marked in ``row_groups``, all of them known; None if all NULL."""
        return _extreme(self.side, row_groups & self.has_values, largest=self.largest)

    def may_beat(self, value: DomainValue) -> BoolArray:
        """Tell which row groups may hold a value beyond ``value``; NaN is not."""
        if self.side is None:
            return self.has_values
        beyond = self.side.above(value) if self.largest else ~self.side.at_or_above(value)
        return self.has_values & (~self.side.known | beyond)


class ExactBounds(Struct, frozen=True, kw_only=True, eq=False):
    """What the metadata of one partition proves about a column."""

    bounds: Bounds | None
    """Valid bounds, exact or not; None if nothing is known."""
    least: ExactSide
    greatest: ExactSide
    null_counts: IntArray
    """Null count, -1 if unknown, shape ``(row_groups,)``."""


def _exact(bounds: Bounds | None, null_counts: IntArray, *, is_least: BoolArray, is_greatest: BoolArray) -> ExactBounds:
    has_values = np.ones(len(null_counts), np.bool_) if bounds is None else bounds.may_hold_values
    lower, upper = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    return ExactBounds(
        bounds=bounds,
        least=ExactSide(side=lower, largest=False, is_known=is_least, has_values=has_values),
        greatest=ExactSide(side=upper, largest=True, is_known=is_greatest, has_values=has_values),
        null_counts=null_counts,
    )


def exact_bounds(sidecar: Sidecar, place: int | None, field: BoundField) -> ExactBounds:
    """Return what the metadata of a partition proves about a column."""
    bounds = SidecarStatistics(sidecar, {field.index: place}).bounds(field)
    row_counts = sidecar.row_counts
    nowhere = np.zeros(len(row_counts), np.bool_)
    if place is None:
        null_counts = np.zeros_like(row_counts) if field.type.never_null else row_counts
        return _exact(bounds, null_counts, is_least=~nowhere, is_greatest=~nowhere)
    stored = sidecar.column_type(place)
    if bounds is None or not _keeps_values(stored, field.type):
        unknown = np.full(len(row_counts), -1, np.int64)
        return _exact(bounds, unknown, is_least=nowhere, is_greatest=nowhere)
    chunks, descriptor = sidecar.chunks(place), sidecar.column(place)
    # Leaf slots of nested columns are not rows. A REQUIRED column marks no nulls: rows counted as such hold some value.
    counts_rows = descriptor.max_rep_level == 0 and descriptor.max_def_level <= 1
    most_nulls = 0 if descriptor.max_def_level == 0 and not stored.never_null else row_counts
    knows_nulls = (
        chunks.has_null_count & (chunks.num_values == row_counts) & (chunks.null_count <= most_nulls) & counts_rows
    )
    null_counts = np.where(knows_nulls, chunks.null_count, -1)
    is_value = np.full(len(row_counts), _has_values_as_bounds(stored, is_of_questdb=descriptor.id >= 0))
    if stored.statistics is StatisticsTrust.ZERO_WHEN_NULL:
        is_value &= knows_nulls
    all_zero = null_counts == row_counts if stored.never_null else nowhere
    is_least = is_value & _is_value(bounds.lower, chunks.min.exact | all_zero, stored)
    is_greatest = is_value & _is_value(bounds.upper, chunks.max.exact | all_zero, stored)
    return _exact(
        bounds,
        np.zeros_like(row_counts) if field.type.never_null else null_counts,
        is_least=~bounds.may_hold_values | is_least,
        is_greatest=~bounds.may_hold_values | is_greatest,
    )


def _keeps_values(stored: ColumnType, wanted: ColumnType) -> bool:
    if holds_same_values(stored, wanted):
        return True
    # A bound may round an integer to a float; as a value, the rounded number would be wrong.
    becomes_float = wanted.comparison is ValueOrder.FLOAT and stored.comparison is not ValueOrder.FLOAT
    return wanted.is_unified and widens(stored, wanted) and not becomes_float


def _has_values_as_bounds(stored: ColumnType, *, is_of_questdb: bool) -> bool:
    """Tell whether bounds of this type can be values at all: writers may truncate byte strings of any length."""
    if stored.physical_type is not PhysicalType.BYTE_ARRAY:
        return True
    return stored.comparison is ValueOrder.BYTES and is_of_questdb


def _is_value(side: Side | None, is_marked_exact: BoolArray, column_type: ColumnType) -> BoolArray:
    if side is None:
        return np.zeros_like(is_marked_exact)
    known = side.known & is_marked_exact
    if isinstance(side, NumericSide):
        if column_type.arrow.name in _NARROW_INTEGERS:
            limits = np.iinfo(column_type.arrow.name)
            known &= (side.numbers >= limits.min) & (side.numbers <= limits.max)
        if column_type.comparison is ValueOrder.FLOAT:
            known &= side.numbers != 0
        return known
    if column_type.comparison is ValueOrder.BYTES:
        return known & (side.lengths < _SHORTEST_CUT_TEXT_BYTES)
    return known


def _extreme(side: Side | None, row_groups: BoolArray, *, largest: bool) -> DomainValue | None:
    """Return the smallest, or largest, bound of the marked row groups; None if none is marked."""
    places = np.flatnonzero(row_groups)
    if side is None or not len(places):
        return None
    if isinstance(side, NumericSide):
        numbers = side.numbers[places]
        return cast("DomainValue", (numbers.max() if largest else numbers.min()).item())
    prefixes = side.prefixes[places]
    places = places[prefixes == (prefixes.max() if largest else prefixes.min())]
    # Of equal prefixes the shorter string is smaller. Only strings longer than the prefix need a full comparison.
    lengths = np.minimum(side.lengths[places], PREFIX_BYTES + 1)
    places = places[lengths == (lengths.max() if largest else lengths.min())]
    if side.lengths[places[0]] <= PREFIX_BYTES:
        places = places[:1]
    found = [_bytes_of(side, place) for place in places.tolist()]
    return max(found) if largest else min(found)


def _bytes_of(side: ByteSide, row_group: int) -> bytes:
    length = int(side.lengths[row_group])
    if length > PREFIX_BYTES:
        return side.bytes_at(row_group) or b""
    return int(side.prefixes[row_group]).to_bytes(PREFIX_BYTES, "big")[:length]


class KeyDomain(Struct, frozen=True, kw_only=True):
    """The keys that the rows of a question can have."""

    value_count: int | None
    """Upper bound of the number of distinct keys that are not NULL; None if unknown."""
    may_be_null: bool

    def has_all_values(self, seen_values: int) -> bool:
        """Tell whether this many distinct values are all that exist."""
        return self.value_count is not None and seen_values >= self.value_count


def key_domain(field: BoundField, predicate: BoundPredicate | None, *, symbol_count: int | None) -> KeyDomain:
    """Determine the keys that rows satisfying a predicate can have."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    value_count = 2 if field.type.tag is TypeTag.BOOLEAN else symbol_count
    may_be_null = not field.type.never_null
    for part in parts:
        match part:
            case BoundComparison(field=named, operator=Operator.EQUAL) if named == field:
                value_count, may_be_null = 1, False
            case BoundIn(field=named, values=values) if named == field:
                value_count = len(values) if value_count is None else min(value_count, len(values))
                may_be_null = False
            case Not(part=BoundIsNull(field=named)) if named == field:
                may_be_null = False
            case _:
                pass
    return KeyDomain(value_count=value_count, may_be_null=may_be_null)


def holds_only(bounds: Bounds, seen: SortedValues) -> BoolArray:
    """Tell which row groups hold only seen values and NULLs, shape ``(row_groups,)``.

    That holds if both bounds are the same seen value. For whole numbers it also holds if all numbers between the bounds
    were seen.
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
