"""The layout of `_meta`; `coldparquet.format.table_metadata` says what it means. All integers are little-endian."""

from __future__ import annotations

import struct

TABLE_VERSION = 426
"""The only version of the table format that QuestDB 9 opens."""

HEADER = struct.Struct("<iiiiiiqq?ii79s")
"""Slots, interval, designated timestamp, version, table id, most uncommitted rows, largest lag, metadata version, WAL,
minor version word, TTL, reserved."""
HEADER_OFFSETS = {"slot_count": 0, "interval": 4, "designated_timestamp": 8, "version": 12}
SLOT = struct.Struct("<iqiiiii")
"""Type, flags, index block capacity, symbol capacity, encoding word, replaced slot + 1, reserved."""
REPLACED_INDEX_OFFSET = 24

INDEXED_FLAG = 1 << 0
SYMBOL_CACHE_FLAG = 1 << 2
DEDUP_KEY_FLAG = 1 << 3

NO_DESIGNATED_TIMESTAMP = -1
LONGEST_NAME_UNITS = 255
FIRST_MINOR_VERSION_WITH_ENCODINGS = 1

_INSTEAD_OF_ZERO = -1337 & 0xFFFF
"""A checksum of 0 would be in every file that knows no minor version."""


def slot_offset(index: int) -> int:
    """Return where a slot begins in the file."""
    return HEADER.size + SLOT.size * index


def minor_version_checksum(metadata_version: int, slot_count: int) -> int:
    """Return the low 16 bits of the minor version word, as an unsigned integer; they prove that it was written."""
    folded = 13 * ((metadata_version ^ metadata_version >> 32) & 0xFFFF_FFFF) + 37 * slot_count
    checksum = (folded ^ folded >> 16) & 0xFFFF
    return checksum or _INSTEAD_OF_ZERO


def minor_version_of(word: int, metadata_version: int, slot_count: int) -> int | None:
    """Return the minor version from its word, None where the checksum says that the word is something else."""
    if word & 0xFFFF != minor_version_checksum(metadata_version, slot_count):
        return None
    return word >> 16 & 0xFFFF
