"""Which values a predicate has to look up in bloom filters, and in which row groups.

Filters are asked for `=` and `IN` where minima and maxima leave the question open, and only in row groups that would be
dropped if the filters said no: beside `OR price > 3` no filter helps. Of a list of values only those between minimum and
maximum are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coldparquet.errors import UnsupportedError
from coldparquet.format.bloom_filter import bloom_hashes
from coldparquet.format.bloom_places import locate_blooms
from coldparquet.format.column_types import Comparison
from coldparquet.plan.bind import BoundAnd, BoundComparison, BoundIn, BoundOr
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.predicate import Operator
from coldparquet.plan.prune import prune
from coldparquet.plan.type_changes import holds_same_values
from coldparquet.plan.type_widening import bounds_factor, keeps_bounds, widens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coldparquet.format.bloom_filter import BloomHashes, StoredValue
    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.row_group_table import RowGroupTable
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, Bounds, IntArray
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.statistics import StatisticsSource

MAX_VALUES = 256
"""Values of a list that are looked up in one filter. With the usual 1 % of false alarms 256 absent values raise one in 92 %
of the filters, so that longer lists cost bytes and drop nothing."""

LookupKey: TypeAlias = "tuple[int, tuple[DomainValue, ...]]"
"""Index of the field, and the values that are looked for in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BloomLookup:
    """One set of values of one column; arrays have shape ``(row_groups,)``."""

    column: int
    """Index of the column in the sidecar."""
    hashes: BloomHashes
    first_value: IntArray
    """First of the values that statistics leave as candidates."""
    stop_value: IntArray
    """One past the last candidate."""
    can_deny: BoolArray
    """Where a filter could tell that no candidate is there."""
    needed: BoolArray
    """Where it is worth asking."""

    def of(self, row_groups: slice) -> BloomLookup:
        """Return what is worth asking in some of the row groups, numbered from the first of them."""
        return BloomLookup(
            column=self.column,
            hashes=self.hashes,
            first_value=self.first_value[row_groups],
            stop_value=self.stop_value[row_groups],
            can_deny=self.can_deny[row_groups],
            needed=self.needed[row_groups],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomLookups:
    """What is worth asking the bloom filters of one partition, or of many."""

    lookups: Mapping[LookupKey, BloomLookup]
    """Those that are worth asking in some row group."""
    places: Mapping[int, BloomPlaces]
    """By column, where the filters lie that the predicate could ask."""

    def of(self, row_groups: slice) -> BloomLookups:
        """Return what is worth asking in the row groups of one partition, numbered from its first one."""
        lookups = {
            key: lookup.of(row_groups) for key, lookup in self.lookups.items() if lookup.needed[row_groups].any()
        }
        places = {column: places.of(row_groups) for column, places in self.places.items()} if lookups else {}
        return BloomLookups(lookups=lookups, places=places)


def find_lookups(
    predicate: BoundPredicate,
    statistics: StatisticsSource,
    *,
    table: RowGroupTable,
    columns: Mapping[int, int | None],
    row_groups: BoolArray,
) -> BloomLookups:
    """Find what is worth asking the filters; see the module.

    Args:
        predicate: The predicate.
        statistics: What is known without filters.
        table: The row groups of a sidecar, or of several.
        columns: For each field index of the queried table its column in them, or None.
        row_groups: The row groups that are left to be read, shape ``(row_groups,)``.

    Raises:
        FormatError: A count in a sidecar exceeds 2**63 - 1.
    """
    places: dict[int, BloomPlaces] = {}
    lookups: dict[LookupKey, BloomLookup] = {}
    for leaf in _leaves(predicate):
        column = columns.get(leaf.field.index)
        if column is None or column not in table.bloom_columns:
            continue
        if column not in places:
            places[column] = locate_blooms(table, column)
        lookup = _lookup(leaf, statistics, table, column, places[column])
        if lookup is not None:
            lookups[lookup_key(leaf)] = lookup
    if lookups:
        need = _Need(statistics, lookups, len(row_groups))
        need.add(predicate, row_groups & ~need.survives_denial(predicate))
    needed = {key: lookup for key, lookup in lookups.items() if lookup.needed.any()}
    return BloomLookups(lookups=needed, places=places)


def looks_up_values(predicate: BoundPredicate, table: RowGroupTable, columns: Mapping[int, int | None]) -> bool:
    """Tell whether a predicate looks for values of columns that have filters.

    Args:
        predicate: The predicate.
        table: The row groups.
        columns: As for :func:`find_lookups`.
    """
    return any(columns.get(leaf.field.index) in table.bloom_columns for leaf in _leaves(predicate))


def lookup_key(leaf: BoundComparison | BoundIn) -> LookupKey:
    """Return what names the values that a leaf looks for."""
    return leaf.field.index, (leaf.value,) if isinstance(leaf, BoundComparison) else leaf.values


def _leaves(bound: BoundPredicate) -> Iterator[BoundComparison | BoundIn]:
    """Yield the leaves that must find a value; those below NOT must not, and filters cannot tell that one is there."""
    match bound:
        case BoundAnd(parts=parts) | BoundOr(parts=parts):
            for part in parts:
                yield from _leaves(part)
        case BoundComparison(operator=Operator.EQUAL) | BoundIn():
            yield bound


def _lookup(
    leaf: BoundComparison | BoundIn,
    statistics: StatisticsSource,
    table: RowGroupTable,
    column: int,
    places: BloomPlaces,
) -> BloomLookup | None:
    try:
        stored = table.column_type(column)
    except UnsupportedError:
        return None
    wanted = leaf.field.type
    is_widened = wanted.is_unified and widens(stored, wanted) and keeps_bounds(stored, wanted)
    if not (is_widened or holds_same_values(stored, wanted)):
        return None
    _, values = lookup_key(leaf)
    first, stop = _candidates(leaf, statistics.bounds(leaf.field), len(places.present))
    can_deny = places.present & (stop - first <= MAX_VALUES) & _leaves_nothing_out(table, column, stored, values)
    if not can_deny.any():
        return None
    hashes = bloom_hashes(_as_stored(values, stored, leaf.field), stored)
    if hashes is None:
        return None
    return BloomLookup(
        column=column,
        hashes=hashes,
        first_value=first,
        stop_value=stop,
        can_deny=can_deny,
        needed=np.zeros_like(can_deny),
    )


def _candidates(
    leaf: BoundComparison | BoundIn, bounds: Bounds | None, row_group_count: int
) -> tuple[IntArray, IntArray]:
    """Return, for each row group, which run of the ascending values lies within its bounds."""
    search = SortedValues.of((leaf.value,)) if isinstance(leaf, BoundComparison) else leaf.search
    first = np.zeros(row_group_count, np.int64)
    stop = np.full(row_group_count, len(search.values))
    lower, upper = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    if lower is not None:
        first = np.where(lower.known, lower.ranks(search)[0], first)
    if upper is not None:
        stop = np.where(upper.known, upper.ranks(search)[1], stop)
    return first, np.maximum(first, stop)


def _leaves_nothing_out(
    table: RowGroupTable, column: int, stored: ColumnType, values: tuple[DomainValue, ...]
) -> BoolArray:
    """Tell where the filter holds every row's value. Rows counted as null are left out, also where they hold one.

    A missing BYTE, SHORT or CHAR is 0. A column of another type that cannot mark nulls in the file holds something in the
    rows from before it was added.
    """
    chunks = table.chunks(column)
    everywhere = np.ones(table.row_group_count, np.bool_)
    if stored.never_null:
        return chunks.has_null_count & (chunks.null_count == 0) if 0 in values else everywhere
    if table.column(column).max_def_level == 0:
        return ~(chunks.has_null_count & (chunks.null_count > 0))
    return everywhere


def _as_stored(values: tuple[DomainValue, ...], stored: ColumnType, wanted: BoundField) -> tuple[StoredValue, ...]:
    """Express values of the table's column as the file stores them; None for those that it cannot hold."""
    factor = bounds_factor(stored, wanted.type)
    if stored.comparison is not Comparison.FLOAT and wanted.type.comparison is Comparison.FLOAT:
        return tuple(int(value) if float(value).is_integer() else None for value in values)
    if factor == 1:
        return values
    steps_and_rest = [divmod(int(value), factor) for value in values]
    return tuple(None if rest else steps for steps, rest in steps_and_rest)


class _IfDenied:
    """The statistics as they would be if every filter that can be asked denied everything."""

    def __init__(self, statistics: StatisticsSource, lookups: Mapping[LookupKey, BloomLookup]) -> None:
        self._statistics = statistics
        self._lookups = lookups

    @property
    def may_hold_rows(self) -> BoolArray:
        return self._statistics.may_hold_rows

    def bounds(self, field: BoundField) -> Bounds | None:
        return self._statistics.bounds(field)

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        lookup = self._lookups.get((field.index, values))
        return self._statistics.may_hold_any_of(field, values) if lookup is None else ~lookup.can_deny


class _Need:
    """Finds, for each lookup, the row groups in which its answer can make a difference."""

    def __init__(
        self, statistics: StatisticsSource, lookups: Mapping[LookupKey, BloomLookup], row_group_count: int
    ) -> None:
        self._statistics = statistics
        self._if_denied = _IfDenied(statistics, lookups)
        self._lookups = lookups
        self._row_group_count = row_group_count

    def survives_denial(self, bound: BoundPredicate) -> BoolArray:
        """Tell where a predicate may be true whatever the filters say."""
        return prune(bound, self._if_denied, self._row_group_count)[0].survives

    def add(self, bound: BoundPredicate, where: BoolArray) -> None:
        """Note the lookups of a part of the predicate, in row groups in which denying that part helps."""
        match bound:
            case BoundAnd(parts=parts):
                for part in parts:
                    self.add(part, where & ~self.survives_denial(part))
            case BoundOr(parts=parts):
                # All parts have to be denied, so in the row groups where one cannot be, none is asked.
                every = where & ~self.survives_denial(bound)
                for part in parts:
                    self.add(part, every)
            case BoundComparison(operator=Operator.EQUAL) | BoundIn():
                lookup = self._lookups.get(lookup_key(bound))
                if lookup is not None:
                    undecided = prune(bound, self._statistics, self._row_group_count)[0].survives
                    lookup.needed[:] |= where & lookup.can_deny & undecided
