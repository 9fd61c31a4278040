"""Model to bytes: write a `_txn` file, or the transaction that follows another one."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import txn_layout as layout
from coldparquet.format.partition_records import NOT_STATED
from coldparquet.format.txn import Lag, TableTransaction, parse_txn

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.format.partition_records import PartitionRecords

_LIMITS = (
    ("row_counts", 0, layout.ROW_COUNT_BITS),
    ("squash_counts", 0, layout.SQUASH_COUNT_BITS),
    ("parquet_sizes", NOT_STATED, layout.SIZE_BITS),
    ("native_seq_txns", NOT_STATED, layout.SIZE_BITS),
)
"""Columns of partition records with their least value and the bits that they have."""


def replace_partitions(
    transaction: TableTransaction,
    partitions: PartitionRecords,
    *,
    min_timestamp: int | None,
    max_timestamp: int | None,
) -> TableTransaction:
    """Return the transaction that follows, with other partitions.

    Row counts follow from the partitions; the versions that tell readers what to look at again are counted up. There is
    no lag any more: the database reads its rows from the write-ahead log once more.

    Args:
        transaction: The transaction before.
        partitions: All partitions of the table, sorted by timestamp.
        min_timestamp: Least timestamp of the table's rows, in its unit; None without rows.
        max_timestamp: Largest timestamp of the table's rows; None without rows.
    """
    row_counts = partitions.row_counts
    is_removed = ~np.isin(transaction.partitions.timestamps, partitions.timestamps)
    return replace(
        transaction,
        txn=transaction.txn + 1,
        transient_row_count=int(row_counts[-1]) if len(partitions) else 0,
        fixed_row_count=int(row_counts[:-1].sum()),
        min_timestamp=min_timestamp,
        max_timestamp=max_timestamp,
        partition_table_version=transaction.partition_table_version + 1,
        truncate_version=transaction.truncate_version + int(is_removed.any()),
        lag=Lag(),
        partitions=partitions,
    )


def encode_txn(transaction: TableTransaction) -> bytes:
    """Write a fresh `_txn` file that holds one transaction.

    Raises:
        InvalidInputError: A number does not fit its field, or the partitions contradict the row counts or their order.
    """
    words = _words(transaction.partitions)
    symbols = np.zeros(len(transaction.symbol_counts), layout.SYMBOL_COUNT_DTYPE)
    try:
        symbols["committed"] = symbols["transient"] = transaction.symbol_counts
        record = _encode_record(transaction)
    except (struct.error, OverflowError) as error:
        raise InvalidInputError(f"this transaction does not fit a _txn file: {error}") from error
    area = (layout.HEADER_BYTES, symbols.nbytes, words.nbytes)
    areas = (0, 0, 0, *area) if transaction.txn & 1 else (*area, 0, 0, 0)
    encoded = b"".join(
        [
            layout.HEADER.pack(transaction.txn, *areas),
            record,
            symbols.tobytes(),
            layout.SECTION_LENGTH.pack(words.nbytes),
            words.astype("<i8").tobytes(),
            _left_behind(transaction),
        ]
    )
    _check_last_row_count(transaction)
    try:
        parse_txn(encoded, path=None)
    except FormatError as error:
        raise InvalidInputError(f"this would not be a valid _txn file: {error.message}") from error
    return encoded


def _left_behind(transaction: TableTransaction) -> bytes:
    left = transaction.left_behind
    if left is None:
        return b""
    return layout.LEFT_BEHIND.pack(layout.LEFT_BEHIND_MAGIC, transaction.txn, left.partition_count, left.row_count)


def _words(partitions: PartitionRecords) -> npt.NDArray[np.int64]:
    for name, least, bits in _LIMITS:
        values = getattr(partitions, name)
        bad = (values < least) | (values >= 1 << bits)
        if bad.any():
            index = int(bad.argmax())
            raise InvalidInputError(
                f"{name}[{index}] is {values[index]}; it must be at least {least} and fit {bits} bits", field=name
            )
    if (partitions.parquet_sizes == 0).any():
        raise InvalidInputError(
            f"a Parquet size is 0; no such file is empty, and {NOT_STATED} says that it is not known"
        )
    misplaced = np.where(partitions.is_parquet, partitions.native_seq_txns, partitions.parquet_sizes) != NOT_STATED
    if misplaced.any():
        raise InvalidInputError(
            f"partition {int(misplaced.argmax())} has a Parquet size although it is native, or the other way round"
        )
    return partitions.to_words()


def _check_last_row_count(transaction: TableTransaction) -> None:
    """The file would not show it: what it says about the last partition's rows is never read."""
    row_counts = transaction.partitions.row_counts
    if len(row_counts) and row_counts[-1] != transaction.transient_row_count:
        raise InvalidInputError(
            f"the last partition has {row_counts[-1]} rows, not transient_row_count = {transaction.transient_row_count}"
        )


def _encode_record(transaction: TableTransaction) -> bytes:
    lag = transaction.lag
    lag_bounds = _stored_bounds(lag.min_timestamp, lag.max_timestamp)
    checksum = layout.lag_checksum(
        min_timestamp=lag_bounds[0],
        max_timestamp=lag_bounds[1],
        txn=transaction.txn,
        seq_txn=transaction.seq_txn,
        row_count=lag.row_count,
        txn_count=lag.txn_count,
    )
    return layout.RECORD.pack(
        transaction.txn,
        transaction.transient_row_count,
        transaction.fixed_row_count,
        *_stored_bounds(transaction.min_timestamp, transaction.max_timestamp),
        _structure_version(transaction.metadata_version, transaction.column_structure_version),
        transaction.data_version,
        transaction.partition_table_version,
        transaction.column_version,
        transaction.truncate_version,
        transaction.seq_txn,
        checksum,
        lag.txn_count,
        lag.row_count,
        *lag_bounds,
        len(transaction.symbol_counts),
    )


def _stored_bounds(lower: int | None, upper: int | None) -> tuple[int, int]:
    return (
        layout.NO_MIN_TIMESTAMP if lower is None else lower,
        layout.NO_MAX_TIMESTAMP if upper is None else upper,
    )


def _structure_version(metadata_version: int, column_structure_version: int) -> int:
    stored = column_structure_version or layout.ZERO_COLUMN_STRUCTURE_VERSION
    if column_structure_version == metadata_version:
        stored = layout.SAME_COLUMN_STRUCTURE_VERSION
    return int.from_bytes(layout.STRUCTURE_VERSION.pack(metadata_version, stored), "little", signed=True)
