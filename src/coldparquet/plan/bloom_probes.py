"""Which bytes of bloom filters a predicate needs, and what they answer: a state machine that does no I/O itself.

One lookup touches 32 bytes of a filter, however large that is, so that is what is fetched.

    lookups = find_lookups(predicate, statistics, table=sidecar, columns=places, row_groups=undecided)
    probes = BloomProbes(sidecar, lookups)
    while (wanted := probes.wanted()) is not None:      # at most twice; not at all if the filters lie in the sidecar
        probes.receive(<the bytes of the wanted ranges, and where they begin>)
    statistics = SidecarStatistics(sidecar, places, blooms=probes.answers())

Filters that cannot be right are not asked, and a note says so: they never lose a row and never stop a read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format.bloom_filter import (
    BLOCK_BYTES,
    block_numbers,
    blocks_at,
    may_be_in_blocks,
)
from coldparquet.format.bloom_places import UNKNOWN
from coldparquet.format.fetched_ranges import FetchedRanges
from coldparquet.plan.wording import row_group_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.fetched_ranges import WantedRanges
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bind import BoundField
    from coldparquet.plan.bloom_lookups import BloomLookup, BloomLookups, LookupKey
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.literals import DomainValue

SMALL_BITSET_BYTES = 1024
"""Bitsets up to this length are fetched as a whole: several lookups in one of them then are one range."""

_MOST_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WantedBlocks:
    """The blocks of the filters of one column that one lookup touches; arrays of shape ``(blocks,)``."""

    column: str
    row_groups: IntArray
    numbers: IntArray
    """Which block of its filter each is."""
    block_counts: IntArray
    """Blocks of each filter."""


@dataclass(frozen=True, slots=True, eq=False)
class BloomAnswers:
    """What bloom filters know about the values of a predicate."""

    found: Mapping[LookupKey, BoolArray]
    notes: tuple[str, ...]
    """Filters that were not asked because they cannot be right, one sentence per column and reason."""

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """Tell for each row group whether it may hold one of the values; None if no filter was asked for them."""
        return self.found.get((field.index, values))


class BloomProbes:
    """What to ask the bloom filters of one partition.

    Args:
        sidecar: The snapshot, in which the filters may lie.
        found: The values to look up in them, and where. Places are completed as headers come.
    """

    def __init__(self, sidecar: Sidecar, found: BloomLookups) -> None:
        self._sidecar = sidecar
        self._places = found.places
        self._probes = {key: _Probe.of(lookup, found.places[lookup.column]) for key, lookup in found.lookups.items()}
        self._fetched = FetchedRanges()
        self._missing = self._find_missing()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to ask, here or in the Parquet file."""
        return not self._probes

    @property
    def parquet_size_bytes(self) -> int:
        """Size that the Parquet file must have at least."""
        return self._sidecar.parquet_size_bytes

    @property
    def row_groups(self) -> BoolArray:
        """Row groups of which some filter is asked, shape ``(row_groups,)``."""
        asked = np.zeros(self._sidecar.row_group_count, np.bool_)
        for probe in self._probes.values():
            asked[probe.asked] = True
        return asked

    def wanted(self) -> WantedRanges | None:
        """Return what to fetch next from the Parquet file; None when all answers are there."""
        return self._missing

    def receive(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Take the bytes of all wanted ranges.

        Args:
            pieces: Where each piece begins in the file, and its bytes. Pieces are disjoint; they may hold more than what
                was wanted, and a range may reach over pieces that touch.
        """
        self._fetched.add_round(pieces)
        for probe in self._probes.values():
            probe.places.read_headers(probe.asked, self._fetched)
        self._missing = self._find_missing()

    def wanted_blocks(self) -> tuple[WantedBlocks, ...] | None:
        """Say which blocks answer everything; None where nothing has to be fetched, or headers have to be read first."""
        probes = list(self._probes.values())
        if self.wanted() is None or not all(probe.is_closed for probe in probes):
            return None
        return tuple(probe.wanted_blocks(self._sidecar) for probe in probes)

    def receive_blocks(self, blocks: Sequence[npt.NDArray[np.uint32]]) -> None:
        """Take the blocks that :meth:`wanted_blocks` named, from wherever a copy of the filters is: nothing is wanted then.

        Args:
            blocks: For each lookup its blocks, shape ``(blocks, 8)``.
        """
        self._probes = {
            key: replace(probe, copied_blocks=copied)
            for (key, probe), copied in zip(self._probes.items(), blocks, strict=True)
        }
        self._missing = None

    def answers(self) -> BloomAnswers:
        """Return what the filters say, once nothing is wanted any more.

        Raises:
            InternalError: Something is still wanted.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Probe:
    """The pairs of filter and hash that answer one lookup."""

    column: int
    """Index of the column in the sidecar."""
    places: BloomPlaces
    asked: IntArray
    """Row groups of which the filter is asked, ascending, shape ``(filters,)``."""
    pair_row_groups: IntArray
    """Row group of each pair, shape ``(pairs,)``."""
    pair_hashes: npt.NDArray[np.uint64]
    """Hash that is looked up, shape ``(pairs,)``."""
    copied_blocks: npt.NDArray[np.uint32] | None = None
    """The blocks that the pairs touch, as far as they have a filter, shape ``(blocks, 8)``; None where they are fetched."""

    @classmethod
    def of(cls, lookup: BloomLookup, places: BloomPlaces) -> _Probe:
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

    def ranges(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield starts and stops of what has to be there: headers, small bitsets, and single blocks of large ones."""
        places = self.places
        if places.in_sidecar or self.copied_blocks is not None:
            return
        _, headers, header_stops = places.header_ranges(self.asked)
        yield headers, header_stops
        is_small = places.present & (places.starts != UNKNOWN) & (places.lengths <= SMALL_BITSET_BYTES)
        small = self.asked[is_small[self.asked]]
        yield places.starts[small], places.starts[small] + places.lengths[small]
        pairs = self._closed_pairs()
        pairs &= places.lengths[self.pair_row_groups] > SMALL_BITSET_BYTES
        blocks = self._block_starts(pairs)
        yield blocks, blocks + BLOCK_BYTES

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
        """Whether place and length of every filter that is there are known."""
        places = self.places
        return not bool((places.present & (places.starts == UNKNOWN))[self.asked].any())

    def wanted_blocks(self, sidecar: Sidecar) -> WantedBlocks:
        """Return the blocks of the filters that are there."""
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
        """Tell which pairs have a filter of which the place and the length are known."""
        is_closed: BoolArray = self.places.present & (self.places.starts != UNKNOWN)
        return is_closed[self.pair_row_groups]

    def _block_starts(self, pairs: BoolArray) -> IntArray:
        row_groups = self.pair_row_groups[pairs]
        blocks = block_numbers(self.pair_hashes[pairs], self.places.lengths[row_groups])
        return self.places.starts[row_groups] + blocks * BLOCK_BYTES
