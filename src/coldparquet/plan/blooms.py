"""Decides which values to look up in bloom filters and which bytes that needs, and evaluates the filters. No I/O.

Filters are probed for `=` and `IN` where minimum and maximum leave the question open, and only in row groups that a
negative answer would drop: beside `OR price > 3` no filter helps. From a list of values, only those between minimum and
maximum are looked up.

One lookup touches 32 bytes of a filter of any size, so only these are fetched. The probes are a state machine:

    lookups = find_lookups(predicate, statistics, table=sidecar, columns=places, row_groups=undecided)
    probes = BloomProbes(sidecar, lookups)
    while (wanted := probes.wanted()) is not None:      # at most twice; never if the filters are in the sidecar
        probes.receive(<the bytes of the wanted ranges, and their offsets>)
    statistics = SidecarStatistics(sidecar, places, blooms=probes.answers())

Filters that cannot be right are not probed, and a note says so: they never lose a row and never stop a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.blooms import (
    BLOCK_BYTES,
    UNKNOWN,
    block_numbers,
    blocks_at,
    bloom_hashes,
    locate_blooms,
    may_be_in_blocks,
)
from coldparquet.format.fetch import FetchedRanges
from coldparquet.format.types import ValueOrder
from coldparquet.plan.bind import BoundComparison, BoundIn
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.predicate import And, Operator, Or
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import BloomAnswers, LookupKey
from coldparquet.plan.type_changes import bounds_factor, holds_same_values, keeps_bounds, widens
from coldparquet.records import replace
from coldparquet.text import row_group_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.blooms import BloomHashes, BloomPlaces, StoredValue
    from coldparquet.format.fetch import WantedRanges
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.format.types import ColumnType
    from coldparquet.plan.bind import BoundField, BoundPredicate
    from coldparquet.plan.bounds import BoolArray, Bounds, IntArray
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.statistics import StatisticsSource


MAX_VALUES = 256
"""Most values of a list that are looked up in one filter. With the usual 1 % of false positives, 256 absent values
raise one in 92 % of the filters: longer lists cost bytes and drop nothing."""


class BloomLookup(Struct, frozen=True, kw_only=True, eq=False):
    """One set of values of one column; arrays have shape ``(row_groups,)``."""

    column: int
    """Index of the column in the sidecar."""
    hashes: BloomHashes
    first_value: IntArray
    """First of the values that statistics leave as candidates."""
    stop_value: IntArray
    """One past the last candidate."""
    can_deny: BoolArray
    """True if a filter could prove that no candidate is present."""
    needed: BoolArray
    """True if probing the filter is worth it."""


class BloomLookups(Struct, frozen=True, kw_only=True):
    """The worthwhile lookups in the bloom filters of one partition, or of many."""

    probes: Mapping[LookupKey, _Probe]
    """Lookups that are worthwhile in some row group."""
    places: Mapping[int, BloomPlaces]
    """By column, the places of the filters that the predicate could probe."""

    def of(self, row_groups: slice) -> BloomLookups:
        """Return the worthwhile lookups in the row groups of one partition, numbered from its first one."""
        asked = {key: probe for key, probe in self.probes.items() if probe.asks_any_of(row_groups)}
        places = {column: places.of(row_groups) for column, places in self.places.items()} if asked else {}
        return BloomLookups(
            probes={key: probe.of(row_groups, places[probe.column]) for key, probe in asked.items()}, places=places
        )

    def wanted_bytes(self, row_group_count: int) -> IntArray:
        """Return how many bytes of filters are to be fetched for each row group, shape ``(row_groups,)``."""
        wanted = np.zeros(row_group_count, np.int64)
        for probe in self.probes.values():
            wanted += probe.wanted_bytes()
        return wanted


def find_lookups(
    predicate: BoundPredicate,
    statistics: StatisticsSource,
    *,
    table: RowGroupTable,
    columns: Mapping[int, int | None],
    row_groups: BoolArray,
) -> BloomLookups:
    """Find the worthwhile lookups; see the module."""
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
    probes = {
        key: _Probe.for_lookup(lookup, places[lookup.column]) for key, lookup in lookups.items() if lookup.needed.any()
    }
    return BloomLookups(probes=probes, places=places)


def lookup_key(leaf: BoundComparison | BoundIn) -> LookupKey:
    """Return the key of the values that a leaf searches for."""
    return leaf.field.index, (leaf.value,) if isinstance(leaf, BoundComparison) else leaf.values


def _leaves(bound: BoundPredicate) -> Iterator[BoundComparison | BoundIn]:
    """Yield the leaves that must find a value. Leaves below NOT must not find one; filters cannot prove presence."""
    match bound:
        case And(parts=parts) | Or(parts=parts):
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
    """Return, for each row group, the run of the ascending values within its bounds."""
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
    """Tell where the filter covers every row's value. Filters exclude rows counted as null, even if these hold a value.

    A missing BYTE, SHORT or CHAR is 0. A column of another type that cannot mark nulls in the file holds arbitrary
    values in the rows from before it was added.
    """
    chunks = table.chunks(column)
    everywhere = np.ones(table.row_group_count, np.bool_)
    if stored.never_null:
        return chunks.has_null_count & (chunks.null_count == 0) if 0 in values else everywhere
    if table.column(column).max_def_level == 0:
        return ~(chunks.has_null_count & (chunks.null_count > 0))
    return everywhere


def _as_stored(values: tuple[DomainValue, ...], stored: ColumnType, wanted: BoundField) -> tuple[StoredValue, ...]:
    """Convert values of the table's column to the file's storage; None for values that it cannot hold."""
    factor = bounds_factor(stored, wanted.type)
    if stored.comparison is not ValueOrder.FLOAT and wanted.type.comparison is ValueOrder.FLOAT:
        return tuple(int(value) if float(value).is_integer() else None for value in values)
    if factor == 1:
        return values
    steps_and_rest = [divmod(int(value), factor) for value in values]
    return tuple(None if rest else steps for steps, rest in steps_and_rest)


class _IfDenied:
    """The statistics under the assumption that every probed filter answers no."""

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
        """Tell where a predicate may be true whatever the filters answer."""
        return prune(bound, self._if_denied, self._row_group_count)[0].survives

    def add(self, bound: BoundPredicate, where: BoolArray) -> None:
        """Record the lookups of a part of the predicate, in row groups where a negative answer to that part helps."""
        match bound:
            case And(parts=parts):
                for part in parts:
                    self.add(part, where & ~self.survives_denial(part))
            case Or(parts=parts):
                # All parts need a negative answer. Where one part cannot get one, none is probed.
                every = where & ~self.survives_denial(bound)
                for part in parts:
                    self.add(part, every)
            case BoundComparison(operator=Operator.EQUAL) | BoundIn():
                lookup = self._lookups.get(lookup_key(bound))
                if lookup is not None:
                    undecided = prune(bound, self._statistics, self._row_group_count)[0].survives
                    lookup.needed[:] |= where & lookup.can_deny & undecided


SMALL_BITSET_BYTES = 1024
"""Bitsets up to this length are fetched as a whole: several lookups in one of them then share a range."""

_MOST_ROUNDS = 2


class WantedBlocks(Struct, frozen=True, kw_only=True, eq=False):
    """The blocks of the filters of one column that one lookup touches; arrays of shape ``(blocks,)``."""

    column: str
    row_groups: IntArray
    numbers: IntArray
    """Index of each block in its filter."""
    block_counts: IntArray
    """Number of blocks of each filter."""


class BloomProbes:
    """The probes of the bloom filters of one partition.

    Args:
        sidecar: The snapshot; it may contain the filters.
        found: The values to look up, and where. Places are completed when headers arrive.
    """

    def __init__(self, sidecar: Sidecar, found: BloomLookups) -> None:
        self._sidecar = sidecar
        self._places = found.places
        self._probes = dict(found.probes)
        self._fetched = FetchedRanges()
        self._missing: WantedRanges | None = None
        self._is_missing_known = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to probe, here or in the Parquet file."""
        return not self._probes

    @property
    def parquet_size_bytes(self) -> int:
        """Least size of the Parquet file."""
        return self._sidecar.parquet_size_bytes

    @property
    def row_groups(self) -> BoolArray:
        """Row groups with a probed filter, shape ``(row_groups,)``."""
        asked = np.zeros(self._sidecar.row_group_count, np.bool_)
        for probe in self._probes.values():
            asked[probe.asked] = True
        return asked

    def wanted(self) -> WantedRanges | None:
        """Return what to fetch next from the Parquet file; None once all answers are known."""
        if not self._is_missing_known:
            self._missing, self._is_missing_known = self._find_missing(), True
        return self._missing

    @property
    def are_at_hand(self) -> bool:
        """Whether nothing is to be fetched: a quick answer to what :meth:`wanted` tells."""
        return not any(probe.is_elsewhere for probe in self._probes.values()) or (
            self._fetched.round_count > 0 and self.wanted() is None
        )

    def receive(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Take the bytes of all wanted ranges."""
        self._fetched.add_round(pieces)
        for probe in self._probes.values():
            probe.places.read_headers(probe.asked, self._fetched)
        self._is_missing_known = False

    def wanted_blocks(self) -> tuple[WantedBlocks, ...] | None:
        """Return the blocks that answer everything; None if nothing must be fetched, or headers must be read first."""
        probes = list(self._probes.values())
        if self.are_at_hand or not all(probe.is_closed for probe in probes):
            return None
        return tuple(probe.wanted_blocks(self._sidecar) for probe in probes)

    def receive_blocks(self, blocks: Sequence[npt.NDArray[np.uint32]]) -> None:
        """Take the blocks that :meth:`wanted_blocks` named, from any copy of the filters. Then nothing is wanted."""
        self._probes = {
            key: replace(probe, copied_blocks=copied)
            for (key, probe), copied in zip(self._probes.items(), blocks, strict=True)
        }
        self._missing, self._is_missing_known = None, True

    def answers(self) -> BloomAnswers:
        """Return the answers of the filters, once nothing is wanted."""
        if self.wanted() is not None:
            raise InternalError("the answers of bloom filters were asked for before these were fetched")
        in_sidecar = np.frombuffer(self._sidecar.file, np.uint8)
        found = {key: probe.answer(in_sidecar, self._fetched) for key, probe in self._probes.items()}
        return BloomAnswers(found, tuple(self._notes()))

    def _find_missing(self) -> WantedRanges | None:
        missing = self._fetched.missing([pair for probe in self._probes.values() for pair in probe.ranges()])
        if missing is not None and self._fetched.round_count == _MOST_ROUNDS:
            raise InternalError("bytes of bloom filters are missing although all of them were asked for")
        return missing

    def _notes(self) -> Iterator[str]:
        for column, places in self._places.items():
            for reason, row_groups in places.damage.items():
                yield (
                    f"bloom filters of column {self._sidecar.column(column).name!r} {reason} and were not asked, in"
                    f" {row_group_spans(sorted(row_groups))}"
                )


class _Probe(Struct, frozen=True, kw_only=True, eq=False):
    """The pairs of filter and hash that answer one lookup."""

    column: int
    """Index of the column in the sidecar."""
    places: BloomPlaces
    asked: IntArray
    """Row groups whose filters are probed, ascending, shape ``(filters,)``."""
    pair_row_groups: IntArray
    """Row group of each pair, shape ``(pairs,)``."""
    pair_hashes: npt.NDArray[np.uint64]
    """Hash to look up, shape ``(pairs,)``."""
    copied_blocks: npt.NDArray[np.uint32] | None = None
    """The blocks that the pairs touch, if they have a filter, shape ``(blocks, 8)``; None if they must be fetched."""

    @classmethod
    def for_lookup(cls, lookup: BloomLookup, places: BloomPlaces) -> _Probe:
        asked = np.flatnonzero(lookup.needed)
        hashes, owners = lookup.hashes.hashes, lookup.hashes.owners
        first = np.searchsorted(owners, lookup.first_value[asked])
        counts = np.searchsorted(owners, lookup.stop_value[asked]) - first
        in_run = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(
            column=lookup.column,
            places=places,
            asked=asked,
            pair_row_groups=np.repeat(asked, counts),
            pair_hashes=hashes[np.repeat(first, counts) + in_run],
        )

    def asks_any_of(self, row_groups: slice) -> bool:
        """Tell whether a filter of some row groups is probed."""
        first, stop = self.asked.searchsorted((row_groups.start, row_groups.stop))
        return bool(first < stop)

    def of(self, row_groups: slice, places: BloomPlaces) -> _Probe:
        """Return the pairs of some row groups, which are numbered from the first of them, with their places."""
        bounds = (row_groups.start, row_groups.stop)
        first, stop = self.asked.searchsorted(bounds)
        first_pair, stop_pair = self.pair_row_groups.searchsorted(bounds)
        return replace(
            self,
            places=places,
            asked=self.asked[first:stop] - row_groups.start,
            pair_row_groups=self.pair_row_groups[first_pair:stop_pair] - row_groups.start,
            pair_hashes=self.pair_hashes[first_pair:stop_pair],
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether the filters are in the Parquet file, and no copy of what is needed was received."""
        places = self.places
        return not places.in_sidecar and self.copied_blocks is None and bool(places.present[self.asked].any())

    def ranges(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield starts and stops of the needed bytes: headers, small bitsets, and single blocks of large ones."""
        places = self.places
        if places.in_sidecar or self.copied_blocks is not None:
            return
        _, headers, header_stops = places.header_ranges(self.asked)
        yield headers, header_stops
        small = self._small()
        yield places.starts[small], places.starts[small] + places.lengths[small]
        blocks = self._block_starts(self._pairs_of_large())
        yield blocks, blocks + BLOCK_BYTES

    def wanted_bytes(self) -> IntArray:
        """Return the length of these ranges for each row group, shape ``(row_groups,)``."""
        places = self.places
        wanted = np.zeros(len(places.present), np.int64)
        if places.in_sidecar:
            return wanted
        with_header, headers, header_stops = places.header_ranges(self.asked)
        wanted[with_header] += header_stops - headers
        small = self._small()
        wanted[small] += places.lengths[small]
        pairs: IntArray = self.pair_row_groups[self._pairs_of_large()]
        np.add.at(wanted, pairs, BLOCK_BYTES)
        return wanted

    def _small(self) -> IntArray:
        places = self.places
        is_small = places.present & (places.starts != UNKNOWN) & (places.lengths <= SMALL_BITSET_BYTES)
        small: IntArray = self.asked[is_small[self.asked]]
        return small

    def _pairs_of_large(self) -> BoolArray:
        pairs = self._closed_pairs()
        pairs &= self.places.lengths[self.pair_row_groups] > SMALL_BITSET_BYTES
        return pairs

    def answer(self, in_sidecar: npt.NDArray[np.uint8], fetched: FetchedRanges) -> BoolArray:
        """Tell for each row group whether it may hold one of the values."""
        places = self.places
        may_hold = np.ones_like(places.present)
        may_hold[self.asked[places.present[self.asked]]] = False
        pairs = self._closed_pairs()
        words = self.copied_blocks
        if words is None:
            blocks = self._block_starts(pairs)
            if not places.in_sidecar:
                blocks = fetched.places(blocks, blocks + BLOCK_BYTES)
            words = blocks_at(in_sidecar if places.in_sidecar else fetched.data, blocks)
        hits = may_be_in_blocks(self.pair_hashes[pairs], words)
        may_hold[self.pair_row_groups[pairs][hits]] = True
        return may_hold

    @property
    def is_closed(self) -> bool:
        """Whether place and length of every existing filter are known."""
        places = self.places
        return not bool((places.present & (places.starts == UNKNOWN))[self.asked].any())

    def wanted_blocks(self, sidecar: Sidecar) -> WantedBlocks:
        """Return the blocks of the existing filters."""
        pairs = self._closed_pairs()
        row_groups = self.pair_row_groups[pairs]
        lengths = self.places.lengths[row_groups]
        return WantedBlocks(
            column=sidecar.column(self.column).name,
            row_groups=row_groups,
            numbers=block_numbers(self.pair_hashes[pairs], lengths),
            block_counts=lengths // BLOCK_BYTES,
        )

    def _closed_pairs(self) -> BoolArray:
        """Tell which pairs have a filter whose place and length are known."""
        is_closed: BoolArray = self.places.present & (self.places.starts != UNKNOWN)
        return is_closed[self.pair_row_groups]

    def _block_starts(self, pairs: BoolArray) -> IntArray:
        row_groups = self.pair_row_groups[pairs]
        blocks = block_numbers(self.pair_hashes[pairs], self.places.lengths[row_groups])
        return self.places.starts[row_groups] + blocks * BLOCK_BYTES
