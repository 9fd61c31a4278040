"""Stores the bloom filters of a table in its catalogue, cut into stripes: a lookup of one value reads one range.

A value touches 32 bytes of a filter. Its hash alone chooses the block, so it is the same block in all filters of one
length. So the filters of a column with one length are written block by block: first the first block of every filter, in
the order of partitions and row groups, then the second one of each. Such a run of blocks is a stripe. A thousand
filters of 8 KiB are 8 MiB; the stripe that tells which of them may hold a value has 32 KB.

All numbers are little-endian. The index of the stripes, compressed with zlib:

    u32            number of groups: filters of one column, all of one length
    u32[groups]    blocks of each filter
    u32[groups]    number of filters
    u32[groups]    bytes of the column's name
    u32[filters]   entry of the catalogue that each filter belongs to, group after group; ascending in a group
    u32[filters]   row group of each; ascending among those of an entry
    u32[stripes]   CRC-32 of each stripe, group after group
    bytes          the names, one after the other: UTF-8

The stripes follow in the same order, at the end of the catalogue.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError
from coldparquet.format.blooms import BLOCK_BYTES
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

_COUNT = struct.Struct("<I")
_NUMBERS_PER_GROUP, _NUMBERS_PER_FILTER = 3, 2
_ROW_GROUP_BITS = 32


class PackedBloom(Struct, frozen=True, kw_only=True):
    """One bloom filter for a catalogue."""

    column: str
    row_group: int
    bitset: bytes
    """Whole blocks of 32 bytes, without a header."""


class BloomStripes(Struct, frozen=True, kw_only=True, eq=False):
    """The filters of one column that have one length. Arrays of shape ``(filters,)``, one about stripes ``(blocks,)``."""

    column: str
    block_count: int
    """Blocks of each filter, and stripes of the group."""
    keys: npt.NDArray[np.int64]
    """Entry and row group of each filter in one number, ascending."""
    checksums: npt.NDArray[np.int64]
    start: int
    """Start of the first stripe, relative to the first one of all groups."""

    @property
    def stripe_bytes(self) -> int:
        """Length of each stripe."""
        return len(self.keys) * BLOCK_BYTES

    def stripe_range(self, block: int) -> ByteRange:
        """Return the range of the stripe of a block, relative to the first stripe of all groups."""
        start = self.start + block * self.stripe_bytes
        return ByteRange(start, start + self.stripe_bytes)

    def positions(self, entry: int, row_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return the positions of filters in every stripe; None if one of them is missing."""
        wanted = (entry << _ROW_GROUP_BITS) + row_groups
        places = np.searchsorted(self.keys, wanted)
        is_there = places < len(self.keys)
        is_there[is_there] = self.keys[places[is_there]] == wanted[is_there]
        return places if is_there.all() else None

    def check_stripe(self, block: int, stripe: bytes | memoryview) -> None:
        """Verify the checksum of a stripe."""
        computed, stored = zlib.crc32(stripe), int(self.checksums[block])
        if computed != stored or len(stripe) != self.stripe_bytes:
            raise FormatError(
                f"the CRC-32 of stripe {block} of the filters of {self.column!r} is {computed:#010x}, stored is"
                f" {stored:#010x}: it is damaged; 'coldparquet pack' writes it anew",
                kind="ChecksumMismatch",
                field="stripe",
            )


class CatalogueBlooms(Struct, frozen=True, kw_only=True, eq=False):
    """The index of the stripes of a catalogue."""

    groups: Mapping[tuple[str, int], BloomStripes]
    """By column and number of blocks."""
    stripes_start: int
    """Start of the first stripe in the file."""

    def bitsets_of_entries(self, stripes: memoryview) -> dict[int, list[PackedBloom]]:
        """Reassemble all filters from the stripes."""
        found: dict[int, list[PackedBloom]] = {}
        for (column, block_count), group in self.groups.items():
            for block in range(block_count):
                place = group.stripe_range(block)
                group.check_stripe(block, stripes[place.start : place.stop])
            stop = group.start + block_count * group.stripe_bytes
            blocks = np.frombuffer(stripes[group.start : stop], np.uint8).reshape(block_count, len(group.keys), -1)
            for position, key in enumerate(group.keys.tolist()):
                entry, row_group = key >> _ROW_GROUP_BITS, key & ((1 << _ROW_GROUP_BITS) - 1)
                bitset = blocks[:, position].tobytes()
                found.setdefault(entry, []).append(PackedBloom(column=column, row_group=row_group, bitset=bitset))
        return found


