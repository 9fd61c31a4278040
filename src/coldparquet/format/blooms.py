"""Locates and probes split-block bloom filters: hashes of a value, places of a column's filters, and membership.

**Probing.** A filter is a sequence of 32-byte blocks. A value touches just one of them, chosen by the upper half of its
hash; the lower half chooses one bit in each of the block's eight words. The value is certainly absent if one of these
bits is 0. So a probe needs 32 bytes, however large the filter is. Layout: "Bloom filter" in apache/parquet-format.

**Places.** The filters of a column are in the sidecar itself, or in the Parquet file. A sidecar may refer to a filter
in the Parquet file in three ways, distinguished by the length. A multiple of 32 is the length of the bare bitset. Any
other length includes the filter's own header, as in a Parquet footer. A length of 0 with an offset means that only the
header has the length: QuestDB 9.3.4 writes no lengths into its footers. The last two occur in sidecars that were
derived from a footer in memory.

**Transfer.** A footer says where the header of each filter begins and, with some writers, how long header and bitset
are together. A sidecar in memory can repeat that: the reader of the filters then reads the headers. A sidecar that is
written once and read often should locate the bitsets, or contain them, so their headers are read first.

    transfer = BloomTransfer(footer, inline_bytes=65_536)
    while (wanted := transfer.wanted()) is not None:      # at most twice
        transfer.receive(<the bytes of the wanted ranges, and where they begin>)
    sidecar = encode_sidecar(transfer.content())
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct, field

from coldparquet.errors import FormatError, InternalError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.fetch import NOT_FETCHED, FetchedRanges
from coldparquet.format.parquet_thrift import BloomFilterHeader
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.thrift import structure_stops
from coldparquet.format.types import ValueOrder
from coldparquet.ranges import ByteRange
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.format.fetch import WantedRanges
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.parquet_thrift import ColumnMetaData
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.format.sidecar_writer import ChunkSpec, RowGroupSpec, SidecarContent
    from coldparquet.format.types import ColumnType


BLOCK_BYTES = 32
"""Length of a block; one probe reads a single block."""

MAX_HEADER_BYTES = 31
"""The header before a bitset takes 15 to 19 bytes. Headers as long as a block are not accepted: a stated length would
then not tell whether it includes the header."""

_WORD_BYTES = 4
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
"""Each word's own multiplier, from the specification."""
_BIT_SHIFT = np.uint32(27)
"""The upper 5 bits of the product number a bit of the word."""
_HALF = np.uint64(32)
_LOWER_HALF = np.uint64(0xFFFF_FFFF)

_INTEGER_BYTES = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}

StoredValue: TypeAlias = bool | int | float | bytes | None
"""A value as the column stores it; None for one that the column cannot store, so that it is certainly absent."""


class BloomHashes(Struct, frozen=True, eq=False):
    """The hashes of several values. A value without hashes cannot be stored in the column."""

    hashes: npt.NDArray[np.uint64]
    """Shape ``(hashes,)``."""
    owners: npt.NDArray[np.int64]
    """Index of the value of each hash, ascending; the two zeros of floats are two hashes of one value."""


class BloomHeader(Struct, frozen=True):
    """The header before a bitset in a Parquet file."""

    length_bytes: int
    """Length of the header itself; the bitset follows."""
    bitset_bytes: int


def bloom_hashes(values: Sequence[StoredValue], column_type: ColumnType) -> BloomHashes | None:
    """Hash values as the writers of bloom filters do: the bytes of their PLAIN encoding, without length prefixes.

    Writers leave NULL out. They also leave out what they store in its place (0 in BYTE, SHORT and CHAR); the caller
    must account for that.
    """
    if column_type.comparison in {ValueOrder.NONE, ValueOrder.BOOLEAN}:
        return None
    if column_type.comparison is ValueOrder.DECIMAL and column_type.physical_type is PhysicalType.BYTE_ARRAY:
        return None
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None
    forms = [_plain_forms(value, column_type) for value in values]
    hashes = [xxhash.xxh64_intdigest(form) for of_value in forms for form in of_value]
    owners = np.repeat(np.arange(len(forms)), np.array(list(map(len, forms)), np.int64))
    return BloomHashes(np.array(hashes, np.uint64), owners)


