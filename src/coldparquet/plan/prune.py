"""Drops row groups and partitions that provably hold no matching row, by statistics and by time.

For every row group three questions get conservative answers: may the predicate be true for one of its rows, may it be
false, may it be NULL? A row group survives if the predicate may be true. All of its rows match, so that no filter is
needed, if it may be neither false nor NULL.

Partitions are pruned by the times in their directory names alone. A partition with rows of other times than its name
would lose them silently. So where statistics are read, their times are compared with the name.

The timestamp bounds of a predicate are the smallest range that holds every row it can select. Native partitions have no
statistics, but their rows are in time order: the range of timestamps becomes a range of rows. The designated timestamp
is never null.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.plan.bind import BoundComparison, BoundFold, BoundIn, BoundIsNull, BoundLike, ConstantUnlessNull
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT, And, Instant, Operator
from coldparquet.plan.statistics import BOUNDS_OF_COLUMNS
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.plan.bind import BoundLeaf, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, Bounds, IntArray
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.statistics import StatisticsSource


class Verdict(Struct, frozen=True, kw_only=True, eq=False):
    """Possible results of a predicate in each row group; every array has shape ``(row_groups,)``."""

    may_be_true: BoolArray
    may_be_false: BoolArray
    may_be_null: BoolArray

    @property
    def survives(self) -> BoolArray:
        """Row groups that must be read."""
        return self.may_be_true

    @property
    def all_rows_match(self) -> BoolArray:
        """Row groups in which every row satisfies the predicate; true for empty ones."""
        return ~(self.may_be_false | self.may_be_null)


class Dropped(NamedTuple):
    """The effect of one of the conditions joined by AND."""

    condition: str
    row_groups: int
    """Non-empty row groups that this condition alone drops."""


class PruneReport(Struct, frozen=True, kw_only=True, eq=False):
    """What pruning dropped and why, for explain."""

    row_groups: int
    """Number of considered row groups."""
    ruled_out: tuple[tuple[str, BoolArray], ...]
    """The conditions in the order in which they were written. For each the non-empty row groups that it alone drops,
    shape ``(row_groups,)``."""

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Counts per condition; several may drop the same row group."""
        return tuple([Dropped(condition, int(np.count_nonzero(where))) for condition, where in self.ruled_out])

    def of(self, row_groups: slice) -> PruneReport:
        """Return the report about some of the row groups."""
        ruled_out = tuple([(condition, where[row_groups]) for condition, where in self.ruled_out])
        return PruneReport(row_groups=row_groups.stop - row_groups.start, ruled_out=ruled_out)

    def __str__(self) -> str:
        return "\n".join(
            f"{condition} dropped {row_groups} of {self.row_groups} row groups"
            for condition, row_groups in self.dropped
        )


def prune(bound: BoundPredicate, source: StatisticsSource, row_group_count: int) -> tuple[Verdict, PruneReport]:
    """Return for each row group the predicate's possible results, and how many each condition drops."""
    may_hold_rows = source.may_hold_rows
    if len(may_hold_rows) != row_group_count:
        raise InternalError(f"statistics of {len(may_hold_rows)} row groups, expected {row_group_count}")
    conditions = bound.parts if isinstance(bound, And) else (bound,)
    by_statistics = _Verdicts(source, row_group_count)
    verdicts = [by_statistics.of(condition) for condition in conditions]
    verdict = by_statistics.all_of(verdicts)
    report = PruneReport(
        row_groups=row_group_count,
        ruled_out=tuple(
            (str(condition), may_hold_rows & ~alone.may_be_true)
            for condition, alone in zip(conditions, verdicts, strict=True)
        ),
    )
    in_rows = Verdict(
        may_be_true=verdict.may_be_true & may_hold_rows,
        may_be_false=verdict.may_be_false & may_hold_rows,
        may_be_null=verdict.may_be_null & may_hold_rows,
    )
    return in_rows, report


