"""Split-block bloom filters: which hashes a value has, and whether a filter may hold it.

A filter is a sequence of 32-byte blocks. A value touches just one of them, chosen by the upper half of its hash; the
lower half chooses one bit in each of the block's eight words. The value is certainly absent if one of these bits is 0.
So a probe needs 32 bytes, however large the filter is. Layout: "Bloom filter" in apache/parquet-format.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import xxhash

from coldparquet.errors import FormatError
from coldparquet.format.column_types import Comparison
from coldparquet.format.parquet_thrift import BloomFilterHeader
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.thrift_structure import structure_stops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.column_types import ColumnType

BLOCK_BYTES = 32
"""Filters are made of blocks of this length, and so is what one probe looks at."""

MAX_HEADER_BYTES = 31
"""The header in front of a bitset takes 15 to 19 bytes. None as long as a block is believed, because then a stated length
would not tell whether it includes the header."""

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
"""A value as the column holds it; None for one that the column cannot hold, so that it is certainly absent."""


@dataclass(frozen=True, slots=True, eq=False)
class BloomHashes:
    """The hashes of several values. A value without any is none that the column can hold."""

    hashes: npt.NDArray[np.uint64]
    """Shape ``(hashes,)``."""
    owners: npt.NDArray[np.int64]
    """Position of the value that each hash belongs to, ascending; the two zeros of floats are two hashes of one value."""


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """What stands in front of a bitset in a Parquet file."""

    length_bytes: int
    """Length of the header itself; the bitset follows."""
    bitset_bytes: int


def bloom_hashes(values: Sequence[StoredValue], column_type: ColumnType) -> BloomHashes | None:
    """Hash values as the writers of bloom filters do: the bytes of their PLAIN encoding, without length prefixes.

    Writers leave NULL out. What they stored in place of one (0 in BYTE, SHORT and CHAR) is left out as well, which the
    caller has to know about.

    Args:
        values: In the domain of the column's type: integers in its own unit, unscaled decimals, text as UTF-8.
        column_type: How the column is stored in the file that has the filter.

    Returns:
        None if values of this type cannot be looked up: booleans, arrays, decimals in byte strings of any length (their
        writers may pad them), and NaN, of which there are many.
    """
    if column_type.comparison in {Comparison.NONE, Comparison.BOOLEAN}:
        return None
    if column_type.comparison is Comparison.DECIMAL and column_type.physical_type is PhysicalType.BYTE_ARRAY:
        return None
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None
    forms = [_plain_forms(value, column_type) for value in values]
    hashes = [xxhash.xxh64_intdigest(form) for of_value in forms for form in of_value]
    owners = np.repeat(np.arange(len(forms)), np.array(list(map(len, forms)), np.int64))
    return BloomHashes(np.array(hashes, np.uint64), owners)


def _plain_forms(value: StoredValue, column_type: ColumnType) -> tuple[bytes, ...]:
    """Return every byte string as which a value may be stored; none if the column cannot hold it."""
    physical_type = column_type.physical_type
    match value:
        case bytes():
            is_fixed = physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY
            return () if is_fixed and len(value) != column_type.fixed_byte_length else (value,)
        case float():
            return _float_forms(value, "<f" if physical_type is PhysicalType.FLOAT else "<d")
        case int() if physical_type in _INTEGER_BYTES:
            # Unsigned numbers are stored in the bits of signed ones.
            is_signed = column_type.comparison is not Comparison.UNSIGNED
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
    """Return which block of its filter each hash touches; the arrays broadcast.

    Args:
        hashes: The hashes.
        bitset_bytes: Length of each filter's bitset, a multiple of ``BLOCK_BYTES``.
    """
    block_counts = (bitset_bytes // BLOCK_BYTES).astype(np.uint64)
    return ((hashes >> _HALF) * block_counts >> _HALF).astype(np.int64)


def blocks_at(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Take blocks out of bytes that hold them.

    Args:
        data: The bytes.
        starts: Where each block begins in them, shape ``(blocks,)``.

    Returns:
        The words of each block, shape ``(blocks, 8)``.
    """
    if not len(starts):
        return np.empty((0, BLOCK_BYTES // _WORD_BYTES), np.uint32)
    taken = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, BLOCK_BYTES)[starts])
    return cast("npt.NDArray[np.uint32]", taken.view("<u4"))


def may_be_in_blocks(hashes: npt.NDArray[np.uint64], blocks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Tell for each hash whether the block that it touches has all of its bits; False is certain.

    Args:
        hashes: Shape ``(hashes,)``.
        blocks: The words of the blocks, shape ``(hashes, 8)``.
    """
    lower = (hashes & _LOWER_HALF).astype(np.uint32)
    bits = np.uint32(1) << (lower[:, np.newaxis] * _SALTS >> _BIT_SHIFT)
    return cast("npt.NDArray[np.bool_]", (blocks & bits == bits).all(axis=1))


def is_bitset_length(length_bytes: int) -> bool:
    """Tell whether a bitset can have this length."""
    return length_bytes >= BLOCK_BYTES and length_bytes % BLOCK_BYTES == 0


def parse_bloom_header(data: bytes) -> BloomHeader | None:
    """Parse the header in front of a bitset.

    Args:
        data: Bytes of the file from the header on; ``MAX_HEADER_BYTES`` of them are enough.

    Returns:
        None where that is no header, or one of a filter that works otherwise than those described here.
    """
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
