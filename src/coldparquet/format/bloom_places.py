"""Where the bloom filters of a column lie: in the sidecar itself, or in the Parquet file.

A sidecar may refer to a filter in the Parquet file in three ways, told apart by the length. A multiple of 32 is that of
the bare bitset. Any other length counts the filter's own header as well, as a Parquet footer does. A length of 0 with an
offset leaves it to the header: QuestDB 9.3.4 writes no lengths into its footers. The last two occur in sidecars that
were derived from a footer in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format import sidecar_layout as layout
from coldparquet.format.bloom_filter import BLOCK_BYTES, parse_bloom_header
from coldparquet.format.fetched_ranges import NOT_FETCHED

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.format.fetched_ranges import FetchedRanges
    from coldparquet.format.row_group_table import RowGroupTable

_LARGEST_I64 = np.uint64((1 << 63) - 1)

_FIRST_CHUNK_OFFSET = 4
"""A Parquet file begins with its magic bytes."""

FIRST_GUESS_BYTES = 512
"""Fetched from the start of a filter whose length is not known: its header, and all of it if it is small."""

UNKNOWN = -1
"""Start of a header that is not there, or of a bitset whose header has not been read."""


@dataclass(slots=True, kw_only=True, eq=False)
class BloomPlaces:
    """Where the filters of one column lie; every array has shape ``(row_groups,)``.

    Not frozen: headers that are read later complete it, and filters that turn out to be damaged drop out of it.
    """

    in_sidecar: bool
    """Whether the places are in the sidecar; otherwise they are in the Parquet file."""
    present: npt.NDArray[np.bool_]
    """False where there is no filter, or none that can be used."""
    header_starts: npt.NDArray[np.int64]
    """First byte of the header; ``UNKNOWN`` in front of a bare bitset."""
    starts: npt.NDArray[np.int64]
    """First byte of the bitset; ``UNKNOWN`` until its header is read."""
    lengths: npt.NDArray[np.int64]
    """Bytes of the bitset, a multiple of 32; 0 until its header is read."""
    ends: npt.NDArray[np.int64]
    """No filter reaches behind this byte: where the Parquet footer begins, or the sidecar ends."""
    damage: dict[str, list[int]] = field(default_factory=dict)
    """Row groups whose filters are not used, by what is wrong with them."""

    def of(self, row_groups: slice) -> BloomPlaces:
        """Return the places of some of the row groups, as they were located, numbered from the first of them."""
        damage = {}
        for reason, dropped in self.damage.items():
            here = dropped[bisect_left(dropped, row_groups.start) : bisect_left(dropped, row_groups.stop)]
            if here:
                damage[reason] = [row_group - row_groups.start for row_group in here]
        return BloomPlaces(
            in_sidecar=self.in_sidecar,
            present=self.present[row_groups].copy(),
            header_starts=self.header_starts[row_groups],
            starts=self.starts[row_groups].copy(),
            lengths=self.lengths[row_groups].copy(),
            ends=self.ends[row_groups],
            damage=damage,
        )

    def drop(self, row_groups: npt.NDArray[np.bool_], reason: str) -> None:
        """Forget the filters of row groups, because of what is wrong with them.

        Args:
            row_groups: Shape ``(row_groups,)``; those without a filter do not matter.
            reason: Continues "they" in a note to a person.
        """
        dropped = self.present & row_groups
        if dropped.any():
            self.damage.setdefault(reason, []).extend(np.flatnonzero(dropped).tolist())
            self.present &= ~dropped

    def header_ranges(
        self, row_groups: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return what has to be fetched to learn where bitsets lie, and that they are what they are taken for.

        Args:
            row_groups: Indexes of row groups.

        Returns:
            Those of them whose filter has a header; where its range starts, and stops.
        """
        with_header = row_groups[self.present[row_groups] & (self.header_starts[row_groups] != UNKNOWN)]
        starts, bitsets = self.header_starts[with_header], self.starts[with_header]
        stops = np.where(bitsets == UNKNOWN, np.minimum(starts + FIRST_GUESS_BYTES, self.ends[with_header]), bitsets)
        return with_header, starts, stops

    def read_headers(self, row_groups: npt.NDArray[np.int64], fetched: FetchedRanges) -> None:
        """Complete the places by the headers that were fetched, and drop filters whose header is not right.

        Args:
            row_groups: Indexes of row groups.
            fetched: Bytes of the Parquet file, with some or all of the ``header_ranges``.
        """
        with_header, starts, stops = self.header_ranges(row_groups)
        data = fetched.places(starts, stops)
        wrong = np.zeros_like(self.present)
        found = zip(with_header.tolist(), data.tolist(), (stops - starts).tolist(), strict=True)
        for row_group, place, length_bytes in found:
            if place == NOT_FETCHED:
                continue
            header = parse_bloom_header(fetched.data[place : place + length_bytes].tobytes())
            if header is None:
                wrong[row_group] = True
            elif self.starts[row_group] == UNKNOWN:
                self.starts[row_group] = self.header_starts[row_group] + header.length_bytes
                self.lengths[row_group] = header.bitset_bytes
            elif (header.length_bytes, header.bitset_bytes) != (length_bytes, self.lengths[row_group]):
                wrong[row_group] = True
        self.drop(wrong, "are of an unknown kind, or have a header that does not fit them,")
        self.drop(self.starts + self.lengths > self.ends, "reach behind the file's data")