class _Verdicts(BoundFold[Verdict]):
    """Evaluates predicates by statistics, regardless of empty row groups."""

    def __init__(self, source: StatisticsSource, row_group_count: int) -> None:
        self._source = source
        self._row_group_count = row_group_count

    def constant(self, value: bool | None) -> Verdict:
        yes, no = np.ones(self._row_group_count, np.bool_), np.zeros(self._row_group_count, np.bool_)
        return Verdict(
            may_be_true=yes if value is True else no,
            may_be_false=yes if value is False else no,
            may_be_null=yes if value is None else no,
        )

    def all_of(self, results: Iterable[Verdict]) -> Verdict:
        return reduce(_and, results, self.constant(value=True))

    def negated(self, result: Verdict) -> Verdict:
        return replace(result, may_be_true=result.may_be_false, may_be_false=result.may_be_true)

    def test(self, leaf: BoundLeaf) -> Verdict:
        bounds = self._source.bounds(leaf.field)
        if bounds is None:
            anything = np.ones(self._row_group_count, np.bool_)
            may_be_null = ~anything if isinstance(leaf, BoundIsNull) else anything
            verdict = Verdict(may_be_true=anything, may_be_false=anything, may_be_null=may_be_null)
        else:
            verdict = _verdict(leaf, bounds)
        may_hold = self._may_hold_searched(leaf)
        return verdict if may_hold is None else replace(verdict, may_be_true=verdict.may_be_true & may_hold)

    def _may_hold_searched(self, leaf: BoundLeaf) -> BoolArray | None:
        """Tell by bloom filters where some row may hold a searched value: elsewhere the search cannot succeed."""
        match leaf:
            case BoundComparison(field=field, operator=Operator.EQUAL, value=value):
                return self._source.may_hold_any_of(field, (value,))
            case BoundIn(field=field, values=values):
                return self._source.may_hold_any_of(field, values)
        return None


def _verdict(leaf: BoundLeaf, bounds: Bounds) -> Verdict:
    values, nulls = bounds.may_hold_values, bounds.may_hold_nulls
    nowhere = np.zeros_like(values)
    match leaf:
        case BoundIsNull():
            return Verdict(may_be_true=nulls, may_be_false=values, may_be_null=nowhere)
        case ConstantUnlessNull(value=outcome):
            may_be_true, may_be_false = (values, nowhere) if outcome else (nowhere, values)
        case BoundComparison(operator=operator, value=value):
            may_be_true, may_be_false = _compare(bounds, operator, value)
        case BoundIn():
            may_be_true, may_be_false = _is_member(bounds, leaf)
        case BoundLike():
            may_be_true = may_be_false = values
        case _:
            raise InternalError(f"a {type(leaf).__name__} cannot be pruned by")
    return Verdict(may_be_true=may_be_true & values, may_be_false=may_be_false & values, may_be_null=nulls)


def _compare(bounds: Bounds, operator: Operator, value: DomainValue) -> tuple[BoolArray, BoolArray]:
    """Tell whether some value within the bounds may satisfy the comparison, and whether some may not."""
    match operator:
        case Operator.EQUAL:
            return _may_equal(bounds, value), _may_differ(bounds, value)
        case Operator.NOT_EQUAL:
            return _may_differ(bounds, value), _may_equal(bounds, value)
        case Operator.GREATER:
            return _may_exceed(bounds, value), _or_nan(bounds, ~_all_exceed(bounds, value))
        case Operator.GREATER_OR_EQUAL:
            return _may_reach(bounds, value), _or_nan(bounds, ~_all_reach(bounds, value))
        case Operator.LESS:
            return ~_all_reach(bounds, value), _or_nan(bounds, _may_reach(bounds, value))
        case Operator.LESS_OR_EQUAL:
            return ~_all_exceed(bounds, value), _or_nan(bounds, _may_exceed(bounds, value))


def _may_exceed(bounds: Bounds, value: DomainValue) -> BoolArray:
    """Tell whether some value may be greater than the literal: the upper bound is."""
    upper = bounds.upper
    return np.ones_like(bounds.may_hold_values) if upper is None else ~upper.known | upper.above(value)


def _may_reach(bounds: Bounds, value: DomainValue) -> BoolArray:
    upper = bounds.upper
    return np.ones_like(bounds.may_hold_values) if upper is None else ~upper.known | upper.at_or_above(value)


def _all_exceed(bounds: Bounds, value: DomainValue) -> BoolArray:
    """Tell whether every value is greater than the literal: the lower bound is."""
    lower = bounds.lower
    return np.zeros_like(bounds.may_hold_values) if lower is None else lower.known & lower.above(value)


def _all_reach(bounds: Bounds, value: DomainValue) -> BoolArray:
    lower = bounds.lower
    return np.zeros_like(bounds.may_hold_values) if lower is None else lower.known & lower.at_or_above(value)


def _may_equal(bounds: Bounds, value: DomainValue) -> BoolArray:
    return _may_reach(bounds, value) & ~_all_exceed(bounds, value)


