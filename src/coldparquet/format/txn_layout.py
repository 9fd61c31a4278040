"""The layout of `_txn`, the file that says which partitions a table has at this moment.

    header      64 bytes: version, and where the two areas A and B lie
    area A, B   one transaction each; the version's parity tells which one is live: even A, odd B

    area        132 fixed bytes, 8 bytes per symbol column, 4 bytes length of the partition section, 32 bytes per partition

A commit writes the area that is not live and then the version, so a reader sees either transaction, never a half. Bytes
that belong to neither live area nor header may be left from older transactions. All integers are little-endian.
"""

from __future__ import annotations

import struct

import numpy as np

VERSION = struct.Struct("<q")
"""The version at offset 0: the number of the live transaction."""

HEADER_BYTES = 64
HEADER = struct.Struct("<qiii12xiii20x")
"""Version; of area A, then of B: offset, bytes of the symbol counts, bytes of the partition records."""

AREA_A_OFFSET = 8
AREA_B_OFFSET = 32
"""Where the header describes the areas."""

RECORD = struct.Struct("<11qiiiqq12xi")
"""The fixed part of an area, in the order of `RECORD_FIELDS`; the 12 bytes before the symbol count may be stale."""

RECORD_FIELDS = (
    ("txn", 0),
    ("transient_row_count", 8),
    ("fixed_row_count", 16),
    ("min_timestamp", 24),
    ("max_timestamp", 32),
    ("structure_version", 40),
    ("data_version", 48),
    ("partition_table_version", 56),
    ("column_version", 64),
    ("truncate_version", 72),
    ("seq_txn", 80),
    ("lag_checksum", 88),
    ("lag_txn_count", 92),
    ("lag_row_count", 96),
    ("lag_min_timestamp", 100),
    ("lag_max_timestamp", 108),
    ("symbol_count", 128),
)
"""Fields of `RECORD` with their offsets in the area."""

SYMBOL_COUNT_DTYPE = np.dtype([("committed", "<i4"), ("transient", "<i4")])
"""One symbol column: entries that belong to the transaction, and with those that are still being added."""

SECTION_LENGTH = struct.Struct("<i")
"""Length of the partition section in bytes."""

LEFT_BEHIND = struct.Struct("<8sqqq")
"""Ours, right behind the live area of a published table that lacks rows: `LEFT_BEHIND_MAGIC`, the number of the
transaction, and how many partitions and rows of the source are not in the copy. QuestDB reads nothing there."""
LEFT_BEHIND_MAGIC = b"cpq-left"

PARTITION_WORDS = 4
PARTITION_BYTES = 8 * PARTITION_WORDS
"""One partition: four 64-bit words, timestamp, rows and flags, name txn, size and flags."""

# --- Word 1 of a partition: rows and flags -----------------------------------------------------------------------------

ROW_COUNT_BITS = 44
SQUASH_COUNT_SHIFT = 44
SQUASH_COUNT_BITS = 16
PARQUET_GENERATED_BIT = 60
PARQUET_BIT = 61
READ_ONLY_BIT = 62
"""Bit 63 belongs to the row count where it is set at all, and makes it negative."""

# --- Word 3 of a partition: Parquet size, or seqTxn of a native partition ----------------------------------------------

SIZE_BITS = 56
UNKNOWN_SIZE_FLAGS = 0x3F << SIZE_BITS
"""Bits 56 to 61 have no meaning that released versions give them."""
DELTA_BIT = 61
"""Parquet partitions of development branches: there are delta files, so that ``data.parquet`` is not the whole truth."""
SEQ_TXN_BIT = 62
"""Native partitions only: the low bits are a seqTxn. Without it older versions left a Parquet size there."""
REMOTE_COPY_BIT = 63
CLEARED_WORDS = (0, -1)
"""Either of them says: nothing is stated."""

# --- Values with a meaning of their own --------------------------------------------------------------------------------

NO_MIN_TIMESTAMP = (1 << 63) - 1
NO_MAX_TIMESTAMP = -(1 << 63)
"""Bounds of an empty range: the least value is the largest integer and the other way round."""

STRUCTURE_VERSION = struct.Struct("<ii")
"""Halves of the structure version: metadata version, column structure version."""
SAME_COLUMN_STRUCTURE_VERSION = 0
"""High half of the structure version: the column structure version equals the metadata version."""
ZERO_COLUMN_STRUCTURE_VERSION = -(1 << 31)
"""High half of the structure version: the column structure version is 0."""


def lag_checksum(  # noqa: PLR0913 - it covers these six fields
    *, min_timestamp: int, max_timestamp: int, txn: int, seq_txn: int, row_count: int, txn_count: int
) -> int:
    """Return the checksum that guards the lag fields, as a signed 32-bit integer."""
    folded = min_timestamp
    for value in (max_timestamp, txn, seq_txn, row_count, txn_count):
        folded = 31 * folded + value
    folded &= 0xFFFF_FFFF_FFFF_FFFF
    low = (folded ^ folded >> 32) & 0xFFFF_FFFF
    return low - (1 << 32) if low >> 31 else low
