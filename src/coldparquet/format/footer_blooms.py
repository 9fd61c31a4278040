"""Bloom filters of a Parquet file, as its footer states them, in the sidecar of the file.

A footer says where the header of each filter begins and, if its writer was in the mood, how long header and bitset are
together. A sidecar in memory can repeat that: whoever asks the filters reads the headers then. One that is written once
and read often had better say where the bitsets are, or hold them, so their headers are read first.

    transfer = BloomTransfer(footer, inline_bytes=65_536)
    while (wanted := transfer.wanted()) is not None:      # at most twice
        transfer.receive(<the bytes of the wanted ranges, and where they begin>)
    sidecar = encode_sidecar(transfer.content())
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.bloom_filter import BLOCK_BYTES
from coldparquet.format.bloom_places import UNKNOWN, locate_blooms
from coldparquet.format.fetched_ranges import FetchedRanges
from coldparquet.format.footer_to_sidecar import sidecar_content_from_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.fetched_ranges import WantedRanges
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.parquet_thrift import ColumnMetaData
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_content import ChunkSpec, RowGroupSpec, SidecarContent

_MOST_ROUNDS = 2


def sidecar_in_memory(footer: ParquetFooter) -> Sidecar:
    """Make what readers plan with where there is no sidecar: it says where bloom filters lie in the Parquet file."""
    content = refer_to_blooms(sidecar_content_from_footer(footer), footer)
    return parse_sidecar(encode_sidecar(content), path=footer.path, verify_checksum=False)


def refer_to_blooms(content: SidecarContent, footer: ParquetFooter) -> SidecarContent:
    """Add references to the bloom filters as the footer states them; only for sidecars that stay in memory.

    Args:
        content: What ``sidecar_content_from_footer`` makes of the footer.
        footer: The footer.
    """
    if not footer.has_bloom_filters:
        return content
    row_groups = [
        replace(
            spec,
            chunks=[
                replace(chunk, bloom_reference=_reference(metadata))
                for chunk, metadata in zip(spec.chunks, row_group.chunks, strict=True)
            ],
        )
        for spec, row_group in zip(content.row_groups, footer.row_groups, strict=True)
    ]
    return replace(content, row_groups=row_groups, blooms_external=True)


def _reference(chunk: ColumnMetaData) -> ByteRange | None:
    start, length_bytes = chunk.bloom_filter_offset or 0, chunk.bloom_filter_length or 0
    # A header of a whole block's length is none that we know; in a reference that length would stand for a bare bitset.
    is_usable = start > 0 and (length_bytes == 0 or (length_bytes > 0 and length_bytes % BLOCK_BYTES != 0))
    return ByteRange(start, start + length_bytes) if is_usable else None


class BloomTransfer:
    """What to fetch of a Parquet file so that a new sidecar of it can be written that knows its bloom filters.

    Args:
        footer: The footer of the file.
        inline_bytes: The filters go into the sidecar if it then has at most this length; otherwise it refers to them.

    Raises:
        FormatError: The footer cannot be described, see ``sidecar_content_from_footer``.
        UnsupportedError: The same.
    """

    def __init__(self, footer: ParquetFooter, *, inline_bytes: int) -> None:
        self._content = sidecar_content_from_footer(footer)
        self._places: dict[int, BloomPlaces] = {}
        self._fetched = FetchedRanges()
        self.parquet_size_bytes = 0
        """Size that the Parquet file must have at least."""
        if not footer.has_bloom_filters:
            return
        self._room_bytes = inline_bytes - len(encode_sidecar(self._content))
        derived = parse_sidecar(encode_sidecar(refer_to_blooms(self._content, footer)), verify_checksum=False)
        self.parquet_size_bytes = derived.parquet_size_bytes
        self._places = {column: locate_blooms(derived, column) for column in derived.bloom_columns}
        self._every = np.arange(derived.row_group_count)
        self._names = [leaf.name for leaf in footer.leaves]

    def wanted(self) -> WantedRanges | None:
        """Return what to fetch next from the Parquet file; None when nothing is missing."""
        if not self._places:
            return None
        ranges = [places.header_ranges(self._every)[1:] for places in self._places.values()]
        if self._is_inlined():
            for places in self._places.values():
                is_known = places.present & (places.starts != UNKNOWN)
                ranges.append((places.starts[is_known], (places.starts + places.lengths)[is_known]))
        missing = self._fetched.missing(ranges)
        if missing is not None and self._fetched.round_count == _MOST_ROUNDS:
            raise InternalError("bytes of bloom filters are missing although all of them were asked for")
        return missing

    def receive(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Take the bytes of all wanted ranges.

        Args:
            pieces: Where each piece begins in the file, and its bytes. Pieces are disjoint; they may hold more than what
                was wanted, and a range may reach over pieces that touch.
        """
        self._fetched.add_round(pieces)
        for places in self._places.values():
            places.read_headers(self._every, self._fetched)

    def content(self) -> SidecarContent:
        """Return what the sidecar shall say, once nothing is wanted any more.

        Raises:
            InternalError: Something is still wanted.
        """
        if self.wanted() is not None:
            raise InternalError("a sidecar was asked for before its bloom filters were fetched")
        if not self._places:
            return self._content
        is_inlined = self._is_inlined()
        row_groups = [
            self._with_blooms(spec, row_group, is_inlined=is_inlined)
            for row_group, spec in enumerate(self._content.row_groups)
        ]
        return replace(self._content, row_groups=row_groups, blooms_external=not is_inlined)

    @property
    def notes(self) -> tuple[str, ...]:
        """Filters that were left out because they cannot be right, one sentence per column and reason."""
        return tuple(
            f"bloom filters of column {self._names[column]!r} {reason} and were left out, in {len(row_groups):,} of"
            f" {len(self._every):,} row groups"
            for column, places in self._places.items()
            for reason, row_groups in places.damage.items()
        )

    def _is_inlined(self) -> bool:
        """Tell whether all filters fit the sidecar, as far as their lengths are known."""
        lengths = [places.lengths[places.present] for places in self._places.values()]
        filter_count = sum(map(len, lengths))
        bloom_bytes = sum(int(of_column.sum()) for of_column in lengths)
        # Each filter is preceded by its length and aligned; matrix and column list have 4 bytes per entry.
        per_filter = layout.BLOOM_LENGTH.size + layout.BLOCK_ALIGNMENT - 1
        per_column = layout.COUNT.size + layout.BLOOM_OFFSET_DTYPE.itemsize * len(self._every)
        bloom_bytes += filter_count * per_filter + len(self._places) * per_column + layout.COUNT.size
        return bloom_bytes <= self._room_bytes

    def _with_blooms(self, spec: RowGroupSpec, row_group: int, *, is_inlined: bool) -> RowGroupSpec:
        return replace(
            spec,
            chunks=[
                self._with_bloom(chunk, row_group, column, is_inlined=is_inlined)
                for column, chunk in enumerate(spec.chunks)
            ],
        )

    def _with_bloom(self, chunk: ChunkSpec, row_group: int, column: int, *, is_inlined: bool) -> ChunkSpec:
        places = self._places.get(column)
        if places is None or not places.present[row_group] or places.starts[row_group] == UNKNOWN:
            return chunk
        start = int(places.starts[row_group])
        bitset = ByteRange(start, start + int(places.lengths[row_group]))
        if is_inlined:
            return replace(chunk, bloom_bitset=self._fetched.bytes_at(bitset.start, bitset.stop))
        return replace(chunk, bloom_reference=bitset)