def _may_differ(bounds: Bounds, value: DomainValue) -> BoolArray:
    """Tell whether some value may differ: not if lower and upper bound are both the literal."""
    return _or_nan(bounds, ~_all_reach(bounds, value) | _may_exceed(bounds, value))


def _or_nan(bounds: Bounds, may_be: BoolArray) -> BoolArray:
    """Account for NaN outside of the bounds: it makes ``!=`` true and all other comparisons false."""
    return np.ones_like(may_be) if bounds.may_hold_nan else may_be


def _is_member(bounds: Bounds, bound: BoundIn) -> tuple[BoolArray, BoolArray]:
    lower, upper = bounds.lower, bounds.upper
    anything = np.ones_like(bounds.may_hold_values)
    if lower is None or upper is None:
        return anything, anything
    below_lower, up_to_lower = lower.ranks(bound.search)
    below_upper, up_to_upper = upper.ranks(bound.search)
    # Literals within the bounds: from the first one at or above the lower bound to the last one at or below the upper
    # one.
    may_be_true = np.where(upper.known, up_to_upper, len(bound.values)) > np.where(lower.known, below_lower, 0)
    # Every value is in the list if both bounds are the same literal.
    both_literals = (up_to_lower > below_lower) & (up_to_upper > below_upper)
    all_members = lower.known & upper.known & both_literals & (below_lower == below_upper)
    return may_be_true, _or_nan(bounds, ~all_members)


def _and(left: Verdict, right: Verdict) -> Verdict:
    """SQL's AND: false if any part is, else NULL if any part is, else true."""
    return Verdict(
        may_be_true=left.may_be_true & right.may_be_true,
        may_be_false=left.may_be_false | right.may_be_false,
        may_be_null=(left.may_be_null | right.may_be_null)
        & (left.may_be_true | left.may_be_null)
        & (right.may_be_true | right.may_be_null),
    )


StatedTimes = tuple[int, int]
"""The first and the last time of some rows, in nanoseconds since 1970."""


def misplaced_times(stated: StatedTimes | None, time_range_ns: tuple[int, int]) -> str | None:
    """Return the times of a partition's rows if some are outside of the range that its name states."""
    if stated is None or time_range_ns[0] <= stated[0] <= stated[1] < time_range_ns[1]:
        return None
    return f"{_readable(stated[0])} to {_readable(stated[1])}"


def _readable(time_ns: int) -> str:
    text = str(Instant(time_ns))
    return text if text.endswith("Z") else "a time outside of the years 1 to 9999"


def stated_times_ns(table: RowGroupTable, column: int, borders: IntArray) -> list[StatedTimes | None]:
    """Return the first and last time of partitions, by the row groups that state both exactly."""
    nothing: list[StatedTimes | None] = [None] * (len(borders) - 1)
    try:
        type_ = table.column_type(column)
    except UnsupportedError:
        return nothing
    bounds, chunks = BOUNDS_OF_COLUMNS.of(table, column), table.chunks(column)
    lower, upper = bounds.lower, bounds.upper
    if type_.arrow.name != "timestamp" or not isinstance(lower, NumericSide) or not isinstance(upper, NumericSide):
        return nothing
    known = lower.known & upper.known & chunks.min.exact & chunks.max.exact
    partition = np.repeat(np.arange(len(nothing)), np.diff(borders))[known]
    limits = np.iinfo(np.int64)
    first, last = np.full(len(nothing), limits.max), np.full(len(nothing), limits.min)
    np.minimum.at(first, partition, lower.numbers[known].astype(np.int64))
    np.maximum.at(last, partition, upper.numbers[known].astype(np.int64))
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    is_stated = np.zeros(len(nothing), np.bool_)
    is_stated[partition] = True
    return [
        (begin * unit_ns, end * unit_ns) if is_known else None
        for begin, end, is_known in zip(first.tolist(), last.tolist(), is_stated.tolist(), strict=True)
    ]


def stated_time_range_ns(table: RowGroupTable, column: int) -> StatedTimes | None:
    """Return the first and last time of all rows, by the row groups that state both exactly."""
    [stated] = stated_times_ns(table, column, np.array([0, len(table.blocks.first_words)]))
    return stated


