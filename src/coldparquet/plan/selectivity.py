"""Estimates how many rows a predicate leaves. Only costs depend on it, never which rows are found.

Values are assumed to be spread evenly between their bounds, and conditions to be independent. Without information the
estimate is high: techniques that need few remaining rows are then not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.sidecar_layout import ENCODING_RLE_DICTIONARY, WORD_BYTES, Codec
from coldparquet.format.types import ValueOrder
from coldparquet.plan.bind import (
    BoundComparison,
    BoundFold,
    BoundIn,
    BoundIsNull,
    BoundLeaf,
    BoundLike,
    ConstantUnlessNull,
    fields_of,
)
from coldparquet.plan.bounds import NumericSide, SortedValues
from coldparquet.plan.predicate import And, Operator
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import ColumnFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, Bounds, IntArray, Side
    from coldparquet.plan.predicate import Or
    from coldparquet.plan.statistics import StatisticsSource

FloatArray: TypeAlias = npt.NDArray[np.float64]

_BELOW = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL})
_ABOVE = frozenset({Operator.GREATER, Operator.GREATER_OR_EQUAL})

_SHARE_OF_PATTERN = 0.1
_UNKNOWN_RANGE = 0.5
"""Fraction of the values that a comparison with ``<`` or ``>`` leaves without bounds."""

_REPETITION_BYTES = 2
"""Bits that LZ codecs spend on a reference to an earlier value, besides the bits that distinguish values. They code
repetitions, but not how often each value occurs."""

_IN_ORDER = 0.9
"""A column counts as clustered if this part of its row groups follow the previous one."""


class ValueCounts(Struct, frozen=True, kw_only=True, eq=False):
    """Estimates about the values of one column in every row group; arrays of shape ``(row_groups,)``."""

    null_fraction: FloatArray
    distinct_values: FloatArray
    """Number of values that each row chooses from; at least 1, and often more than there are rows."""


class _Outcomes(Struct, frozen=True, kw_only=True, eq=False):
    """Fractions of the rows for which a condition is true, and false. If nothing is known, both are 1."""

    true: FloatArray
    false: FloatArray


def count_values(table: RowGroupTable, places: Mapping[int, int | None]) -> dict[int, ValueCounts]:
    """Estimate how many distinct values the columns of a predicate have.

    A writer's distinct count is trusted. Otherwise the size of a chunk gives an estimate: in any encoding, a row takes
    at least the bits needed to choose among the values.
    """
    return {index: _VALUE_COUNTS.of(table, place) for index, place in places.items() if place is not None}


def _count(table: RowGroupTable, column: int) -> ValueCounts:
    chunks = table.chunks(column)
    values = np.maximum(chunks.num_values, 1)
    present = np.maximum(values - chunks.null_count, 1)
    bytes_each = chunks.total_compressed_bytes / present
    is_lz = (chunks.codec == Codec.SNAPPY) | (chunks.codec == Codec.LZ4_RAW)
    is_plain_lz = is_lz & (chunks.encodings & np.uint8(ENCODING_RLE_DICTIONARY) == 0)
    # Values of 8 bytes or more that hardly compress do not repeat.
    bytes_each = np.where(is_plain_lz & (bytes_each < WORD_BYTES), bytes_each - _REPETITION_BYTES, bytes_each)
    distinct = np.exp2(np.clip(8 * bytes_each, 0, 256))
    try:
        if table.column_type(column).comparison is ValueOrder.BOOLEAN:
            distinct = np.minimum(distinct, 2)
    except UnsupportedError:
        pass
    distinct = np.where(chunks.has_distinct_count, np.maximum(chunks.distinct_count, 1), distinct)
    return ValueCounts(null_fraction=np.minimum(chunks.null_count / values, 1), distinct_values=distinct)


_VALUE_COUNTS = ColumnFacts(_count)


def estimate_selectivity(  # noqa: PLR0913 - what can be told is told by name
    predicate: BoundPredicate,
    source: StatisticsSource,
    counts: Mapping[int, ValueCounts],
    row_counts: IntArray,
    *,
    borders: IntArray | None = None,
    fields: Mapping[int, BoolArray] | None = None,
) -> FloatArray:
    """Estimate the fraction of the rows of each row group for which a predicate is true.

    With the ``borders`` of partitions at least one row of each: who asks expects something.
    """
    row_group_count = len(row_counts)
    outcomes = _Estimator(source, counts, row_group_count, fields).of(predicate)
    verdict, _ = prune(predicate, source, row_group_count)
    least: FloatArray = np.zeros(row_group_count)
    if borders is not None:
        rows_before = np.concatenate([[0], np.cumsum(np.where(verdict.survives, row_counts, 0))])
        least = np.repeat(1 / np.maximum(np.diff(rows_before[borders]), 1), np.diff(borders))
    fraction = np.where(verdict.all_rows_match, 1.0, np.clip(outcomes.true, least, 1))
    return np.where(verdict.survives, fraction, 0.0)


def clustered_fields(
    predicate: BoundPredicate,
    source: StatisticsSource,
    table: RowGroupTable,
    places: Mapping[int, int | None],
    *,
    borders: IntArray,
) -> dict[int, BoolArray]:
    """Find the columns of a predicate whose similar values are close together in a file, so that pages separate them.

    These are the designated timestamp and the first column of the sort order. Numeric columns count if nearly every row
    group begins where the previous one ends, or the other way round.
    """
    in_file_order = {table.designated_timestamp, *table.sorting_columns[:1]}
    everywhere = np.ones(table.row_group_count, np.bool_)
    return {
        field.index: everywhere if place in in_file_order else _where_in_order(source.bounds(field), borders)
        for field in fields_of(predicate)
        if (place := places.get(field.index)) is not None
    }


def _where_in_order(bounds: Bounds | None, borders: IntArray) -> BoolArray:
    """Tell for each row group whether the column is clustered in its partition."""
    lengths = np.diff(borders)
    if bounds is None or not (isinstance(bounds.lower, NumericSide) and isinstance(bounds.upper, NumericSide)):
        return np.zeros(int(lengths.sum()), np.bool_)
    known = bounds.lower.known & bounds.upper.known
    partition = np.repeat(np.arange(len(lengths)), lengths)[known]
    lower, upper = bounds.lower.numbers[known], bounds.upper.numbers[known]
    follows = partition[1:] == partition[:-1]

    def count(pairs: BoolArray) -> IntArray:
        counts: IntArray = np.bincount(partition[1:][follows & pairs], minlength=len(lengths))
        return counts

    ascending, descending = count(lower[1:] >= upper[:-1]), count(upper[1:] <= lower[:-1])
    in_order = np.maximum(ascending, descending) / np.maximum(count(follows), 1) >= _IN_ORDER
    # Row groups of one and the same value are in any order, and pages cannot separate them. So some row group must have
    # several values, or another value than the previous one.
    varies = np.zeros(len(lengths), np.bool_)
    varies[partition[lower < upper]] = True
    varies[partition[1:][follows & (lower[1:] != lower[:-1])]] = True
    return np.repeat(in_order & varies, lengths)


@dataclass(frozen=True, slots=True)
class _Range(BoundLeaf):
    """Comparisons of one field with ``<`` or ``>`` joined by AND: the two ends are not independent."""

    parts: tuple[BoundComparison, ...]


def _join_ranges(parts: tuple[BoundPredicate, ...]) -> list[BoundPredicate]:
    """Group the comparisons of each field."""
    by_field: dict[BoundField, list[BoundComparison]] = {}
    others: list[BoundPredicate] = []
    for part in parts:
        if isinstance(part, BoundComparison) and part.operator in _BELOW | _ABOVE:
            by_field.setdefault(part.field, []).append(part)
        else:
            others.append(part)
    return [*(_Range(field, tuple(comparisons)) for field, comparisons in by_field.items()), *others]


class _Estimator(BoundFold[_Outcomes]):
    """Estimates one predicate, part by part; see :func:`estimate_selectivity`."""

    def __init__(
        self,
        source: StatisticsSource,
        counts: Mapping[int, ValueCounts],
        row_group_count: int,
        fields: Mapping[int, BoolArray] | None,
    ) -> None:
        self._source = source
        self._counts = counts
        self._ones = np.ones(row_group_count)
        self._fields = fields

    def parts(self, joined: And | Or) -> Iterable[BoundPredicate]:
        return _join_ranges(joined.parts) if isinstance(joined, And) else joined.parts

    def constant(self, value: bool | None) -> _Outcomes:
        return _Outcomes(true=self._ones * (value is True), false=self._ones * (value is False))

    def all_of(self, results: Iterable[_Outcomes]) -> _Outcomes:
        return reduce(_and, results, self.constant(value=True))

    def negated(self, result: _Outcomes) -> _Outcomes:
        return _Outcomes(true=result.false, false=result.true)

    def test(self, leaf: BoundLeaf) -> _Outcomes:
        bounds = self._source.bounds(leaf.field)
        counts_where = None if self._fields is None else self._fields.get(leaf.field.index, np.False_)
        if bounds is None or (counts_where is not None and not counts_where.any()):
            return _Outcomes(true=self._ones, false=self._ones)
        outcomes = self._of_leaf(leaf, bounds)
        if counts_where is None:
            return outcomes
        return _Outcomes(true=np.where(counts_where, outcomes.true, 1), false=np.where(counts_where, outcomes.false, 1))

    def _of_leaf(self, leaf: BoundLeaf, bounds: Bounds) -> _Outcomes:
        counted = self._counts.get(leaf.field.index)
        null_fraction = 0 * self._ones if counted is None else counted.null_fraction
        null_fraction = np.where(bounds.may_hold_values, np.where(bounds.may_hold_nulls, null_fraction, 0.0), 1.0)
        present = 1 - null_fraction
        match leaf:
            case BoundIsNull():
                return _Outcomes(true=null_fraction, false=present)
            case ConstantUnlessNull(value=value):
                return _Outcomes(true=present * value, false=present * (not value))
            case _Range(parts=parts):
                fraction = _fraction_between(parts, bounds)
            case BoundComparison() | BoundIn():
                distinct = self._ones if counted is None else counted.distinct_values
                fraction = _fraction(leaf, bounds, distinct)
            case BoundLike():
                fraction = self._ones * _SHARE_OF_PATTERN
            case _:
                raise InternalError(f"how many rows a {type(leaf).__name__} leaves cannot be estimated")
        return _Outcomes(true=fraction * present, false=(1 - fraction) * present)


def _and(one: _Outcomes, other: _Outcomes) -> _Outcomes:
    return _Outcomes(true=one.true * other.true, false=1 - (1 - one.false) * (1 - other.false))


def _fraction(leaf: BoundComparison | BoundIn, bounds: Bounds, distinct: FloatArray) -> FloatArray:
    """Estimate the fraction of non-NULL values for which a condition holds."""
    if isinstance(leaf, BoundComparison) and leaf.operator in _BELOW | _ABOVE:
        return _fraction_between((leaf,), bounds)
    search = leaf.search if isinstance(leaf, BoundIn) else SortedValues.of((leaf.value,))
    distinct = np.minimum(distinct, _whole_numbers_between(bounds))
    equal = np.minimum(_count_within(search, bounds) / distinct, 1)
    return 1 - equal if isinstance(leaf, BoundComparison) and leaf.operator is Operator.NOT_EQUAL else equal


def _fraction_between(parts: tuple[BoundComparison, ...], bounds: Bounds) -> FloatArray:
    """Estimate the fraction of values that satisfies all comparisons with ``<`` and ``>``."""
    below = above = np.ones(len(bounds.may_hold_values))
    for part in parts:
        fraction = _fraction_below(SortedValues.of((part.value,)), bounds)
        if part.operator in _BELOW:
            below = np.minimum(below, fraction)
        else:
            above = np.minimum(above, 1 - fraction)
    between = np.maximum(below + above - 1, 0)
    return np.where(np.isnan(between), _UNKNOWN_RANGE, between)


def _count_within(search: SortedValues, bounds: Bounds) -> FloatArray:
    """Count the literals within the bounds."""
    first: IntArray = np.zeros(len(bounds.may_hold_values), np.int64)
    stop = np.full_like(first, len(search.values))
    if bounds.lower is not None:
        first = np.where(bounds.lower.known, bounds.lower.ranks(search)[0], first)
    if bounds.upper is not None:
        stop = np.where(bounds.upper.known, bounds.upper.ranks(search)[1], stop)
    within: FloatArray = np.maximum(stop - first, 0).astype(np.float64)
    return within


def _whole_numbers_between(bounds: Bounds) -> FloatArray:
    """Count the possible values between the bounds of an integer column; infinity for other columns."""
    lower, upper = bounds.lower, bounds.upper
    if not (isinstance(lower, NumericSide) and isinstance(upper, NumericSide)) or lower.numbers.dtype.kind == "f":
        return np.full(len(bounds.may_hold_values), np.inf)
    span = np.maximum(upper.numbers.astype(np.float64) - lower.numbers.astype(np.float64), 0) + 1
    return np.where(lower.known & upper.known, span, np.inf)


def _fraction_below(search: SortedValues, bounds: Bounds) -> FloatArray:
    """Estimate the fraction of values below the single literal; NaN if unknown."""
    if bounds.lower is None or bounds.upper is None:
        return np.full(len(bounds.may_hold_values), np.nan)
    value = search.keys[0] if search.prefixes is None else search.prefixes[0]
    lower, upper = _positions(bounds.lower), _positions(bounds.upper)
    with np.errstate(
        divide="ignore", invalid="ignore", over="ignore"
    ):  # the distance between extreme doubles overflows
        fraction = (float(value) - lower) / (upper - lower)
    known = bounds.lower.known & bounds.upper.known & np.isfinite(fraction)
    return np.where(known, np.clip(fraction, 0, 1), np.nan)


def _positions(side: Side) -> FloatArray:
    """Map bounds to a number line: numbers as they are, byte strings by their first 8 bytes."""
    return side.numbers.astype(np.float64) if isinstance(side, NumericSide) else side.prefixes.astype(np.float64)