def _plain_forms(value: StoredValue, column_type: ColumnType) -> tuple[bytes, ...]:
    """Return every byte string that may represent a value; none if the column cannot store it."""
    physical_type = column_type.physical_type
    match value:
        case bytes():
            is_fixed = physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY
            return () if is_fixed and len(value) != column_type.fixed_byte_length else (value,)
        case float():
            return _float_forms(value, "<f" if physical_type is PhysicalType.FLOAT else "<d")
        case int() if physical_type in _INTEGER_BYTES:
            # Unsigned numbers are stored in the bits of signed ones.
            is_signed = column_type.comparison is not ValueOrder.UNSIGNED
            return _integer_forms(value, _INTEGER_BYTES[physical_type], "little", is_signed=is_signed)
        case int():
            return _integer_forms(value, column_type.fixed_byte_length, "big", is_signed=True)
    return ()


def _integer_forms(
    value: int, width: int, byte_order: Literal["little", "big"], *, is_signed: bool
) -> tuple[bytes, ...]:
    try:
        return (value.to_bytes(width, byte_order, signed=is_signed),)
    except OverflowError:
        return ()


def _float_forms(value: float, format_: str) -> tuple[bytes, ...]:
    if value == 0:
        # Both zeros are equal, but filters hold the hash of the one that was stored.
        return struct.pack(format_, 0.0), struct.pack(format_, -0.0)
    try:
        packed = struct.pack(format_, value)
    except OverflowError:
        return ()
    return (packed,) if struct.unpack(format_, packed)[0] == value else ()


