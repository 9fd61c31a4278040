"""The partitions of one transaction as columns, so that 100,000 of them cost milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coldparquet.format import txn_layout as layout
from coldparquet.format.partition_names import UNVERSIONED

if TYPE_CHECKING:
    from collections.abc import Iterable

NOT_STATED = -1
"""Parquet size or seqTxn of a partition of which `_txn` states none."""

_SIZE_MASK = (1 << layout.SIZE_BITS) - 1
_ROW_COUNT_MASK = (1 << layout.ROW_COUNT_BITS) - 1
_SQUASH_COUNT_MASK = (1 << layout.SQUASH_COUNT_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """What `_txn` says about one partition, or about one piece of a partition that was split."""

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
    """Bits of the size word without known meaning, in their places: bits 56 to 61, and 62 of a Parquet partition."""


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

        def integers(values: Iterable[int]) -> npt.NDArray[np.int64]:
            return np.fromiter(values, np.int64, len(records))

        def booleans(values: Iterable[bool]) -> npt.NDArray[np.bool_]:
            return np.fromiter(values, np.bool_, len(records))

        return cls(
            timestamps=integers(record.timestamp for record in records),
            row_counts=integers(record.row_count for record in records),
            name_txns=integers(record.name_txn for record in records),
            is_parquet=booleans(record.is_parquet for record in records),
            is_parquet_generated=booleans(record.is_parquet_generated for record in records),
            is_read_only=booleans(record.is_read_only for record in records),
            squash_counts=integers(record.squash_count for record in records),
            parquet_sizes=integers(record.parquet_size for record in records),
            has_remote_copy=booleans(record.has_remote_copy for record in records),
            native_seq_txns=integers(record.native_seq_txn for record in records),
            unknown_flags=integers(record.unknown_flags for record in records),
        )

    @classmethod
    def from_words(cls, words: npt.NDArray[np.int64]) -> PartitionRecords:
        """Take the stored words apart.

        Args:
            words: Shape (partitions, 4), as they lie in the file, with no row count negative.
        """
        timestamps, rows_and_flags, name_txns, sizes_and_flags = words.T
        is_parquet = _bit(rows_and_flags, layout.PARQUET_BIT)
        is_stated = ~np.isin(sizes_and_flags, layout.CLEARED_WORDS)
        sizes = sizes_and_flags & _SIZE_MASK
        has_seq_txn = ~is_parquet & is_stated & _bit(sizes_and_flags, layout.SEQ_TXN_BIT)
        unknown_flags = np.where(is_stated, sizes_and_flags & _unknown_flags_mask(is_parquet), 0)
        return cls(
            timestamps=timestamps.copy(),
            row_counts=rows_and_flags & _ROW_COUNT_MASK,
            name_txns=name_txns.copy(),
            is_parquet=is_parquet,
            is_parquet_generated=_bit(rows_and_flags, layout.PARQUET_GENERATED_BIT),
            is_read_only=_bit(rows_and_flags, layout.READ_ONLY_BIT),
            squash_counts=rows_and_flags >> layout.SQUASH_COUNT_SHIFT & _SQUASH_COUNT_MASK,
            # No Parquet file is empty, so a size of 0 beside flags states nothing either.
            parquet_sizes=np.where(is_parquet & is_stated & (sizes > 0), sizes, NOT_STATED),
            has_remote_copy=is_stated & _bit(sizes_and_flags, layout.REMOTE_COPY_BIT),
            native_seq_txns=np.where(has_seq_txn, sizes, NOT_STATED),
            unknown_flags=unknown_flags,
        )

    def to_words(self) -> npt.NDArray[np.int64]:
        """Put the words together again, shape (partitions, 4). The values are not checked to fit their bits."""
        words = np.empty((len(self), layout.PARTITION_WORDS), np.int64)
        words[:, 0] = self.timestamps
        words[:, 1] = (
            self.row_counts
            | self.squash_counts << layout.SQUASH_COUNT_SHIFT
            | self.is_parquet_generated.astype(np.int64) << layout.PARQUET_GENERATED_BIT
            | self.is_parquet.astype(np.int64) << layout.PARQUET_BIT
            | self.is_read_only.astype(np.int64) << layout.READ_ONLY_BIT
        )
        words[:, 2] = self.name_txns
        has_seq_txn = ~self.is_parquet & (self.native_seq_txns != NOT_STATED)
        flags = (
            self.unknown_flags & _unknown_flags_mask(self.is_parquet)
            | has_seq_txn.astype(np.int64) << layout.SEQ_TXN_BIT
            | self.has_remote_copy.astype(np.int64) << layout.REMOTE_COPY_BIT
        )
        values = np.where(self.is_parquet, np.maximum(self.parquet_sizes, 0), np.maximum(self.native_seq_txns, 0))
        stored = values | flags
        words[:, 3] = np.where(stored == 0, -1, stored)
        return words

    def __len__(self) -> int:
        return len(self.timestamps)

    def record(self, index: int) -> PartitionRecord:
        """Return one partition as an object of plain integers.

        Raises:
            IndexError: There is no such partition.
        """
        return PartitionRecord(
            timestamp=int(self.timestamps[index]),
            row_count=int(self.row_counts[index]),
            name_txn=int(self.name_txns[index]),
            is_parquet=bool(self.is_parquet[index]),
            is_parquet_generated=bool(self.is_parquet_generated[index]),
            is_read_only=bool(self.is_read_only[index]),
            squash_count=int(self.squash_counts[index]),
            parquet_size=int(self.parquet_sizes[index]),
            has_remote_copy=bool(self.has_remote_copy[index]),
            native_seq_txn=int(self.native_seq_txns[index]),
            unknown_flags=int(self.unknown_flags[index]),
        )

    def take(self, indexes: npt.NDArray[np.intp]) -> PartitionRecords:
        """Return the partitions at these positions."""
        return PartitionRecords(**{column.name: getattr(self, column.name)[indexes] for column in fields(self)})


def _bit(words: npt.NDArray[np.int64], bit: int) -> npt.NDArray[np.bool_]:
    return (words >> bit & 1).astype(np.bool_)


def _unknown_flags_mask(is_parquet: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(is_parquet, layout.UNKNOWN_SIZE_FLAGS | 1 << layout.SEQ_TXN_BIT, layout.UNKNOWN_SIZE_FLAGS)
