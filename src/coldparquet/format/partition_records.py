"""Defines the layout of `_txn`, and its partitions as columns: 100,000 of them cost milliseconds.

`_txn` is the file that says which partitions a table currently has.

    header      64 bytes: version, and the places of the two areas A and B
    area A, B   one transaction each; the version's parity tells which one is live: even A, odd B

    area        132 fixed bytes, 8 bytes per symbol column, 4 bytes length of the partition section, 32 bytes per partition

A commit writes the area that is not live and then the version, so a reader sees either transaction, never a half. Bytes
that belong to neither live area nor header may be left from older transactions. All integers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.format.binary import Record
from coldparquet.format.partition_names import DAY_NS, HOUR_NS, UNVERSIONED, PartitionInterval

if TYPE_CHECKING:
    from collections.abc import Iterable


VERSION = struct.Struct("<q")
"""The version at offset 0: the number of the live transaction."""

HEADER_BYTES = 64
HEADER = struct.Struct("<qiii12xiii20x")
"""Version; of area A, then of B: offset, bytes of the symbol counts, bytes of the partition records."""

AREA_A_OFFSET = 8
AREA_B_OFFSET = 32
"""Where the header describes the areas."""

RECORD = Record(
    txn="i8",
    transient_row_count="i8",
    fixed_row_count="i8",
    min_timestamp="i8",
    max_timestamp="i8",
    metadata_version="i4",
    column_structure_version="i4",
    data_version="i8",
    partition_table_version="i8",
    column_version="i8",
    truncate_version="i8",
    seq_txn="i8",
    lag_checksum="i4",
    lag_txn_count="i4",
    lag_row_count="i4",
    lag_min_timestamp="i8",
    lag_max_timestamp="i8",
    stale="S12",
    symbol_count="i4",
)
"""The fixed part of an area."""

SYMBOL_COUNT_DTYPE = np.dtype([("committed", "<i4"), ("transient", "<i4")])
"""One symbol column: entries that belong to the transaction, and the number including uncommitted ones."""

SECTION_LENGTH = struct.Struct("<i")
"""Length of the partition section in bytes."""

LEFT_BEHIND = struct.Struct("<8sqqq")
"""coldparquet's own, directly behind the live area of a published table that lacks rows: `LEFT_BEHIND_MAGIC`, the
number of the transaction, and how many partitions and rows of the source are not in the copy. QuestDB reads nothing
there."""
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
"""Bits 56 to 61 have no meaning in released versions."""
DELTA_BIT = 61
"""Parquet partitions of development branches: there are delta files, so ``data.parquet`` lacks changes."""
SEQ_TXN_BIT = 62
"""Native partitions only: the low bits are a seqTxn. Without it older versions left a Parquet size there."""
REMOTE_COPY_BIT = 63
CLEARED_WORDS = (0, -1)
"""Either of them says: nothing is stated."""

# --- Values with a meaning of their own --------------------------------------------------------------------------------

NO_MIN_TIMESTAMP = (1 << 63) - 1
NO_MAX_TIMESTAMP = -(1 << 63)
"""Bounds of an empty range: the least value is the largest integer and the other way round."""

SAME_COLUMN_STRUCTURE_VERSION = 0
"""Stored where the column structure version equals the metadata version."""
ZERO_COLUMN_STRUCTURE_VERSION = -(1 << 31)
"""Stored where the column structure version is 0."""


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


_EARLIEST = np.iinfo(np.int64).min
_LATEST = np.iinfo(np.int64).max
_MICROSECOND_NS = 1000
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday, three days after Monday."""