def block_numbers(hashes: npt.NDArray[np.uint64], bitset_bytes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the block of its filter that each hash touches; the arrays broadcast."""
    block_counts = (bitset_bytes // BLOCK_BYTES).astype(np.uint64)
    return ((hashes >> _HALF) * block_counts >> _HALF).astype(np.int64)


def blocks_at(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Take blocks out of bytes that hold them."""
    if not len(starts):
        return np.empty((0, BLOCK_BYTES // _WORD_BYTES), np.uint32)
    taken = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, BLOCK_BYTES)[starts])
    return cast("npt.NDArray[np.uint32]", taken.view("<u4"))


def may_be_in_blocks(hashes: npt.NDArray[np.uint64], blocks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Tell for each hash whether the block that it touches has all of its bits; False is certain."""
    lower = (hashes & _LOWER_HALF).astype(np.uint32)
    bits = np.uint32(1) << (lower[:, np.newaxis] * _SALTS >> _BIT_SHIFT)
    return cast("npt.NDArray[np.bool_]", (blocks & bits == bits).all(axis=1))


def is_bitset_length(length_bytes: int) -> bool:
    """Tell whether a bitset can have this length."""
    return length_bytes >= BLOCK_BYTES and length_bytes % BLOCK_BYTES == 0


def parse_bloom_header(data: bytes) -> BloomHeader | None:
    """Parse the header in front of a bitset."""
    head = data[:MAX_HEADER_BYTES]
    try:
        (length_bytes,) = structure_stops(head, 0, 1)
        header = BloomFilterHeader.decode(head, path=None, offset=0)
    except FormatError:
        return None
    is_known = (
        header.algorithm is not None
        and header.algorithm.BLOCK is not None
        and header.hash is not None
        and header.hash.XXHASH is not None
        and header.compression is not None
        and header.compression.UNCOMPRESSED is not None
    )
    if not is_known or not is_bitset_length(header.numBytes):
        return None
    return BloomHeader(length_bytes=length_bytes, bitset_bytes=header.numBytes)


_LARGEST_I64 = np.uint64((1 << 63) - 1)

_FIRST_CHUNK_OFFSET = 4
"""A Parquet file begins with its magic bytes."""

FIRST_GUESS_BYTES = 512
"""Fetched from the start of a filter of unknown length: its header, and all of it if it is small."""

UNKNOWN = -1
"""Start of a missing header, or of a bitset whose header is not read."""


class BloomPlaces(Struct, kw_only=True, eq=False):
    """The places of the filters of one column; every array has shape ``(row_groups,)``.

    Not frozen: headers that are read later complete it, and damaged filters are removed from it.
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
    """Upper limit of all filters: the start of the Parquet footer, or the end of the sidecar."""
    damage: dict[str, list[int]] = field(default_factory=dict)
    """For row groups whose filters are not used, the reason."""

    def of(self, row_groups: slice) -> BloomPlaces:
        """Return the places of some of the row groups, numbered from the first of them."""
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
        """Remove the filters of row groups, with the reason."""
        dropped = self.present & row_groups
        if dropped.any():
            self.damage.setdefault(reason, []).extend(np.flatnonzero(dropped).tolist())
            self.present &= ~dropped

    def header_ranges(
        self, row_groups: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ranges that locate the bitsets, and confirm them."""
        with_header = row_groups[self.present[row_groups] & (self.header_starts[row_groups] != UNKNOWN)]
        starts, bitsets = self.header_starts[with_header], self.starts[with_header]
        stops = np.where(bitsets == UNKNOWN, np.minimum(starts + FIRST_GUESS_BYTES, self.ends[with_header]), bitsets)
        return with_header, starts, stops

    def read_headers(self, row_groups: npt.NDArray[np.int64], fetched: FetchedRanges) -> None:
        """Complete the places from fetched headers, and remove filters with a wrong header."""
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
    """Find the bloom filters of one column in all row groups."""
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
        # The format marks an absent filter by a length of 0 or less.
        present=(offsets > 0) & (~is_inside | (lengths > 0)),
        header_starts=np.full(len(offsets), UNKNOWN),
        starts=starts,
        lengths=lengths,
        ends=ends,
    )
    places.drop(~is_inside | (starts + lengths > ends), "reach behind the sidecar")
    places.drop(lengths % BLOCK_BYTES != 0, "are no multiple of 32 bytes long")
    return places


_MOST_ROUNDS = 2


def sidecar_in_memory(
    footer: ParquetFooter, adapt: Callable[[SidecarContent], SidecarContent] | None = None
) -> Sidecar:
    """Make a sidecar from a footer where there is none: it locates bloom filters in the Parquet file.

    ``adapt`` adds what the footer does not say.
    """
    content = refer_to_blooms(sidecar_content_from_footer(footer), footer)
    content = content if adapt is None else adapt(content)
    return parse_sidecar(encode_sidecar(content), path=footer.path, verify_checksum=False)


def refer_to_blooms(content: SidecarContent, footer: ParquetFooter) -> SidecarContent:
    """Add references to the bloom filters as the footer states them; only for sidecars that stay in memory."""
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
    # No known header is as long as a whole block; in a reference that length would mean a bare bitset.
    is_usable = start > 0 and (length_bytes == 0 or (length_bytes > 0 and length_bytes % BLOCK_BYTES != 0))
    return ByteRange(start, start + length_bytes) if is_usable else None


class BloomTransfer:
    """Determines the bytes of a Parquet file that a new sidecar with its bloom filters needs.

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
        """Return the ranges to fetch next from the Parquet file; None when nothing is missing."""
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
        """Take the bytes of all wanted ranges."""
        self._fetched.add_round(pieces)
        for places in self._places.values():
            places.read_headers(self._every, self._fetched)

    def content(self) -> SidecarContent:
        """Return the content of the sidecar, once nothing is missing."""
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
        """Filters that were left out because they are wrong, one sentence per column and reason."""
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