def locate_blooms(table: RowGroupTable, column_index: int) -> BloomPlaces:
    """Find the bloom filters of one column in all row groups.

    Args:
        table: The row groups.
        column_index: One of its ``bloom_columns``.

    Returns:
        Places in a sidecar are counted from its first byte, also where there are several.
    """
    entries = table.stored_blooms(column_index)
    return _in_parquet(table, entries) if table.blooms_external else _in_sidecar(table, entries)


def _in_parquet(table: RowGroupTable, entries: npt.NDArray[np.void]) -> BloomPlaces:
    ends = np.minimum(table.data_stops, _LARGEST_I64)
    offsets, stated = entries["offset"], entries["length"]
    is_inside = (offsets >= _FIRST_CHUNK_OFFSET) & (offsets < ends)
    # Offsets inside the file leave a difference that cannot wrap around.
    is_inside &= stated <= np.where(is_inside, ends - offsets, 0)
    starts = np.where(is_inside, offsets, 0).astype(np.int64)
    lengths = np.where(is_inside, stated, 0).astype(np.int64)
    header_lengths = lengths % BLOCK_BYTES
    is_bare = (lengths > 0) & (header_lengths == 0)
    is_open = lengths == 0
    places = BloomPlaces(
        in_sidecar=False,
        present=(offsets > 0) | (stated > 0),
        header_starts=np.where(is_bare, UNKNOWN, starts),
        starts=np.where(is_open, UNKNOWN, starts + header_lengths),
        lengths=lengths - header_lengths,
        ends=ends.astype(np.int64),
    )
    places.drop(~is_inside, "lie outside of the file's data")
    places.drop(~is_open & (places.lengths == 0), "are shorter than a block of 32 bytes")
    return places


def _in_sidecar(table: RowGroupTable, entries: npt.NDArray[np.uint32]) -> BloomPlaces:
    blocks = table.blocks
    ends = blocks.snapshot_stops - blocks.snapshot_starts
    offsets = entries.astype(np.int64) << layout.BLOCK_ALIGNMENT_BITS
    starts = offsets + layout.BLOOM_LENGTH.size
    is_inside = starts <= ends
    length_starts = blocks.snapshot_starts + np.where(is_inside, offsets, 0)
    file = np.frombuffer(blocks.file, np.uint8)
    length_bytes = file[length_starts[:, np.newaxis] + np.arange(layout.BLOOM_LENGTH.size)]
    lengths = np.ascontiguousarray(length_bytes).view("<i4")[:, 0].astype(np.int64)
    places = BloomPlaces(
        in_sidecar=True,
        # A length of 0 or less is how the format says that there is none.
        present=(offsets > 0) & (~is_inside | (lengths > 0)),
        header_starts=np.full(len(offsets), UNKNOWN),
        starts=starts,
        lengths=lengths,
        ends=ends,
    )
    places.drop(~is_inside | (starts + lengths > ends), "reach behind the sidecar")
    places.drop(lengths % BLOCK_BYTES != 0, "are no multiple of 32 bytes long")
    return places