_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def timestamp_bounds(predicate: BoundPredicate | None, timestamp_index: int | None) -> tuple[int | None, int | None]:
    """Bound the timestamps of the rows that a predicate can select."""
    found = _interval(predicate, timestamp_index)
    return (
        found.lower if found.lower > _LEAST else None,
        found.upper if found.upper < _GREATEST else None,
    )


def is_time_range(predicate: BoundPredicate | None, timestamp_index: int | None) -> bool:
    """Tell whether a predicate selects exactly the rows within its :func:`timestamp_bounds`: then no filter runs."""
    return _interval(predicate, timestamp_index).is_exact


class _Interval(Struct, frozen=True, kw_only=True):
    """Timestamps ``lower`` to ``upper``, both included; empty if ``lower`` is above ``upper``."""

    lower: int
    upper: int
    is_exact: bool
    """Whether the predicate is true for all timestamps inside, and false, not NULL, for all others."""

    @property
    def is_empty(self) -> bool:
        return self.lower > self.upper


_ALL = _Interval(lower=_LEAST, upper=_GREATEST, is_exact=True)
_NONE = _Interval(lower=_GREATEST, upper=_LEAST, is_exact=True)
_UNKNOWN = _Interval(lower=_LEAST, upper=_GREATEST, is_exact=False)
_NEVER_TRUE = _Interval(lower=_GREATEST, upper=_LEAST, is_exact=False)
"""Selects no row. Some may be NULL rather than false, so the negation does not select every row."""


def _interval(predicate: BoundPredicate | None, timestamp: int | None) -> _Interval:
    return _ALL if predicate is None else _Intervals(timestamp).of(predicate)


class _Intervals(BoundFold[_Interval]):
    """Bounds the timestamps for which predicates are true."""

    def __init__(self, timestamp: int | None) -> None:
        self._timestamp = timestamp

    def constant(self, value: bool | None) -> _Interval:
        return _NEVER_TRUE if value is None else _ALL if value else _NONE

    def all_of(self, results: Iterable[_Interval]) -> _Interval:
        found = _ALL
        for part in results:
            found = _Interval(
                lower=max(found.lower, part.lower),
                upper=min(found.upper, part.upper),
                is_exact=found.is_exact and part.is_exact,
            )
        return found

    def any_of(self, results: Iterable[_Interval]) -> _Interval:
        parts = list(results)
        filled = sorted((part for part in parts if not part.is_empty), key=lambda part: part.lower)
        is_exact = all(part.is_exact for part in parts)
        if not filled:
            return _NONE if is_exact else _NEVER_TRUE
        upper = filled[0].upper
        for part in filled[1:]:
            is_exact = is_exact and part.lower <= upper + 1  # a gap between the parts belongs to neither
            upper = max(upper, part.upper)
        return _Interval(lower=filled[0].lower, upper=upper, is_exact=is_exact)

    def negated(self, result: _Interval) -> _Interval:
        if not result.is_exact:
            return _UNKNOWN
        if result.is_empty:
            return _ALL
        if result.lower == _LEAST:
            return _NONE if result.upper == _GREATEST else _from_to(result.upper + 1, _GREATEST)
        return _from_to(_LEAST, result.lower - 1) if result.upper == _GREATEST else _UNKNOWN

    def test(self, leaf: BoundLeaf) -> _Interval:
        if leaf.field.index != self._timestamp:
            never_true = isinstance(leaf, ConstantUnlessNull) and not leaf.value
            return _NEVER_TRUE if never_true else _UNKNOWN
        match leaf:
            case BoundIsNull():
                return _NONE
            case ConstantUnlessNull(value=value):
                return _ALL if value else _NONE
            case BoundIn(values=values):
                return _Interval(lower=int(values[0]), upper=int(values[-1]), is_exact=False)
            case BoundComparison(operator=operator, value=value):
                return _of_comparison(operator, int(value))
        return _UNKNOWN


def _of_comparison(operator: Operator, value: int) -> _Interval:
    match operator:
        case Operator.EQUAL:
            return _from_to(value, value)
        case Operator.NOT_EQUAL:
            return _UNKNOWN
        case Operator.LESS:
            return _from_to(_LEAST, value - 1)
        case Operator.LESS_OR_EQUAL:
            return _from_to(_LEAST, value)
        case Operator.GREATER:
            return _from_to(value + 1, _GREATEST)
        case Operator.GREATER_OR_EQUAL:
            return _from_to(value, _GREATEST)


def _from_to(lower: int, upper: int) -> _Interval:
    return _Interval(lower=lower, upper=upper, is_exact=True)