def partition_ranges(
    timestamps: npt.NDArray[np.int64], interval: PartitionInterval, *, is_nanosecond: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the half-open time ranges that hold all rows of the partitions of a table."""
    starts = timestamps.copy()
    starts[:1] = np.where(starts[:1] <= 0, _EARLIEST, starts[:1])
    stops = partition_stops(timestamps, interval, is_nanosecond=is_nanosecond)
    stops[:-1] = np.minimum(stops[:-1], timestamps[1:])
    return starts, stops


def partition_stops(
    timestamps: npt.NDArray[np.int64], interval: PartitionInterval, *, is_nanosecond: bool
) -> npt.NDArray[np.int64]:
    """Return the ends, exclusive, of the partitions that hold these times; `partition_stop_ns` for many.

    Ends that do not fit are the largest 64-bit integer.
    """
    if interval is PartitionInterval.NONE:
        return np.full(len(timestamps), _LATEST)
    unit_ns = 1 if is_nanosecond else _MICROSECOND_NS
    step = (HOUR_NS if interval is PartitionInterval.HOUR else DAY_NS) // unit_ns
    # Rows from before 1970 are in the first partition.
    first_steps = np.maximum(timestamps, 0) // step
    stop_steps = _following(first_steps, interval)
    does_fit = stop_steps <= _LATEST // step
    return np.where(does_fit, stop_steps * np.where(does_fit, step, 0), _LATEST)


def _following(steps: npt.NDArray[np.int64], interval: PartitionInterval) -> npt.NDArray[np.int64]:
    """Return the begin of the next partition: an hour for HOUR, otherwise a day, counted from 1970-01-01."""
    match interval:
        case PartitionInterval.HOUR | PartitionInterval.DAY:
            return steps + 1
        case PartitionInterval.WEEK:
            return steps - (steps + _EPOCH_WEEKDAY) % 7 + 7
    calendar = "datetime64[M]" if interval is PartitionInterval.MONTH else "datetime64[Y]"
    following = steps.view("datetime64[D]").astype(calendar) + 1
    return following.astype("datetime64[D]").view(np.int64)


NOT_STATED = -1
"""Parquet size or seqTxn of a partition for which `_txn` states none."""

_SIZE_MASK = (1 << SIZE_BITS) - 1
_ROW_COUNT_MASK = (1 << ROW_COUNT_BITS) - 1
_SQUASH_COUNT_MASK = (1 << SQUASH_COUNT_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The record of `_txn` for one partition, or for one piece of a partition that was split."""

    timestamp: int
    """Begin of the partition or of the piece, in the unit of the table."""
    row_count: int
    name_txn: int = UNVERSIONED
    """Version in the name of the directory, or -1 without one."""
    is_parquet: bool
    is_parquet_generated: bool = False
    """A native partition that also has a `data.parquet`."""
    is_read_only: bool = False
    squash_count: int = 0
    parquet_size: int = NOT_STATED
    """Bytes of `data.parquet` that belong to the transaction; -1 where none are stated, as for native partitions."""
    has_remote_copy: bool = False
    native_seq_txn: int = NOT_STATED
    """Last sequencer transaction in a native partition, or -1."""
    unknown_flags: int = 0
    """Bits of the size word without known meaning, in place: bits 56 to 61, and 62 of a Parquet partition."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionRecords:
    """The partitions of a transaction in time order; every column has the shape (partitions,) and is read-only."""

    timestamps: npt.NDArray[np.int64]
    row_counts: npt.NDArray[np.int64]
    name_txns: npt.NDArray[np.int64]
    is_parquet: npt.NDArray[np.bool_]
    is_parquet_generated: npt.NDArray[np.bool_]
    is_read_only: npt.NDArray[np.bool_]
    squash_counts: npt.NDArray[np.int64]
    parquet_sizes: npt.NDArray[np.int64]
    """-1 where none is stated."""
    has_remote_copy: npt.NDArray[np.bool_]
    native_seq_txns: npt.NDArray[np.int64]
    """-1 where none is stated."""
    unknown_flags: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for column in fields(self):
            getattr(self, column.name).flags.writeable = False

    @classmethod
    def of(cls, records: Iterable[PartitionRecord]) -> PartitionRecords:
        """Gather single records into columns."""
        records = tuple(records)
        return cls(
            **{
                column: np.fromiter((getattr(record, field) for record in records), kind, len(records))
                for column, (field, kind) in _FIELD_OF_COLUMN.items()
            }
        )

    @classmethod
    def from_words(cls, words: npt.NDArray[np.int64]) -> PartitionRecords:
        """Decode the stored words."""
        timestamps, rows_and_flags, name_txns, sizes_and_flags = words.T
        is_parquet = _bit(rows_and_flags, PARQUET_BIT)
        is_stated = ~np.isin(sizes_and_flags, CLEARED_WORDS)
        sizes = sizes_and_flags & _SIZE_MASK
        has_seq_txn = ~is_parquet & is_stated & _bit(sizes_and_flags, SEQ_TXN_BIT)
        unknown_flags = np.where(is_stated, sizes_and_flags & _unknown_flags_mask(is_parquet), 0)
        return cls(
            timestamps=timestamps.copy(),
            row_counts=rows_and_flags & _ROW_COUNT_MASK,
            name_txns=name_txns.copy(),
            is_parquet=is_parquet,
            is_parquet_generated=_bit(rows_and_flags, PARQUET_GENERATED_BIT),
            is_read_only=_bit(rows_and_flags, READ_ONLY_BIT),
            squash_counts=rows_and_flags >> SQUASH_COUNT_SHIFT & _SQUASH_COUNT_MASK,
            # No Parquet file is empty, so a size of 0 beside flags states nothing either.
            parquet_sizes=np.where(is_parquet & is_stated & (sizes > 0), sizes, NOT_STATED),
            has_remote_copy=is_stated & _bit(sizes_and_flags, REMOTE_COPY_BIT),
            native_seq_txns=np.where(has_seq_txn, sizes, NOT_STATED),
            unknown_flags=unknown_flags,
        )

    def to_words(self) -> npt.NDArray[np.int64]:
        """Encode the words, shape (partitions, 4). The values are not checked to fit their bits."""
        words = np.empty((len(self), PARTITION_WORDS), np.int64)
        words[:, 0] = self.timestamps
        words[:, 1] = (
            self.row_counts
            | self.squash_counts << SQUASH_COUNT_SHIFT
            | self.is_parquet_generated.astype(np.int64) << PARQUET_GENERATED_BIT
            | self.is_parquet.astype(np.int64) << PARQUET_BIT
            | self.is_read_only.astype(np.int64) << READ_ONLY_BIT
        )
        words[:, 2] = self.name_txns
        has_seq_txn = ~self.is_parquet & (self.native_seq_txns != NOT_STATED)
        flags = (
            self.unknown_flags & _unknown_flags_mask(self.is_parquet)
            | has_seq_txn.astype(np.int64) << SEQ_TXN_BIT
            | self.has_remote_copy.astype(np.int64) << REMOTE_COPY_BIT
        )
        values = np.where(self.is_parquet, np.maximum(self.parquet_sizes, 0), np.maximum(self.native_seq_txns, 0))
        stored = values | flags
        words[:, 3] = np.where(stored == 0, -1, stored)
        return words

    def __len__(self) -> int:
        return len(self.timestamps)

    def record(self, index: int) -> PartitionRecord:
        """Return one partition as an object of plain integers."""
        values = {field: getattr(self, column)[index].item() for column, (field, _) in _FIELD_OF_COLUMN.items()}
        return PartitionRecord(**values)

    def take(self, indexes: npt.NDArray[np.intp]) -> PartitionRecords:
        """Return the partitions at these positions."""
        return PartitionRecords(**{column.name: getattr(self, column.name)[indexes] for column in fields(self)})


_FIELD_OF_COLUMN = {
    "timestamps": ("timestamp", np.int64),
    "row_counts": ("row_count", np.int64),
    "name_txns": ("name_txn", np.int64),
    "is_parquet": ("is_parquet", np.bool_),
    "is_parquet_generated": ("is_parquet_generated", np.bool_),
    "is_read_only": ("is_read_only", np.bool_),
    "squash_counts": ("squash_count", np.int64),
    "parquet_sizes": ("parquet_size", np.int64),
    "has_remote_copy": ("has_remote_copy", np.bool_),
    "native_seq_txns": ("native_seq_txn", np.int64),
    "unknown_flags": ("unknown_flags", np.int64),
}
"""The field of one record that each column gathers."""


def _bit(words: npt.NDArray[np.int64], bit: int) -> npt.NDArray[np.bool_]:
    return (words >> bit & 1).astype(np.bool_)


def _unknown_flags_mask(is_parquet: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(is_parquet, UNKNOWN_SIZE_FLAGS | 1 << SEQ_TXN_BIT, UNKNOWN_SIZE_FLAGS)