def encode_blooms(blooms_of_entries: Iterable[Sequence[PackedBloom]]) -> tuple[bytes, bytes]:
    """Write the filters of a catalogue."""
    groups: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
    for entry, blooms in enumerate(blooms_of_entries):
        for bloom in sorted(blooms, key=lambda bloom: bloom.row_group):
            key = bloom.column, len(bloom.bitset) // BLOCK_BYTES
            groups.setdefault(key, []).append((entry, bloom.row_group, bloom.bitset))
    if not groups:
        return b"", b""
    names = [column.encode() for column, _ in groups]
    stripes, checksums = [], list[int]()
    for (_, block_count), filters in groups.items():
        joined = np.frombuffer(b"".join(bitset for _, _, bitset in filters), np.uint8)
        by_block = joined.reshape(len(filters), block_count, BLOCK_BYTES).transpose(1, 0, 2)
        of_group, stripe_bytes = by_block.tobytes(), len(filters) * BLOCK_BYTES
        cuts = range(0, len(of_group), stripe_bytes)
        checksums += [zlib.crc32(memoryview(of_group)[cut : cut + stripe_bytes]) for cut in cuts]
        stripes.append(of_group)
    numbers = [
        [block_count for _, block_count in groups],
        [len(filters) for filters in groups.values()],
        [len(name) for name in names],
        [entry for filters in groups.values() for entry, _, _ in filters],
        [row_group for filters in groups.values() for _, row_group, _ in filters],
        checksums,
    ]
    parts = (np.array(column, "<u4").tobytes() for column in numbers)
    return b"".join([_COUNT.pack(len(groups)), *parts, *names]), b"".join(stripes)


def parse_blooms(body: bytes, *, stripes_start: int, stripes_bytes: int, entry_count: int) -> CatalogueBlooms:
    """Parse the index of the stripes."""
    group_count = _COUNT.unpack_from(body)[0] if len(body) >= _COUNT.size else 0
    fixed = _numbers(body, _COUNT.size, _NUMBERS_PER_GROUP * group_count)
    if not group_count or fixed is None:
        raise _invalid(f"{group_count:,} groups in {len(body):,} bytes")
    block_counts, filter_counts, name_lengths = fixed.reshape(_NUMBERS_PER_GROUP, -1)
    filter_count, stripe_count = int(filter_counts.sum()), int(block_counts.sum())
    place = _COUNT.size + 4 * len(fixed)
    of_filters = _numbers(body, place, _NUMBERS_PER_FILTER * filter_count)
    place += 4 * _NUMBERS_PER_FILTER * filter_count
    checksums = _numbers(body, place, stripe_count)
    names = body[place + 4 * stripe_count :]
    if of_filters is None or checksums is None or int(name_lengths.sum()) != len(names):
        raise _invalid(f"{filter_count:,} filters and {stripe_count:,} stripes do not fit {len(body):,} bytes")
    entries, row_groups = of_filters.reshape(_NUMBERS_PER_FILTER, -1)
    keys = (entries << _ROW_GROUP_BITS) + row_groups
    groups: dict[tuple[str, int], BloomStripes] = {}
    first_filter = first_stripe = first_name = start = 0
    counts = zip(block_counts.tolist(), filter_counts.tolist(), name_lengths.tolist(), strict=True)
    for block_count, filters, name_length in counts:
        try:
            column = names[first_name : first_name + name_length].decode()
        except UnicodeDecodeError as error:
            raise _invalid("the name of a column is not UTF-8") from error
        group = BloomStripes(
            column=column,
            block_count=block_count,
            keys=keys[first_filter : first_filter + filters],
            checksums=checksums[first_stripe : first_stripe + block_count],
            start=start,
        )
        if not block_count or not filters or (np.diff(group.keys) <= 0).any():
            raise _invalid(f"the filters of {column!r} are not in their order")
        groups[column, block_count] = group
        start += block_count * group.stripe_bytes
        first_filter, first_stripe, first_name = (
            first_filter + filters,
            first_stripe + block_count,
            first_name + name_length,
        )
    if start != stripes_bytes or len(groups) != group_count or (entries >= entry_count).any():
        raise _invalid(f"stripes of {start:,} bytes instead of {stripes_bytes:,}, or of other partitions")
    return CatalogueBlooms(groups=groups, stripes_start=stripes_start)


def _numbers(body: bytes, place: int, count: int) -> npt.NDArray[np.int64] | None:
    if place + 4 * count > len(body):
        return None
    return np.frombuffer(body, "<u4", count, place).astype(np.int64)


def _invalid(what: str) -> FormatError:
    return FormatError(
        f"the index of the bloom filters is damaged: {what}; 'coldparquet pack' writes it anew",
        kind="InvalidValue",
        field="blooms",
    )
