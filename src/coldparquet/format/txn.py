"""Reads and writes `_txn`: the current transaction of a table, with its partitions, their sizes and their versions.

`coldparquet.format.partition_records` describes the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import partition_records as layout
from coldparquet.format.binary import invalid, truncated
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.partition_records import NOT_STATED, PartitionRecord, PartitionRecords
from coldparquet.records import replace

__all__ = ["Lag", "LeftBehind", "PartitionRecord", "PartitionRecords", "TableTransaction", "parse_txn", "parse_version"]

_NEVER_NEGATIVE = ("transient_row_count", "fixed_row_count", "symbol_count")
_LARGEST_ROW_COUNT = (1 << layout.ROW_COUNT_BITS) - 1


class Lag(Struct, frozen=True, kw_only=True):
    """Rows that the database keeps behind the last partition's rows until they are in order; readers never see them."""

    row_count: int = 0
    txn_count: int = 0
    """Sequencer transactions that they come from; negative where the rows are not in time order."""
    min_timestamp: int | None = None
    max_timestamp: int | None = None


class LeftBehind(Struct, frozen=True, kw_only=True):
    """The rows that a published table lacks compared with its source."""

    partition_count: int
    row_count: int


class TableTransaction(Struct, frozen=True, kw_only=True):
    """One committed transaction of a table. Timestamps are in the unit of the table."""

    txn: int
    transient_row_count: int
    """Rows of the last partition."""
    fixed_row_count: int
    """Rows of all other partitions."""
    min_timestamp: int | None
    """None in an empty table, and in every table without partitioning."""
    max_timestamp: int | None
    metadata_version: int
    """The `_meta` that belongs to the transaction, by its own `metadata_version`."""
    column_structure_version: int
    data_version: int
    partition_table_version: int
    column_version: int
    """The `_cv` that belongs to the transaction, by its own `version`."""
    truncate_version: int
    seq_txn: int
    lag: Lag = Lag()
    symbol_counts: tuple[int, ...]
    """Entries of each symbol dictionary, by dense symbol index."""
    partitions: PartitionRecords
    """As recorded, the last row count already replaced by `transient_row_count`; see `partitions_of`."""
    left_behind: LeftBehind | None = None
    """The missing rows of this copy; None in tables of a database, and in whole copies."""

    @property
    def total_rows(self) -> int:
        """Rows of the table."""
        return self.fixed_row_count + self.transient_row_count

    def partitions_of(self, interval: PartitionInterval) -> PartitionRecords:
        """Return the partitions of a table with this interval: for NONE the single implicit one."""
        if interval is PartitionInterval.NONE:
            # The database, too, ignores the partitions that such a table records.
            return PartitionRecords.of(
                [PartitionRecord(timestamp=0, row_count=self.transient_row_count, is_parquet=False)]
            )
        if self.total_rows and not len(self.partitions):
            raise FormatError(
                f"_txn counts {self.total_rows} rows but records no partition; _txn or _meta is of another table",
                field="partitions",
            )
        last = int(self.partitions.timestamps[-1]) if len(self.partitions) else 0
        # Rows from before 1970 are in the first partition, which is recorded at 0.
        if self.max_timestamp is not None and self.max_timestamp < last and last > 0:
            raise FormatError(
                f"_txn records a partition that begins at {last}, after the largest timestamp of all rows,"
                f" {self.max_timestamp}; the file is damaged: copy it from the database again",
                field="max_timestamp",
            )
        return self.partitions


class _Area(Struct, frozen=True):
    """The place of the live transaction, from the header."""

    version: int
    described_at: int
    start: int
    symbol_bytes: int
    partition_bytes: int

    @property
    def stop(self) -> int:
        """End of the area."""
        return self.start + layout.RECORD.size + self.symbol_bytes + layout.SECTION_LENGTH.size + self.partition_bytes

    def offset(self, field: str) -> int:
        """Return where a field of the record is in the file."""
        return self.start + layout.RECORD.offset(field)


def parse_version(data: bytes | memoryview, *, path: str | None) -> int:
    """Parse only the version in the first 8 bytes: the number of the live transaction.

    Compare it before and after reading a file that may change; see `parse_txn`.
    """
    if len(data) < layout.VERSION.size:
        raise truncated("version", layout.VERSION.size, len(data), offset=0, path=path)
    (version,) = layout.VERSION.unpack_from(data)
    if version < 0:
        raise invalid(f"version {version} is negative", offset=0, field="version", path=path)
    return int(version)


def parse_txn(data: bytes | memoryview, *, path: str | None) -> TableTransaction:
    """Parse the live transaction of a `_txn` file.

    On a disk where the database is running, the file may change while it is read. Read it again on the kinds
    `TornTransaction` and `Truncated`, and trust the result only if `parse_version` of a later read is still its `txn`.
    """
    view = memoryview(data).cast("B")
    area = _parse_header(view, path)
    record = layout.RECORD.unpack(view, area.start)
    _check_is_whole(view, area, record, path)
    for field in _NEVER_NEGATIVE:
        value = getattr(record, field)
        if value < 0:
            message = f"{field} is {value}; expected 0 or more"
            raise invalid(message, offset=area.offset(field), field=field, path=path)
    if record.transient_row_count > _LARGEST_ROW_COUNT:
        raise invalid(
            f"the last partition has {record.transient_row_count} rows; at most {_LARGEST_ROW_COUNT} fit its record",
            offset=area.offset("transient_row_count"),
            field="transient_row_count",
            path=path,
        )
    return TableTransaction(
        txn=record.txn,
        transient_row_count=record.transient_row_count,
        fixed_row_count=record.fixed_row_count,
        **_parse_bounds(record, area, path),
        metadata_version=record.metadata_version,
        column_structure_version=_column_structure_version(record.metadata_version, record.column_structure_version),
        data_version=record.data_version,
        partition_table_version=record.partition_table_version,
        column_version=record.column_version,
        truncate_version=record.truncate_version,
        seq_txn=record.seq_txn,
        lag=_parse_lag(record),
        symbol_counts=_parse_symbol_counts(view, area, path),
        partitions=_parse_partitions(view, area, record, path),
        left_behind=_parse_left_behind(view, area),
    )


def _parse_header(view: memoryview, path: str | None) -> _Area:
    version = parse_version(view, path=path)
    if len(view) < layout.HEADER_BYTES:
        raise truncated("header", layout.HEADER_BYTES, len(view), offset=0, path=path)
    _, *areas = layout.HEADER.unpack_from(view)
    described_at = layout.AREA_B_OFFSET if version & 1 else layout.AREA_A_OFFSET
    start, symbol_bytes, partition_bytes = areas[3:] if version & 1 else areas[:3]
    name = "B" if version & 1 else "A"
    if start < layout.HEADER_BYTES:
        message = f"area {name} begins at {start}, inside the header of {layout.HEADER_BYTES} bytes"
        raise invalid(message, offset=described_at, field="area_offset", path=path)
    if symbol_bytes < 0 or symbol_bytes % layout.SYMBOL_COUNT_DTYPE.itemsize:
        message = f"{symbol_bytes} bytes of symbol counts; expected a multiple of {layout.SYMBOL_COUNT_DTYPE.itemsize}"
        raise invalid(message, offset=described_at + 4, field="symbol_bytes", path=path)
    if partition_bytes < 0 or partition_bytes % layout.PARTITION_BYTES:
        message = f"{partition_bytes} bytes of partition records; expected a multiple of {layout.PARTITION_BYTES}"
        raise invalid(message, offset=described_at + 8, field="partition_bytes", path=path)
    area = _Area(version, described_at, start, symbol_bytes, partition_bytes)
    if area.stop > len(view):
        raise truncated(f"area {name}", area.stop, len(view), offset=described_at, path=path)
    return area


def _check_is_whole(view: memoryview, area: _Area, record: Any, path: str | None) -> None:
    """Check that header and area are of one transaction: number and sizes are written in both."""
    length_offset = area.start + layout.RECORD.size + area.symbol_bytes
    (partition_bytes,) = layout.SECTION_LENGTH.unpack_from(view, length_offset)
    symbol_bytes = record.symbol_count * layout.SYMBOL_COUNT_DTYPE.itemsize
    for field, in_header, in_area, offset in (
        ("txn", area.version, record.txn, area.start),
        ("symbol_count", area.symbol_bytes, symbol_bytes, area.offset("symbol_count")),
        ("partition_bytes", area.partition_bytes, partition_bytes, length_offset),
    ):
        if in_header != in_area:
            raise FormatError(
                f"the header says {in_header} for {field}, the record {in_area}: the file was read while the database"
                " wrote it, or is damaged; read it again",
                kind="TornTransaction",
                path=path,
                offset=offset,
                field=field,
                expected=in_header,
            )


def _parse_bounds(record: Any, area: _Area, path: str | None) -> dict[str, int | None]:
    lower, upper = _bounds(record.min_timestamp, record.max_timestamp)
    if lower is not None and upper is not None and lower > upper:
        message = f"the least timestamp {lower} is after the largest, {upper}"
        raise invalid(message, offset=area.offset("min_timestamp"), field="min_timestamp", path=path)
    return {"min_timestamp": lower, "max_timestamp": upper}


def _bounds(lower: int, upper: int) -> tuple[int | None, int | None]:
    return (
        None if lower == layout.NO_MIN_TIMESTAMP else lower,
        None if upper == layout.NO_MAX_TIMESTAMP else upper,
    )


def _parse_lag(record: Any) -> Lag:
    checksum = layout.lag_checksum(
        min_timestamp=record.lag_min_timestamp,
        max_timestamp=record.lag_max_timestamp,
        txn=record.txn,
        seq_txn=record.seq_txn,
        row_count=record.lag_row_count,
        txn_count=record.lag_txn_count,
    )
    if checksum != record.lag_checksum:
        # Left from another transaction, by a version without lag: there is none.
        return Lag()
    lower, upper = _bounds(record.lag_min_timestamp, record.lag_max_timestamp)
    return Lag(
        row_count=record.lag_row_count,
        txn_count=record.lag_txn_count,
        min_timestamp=lower,
        max_timestamp=upper,
    )


def _parse_symbol_counts(view: memoryview, area: _Area, path: str | None) -> tuple[int, ...]:
    start = area.start + layout.RECORD.size
    count = area.symbol_bytes // layout.SYMBOL_COUNT_DTYPE.itemsize
    committed = np.frombuffer(view, layout.SYMBOL_COUNT_DTYPE, count, start)["committed"]
    if (committed < 0).any():
        index = int((committed < 0).argmax())
        offset = start + index * layout.SYMBOL_COUNT_DTYPE.itemsize
        message = f"symbol column {index} has {committed[index]} entries; expected 0 or more"
        raise invalid(message, offset=offset, field="symbol_counts", path=path)
    return tuple(committed.tolist())


def _parse_partitions(view: memoryview, area: _Area, record: Any, path: str | None) -> PartitionRecords:
    start = area.start + layout.RECORD.size + area.symbol_bytes + layout.SECTION_LENGTH.size
    count = area.partition_bytes // layout.PARTITION_BYTES
    stored = np.frombuffer(view, "<i8", count * layout.PARTITION_WORDS, start)
    words = stored.reshape(count, layout.PARTITION_WORDS).astype(np.int64, copy=False)
    negative = words[:, 1] < 0
    # The stored count of the last partition is stale; only its flags count.
    negative[-1:] = False
    if negative.any():
        index = int(negative.argmax())
        message = f"the row count of partition {index} is negative or beyond {_LARGEST_ROW_COUNT} (bit 63 is set)"
        raise invalid(message, offset=start + index * layout.PARTITION_BYTES + 8, field="row_count", path=path)
    descends = words[1:, 0] <= words[:-1, 0]
    if descends.any():
        index = int(descends.argmax()) + 1
        message = f"partition {index} begins at {words[index, 0]}, not after the one before it, {words[index - 1, 0]}"
        raise invalid(message, offset=start + index * layout.PARTITION_BYTES, field="timestamp", path=path)
    partitions = PartitionRecords.from_words(words)
    fixed_rows = _sum(partitions.row_counts[:-1])
    if fixed_rows != record.fixed_row_count:
        message = f"the partitions but the last have {fixed_rows} rows, not fixed_row_count = {record.fixed_row_count}"
        offset = area.offset("fixed_row_count")
        raise invalid(message, offset=offset, field="fixed_row_count", path=path)
    if not count:
        return partitions
    row_counts = partitions.row_counts.copy()
    row_counts[-1] = record.transient_row_count
    return replace(partitions, row_counts=row_counts)


def _parse_left_behind(view: memoryview, area: _Area) -> LeftBehind | None:
    """Parse a publisher's record behind the area. One of another transaction is a leftover and ignored."""
    if area.stop + layout.LEFT_BEHIND.size > len(view):
        return None
    magic, txn, partition_count, row_count = layout.LEFT_BEHIND.unpack_from(view, area.stop)
    if (magic, txn) != (layout.LEFT_BEHIND_MAGIC, area.version):
        return None
    return LeftBehind(partition_count=partition_count, row_count=row_count)


def _sum(counts: npt.NDArray[np.int64]) -> int:
    """Add up row counts of 44 bits, of which a file of 2 GiB holds enough to overflow 64 bits."""
    half = layout.ROW_COUNT_BITS // 2
    return (int((counts >> half).sum()) << half) + int((counts & ((1 << half) - 1)).sum())


def _column_structure_version(metadata_version: int, stored: int) -> int:
    if stored == layout.SAME_COLUMN_STRUCTURE_VERSION:
        return metadata_version
    return 0 if stored == layout.ZERO_COLUMN_STRUCTURE_VERSION else stored


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
    """Return the following transaction, with other partitions.

    Row counts follow from the partitions; the versions that tell readers what to read again are incremented. There is
    no lag: the database reads its rows again from the write-ahead log.
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
    """Write a fresh `_txn` file that holds one transaction."""
    words = _words(transaction.partitions)
    symbols = np.zeros(len(transaction.symbol_counts), layout.SYMBOL_COUNT_DTYPE)
    try:
        symbols["committed"] = symbols["transient"] = transaction.symbol_counts
        record = _encode_record(transaction)
    except (InvalidInputError, OverflowError) as error:
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
    """Check the row count here, because the file would not show it: the last partition's stored rows are never read."""
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
    lower, upper = _stored_bounds(transaction.min_timestamp, transaction.max_timestamp)
    return layout.RECORD.pack(
        "the transaction",
        txn=transaction.txn,
        transient_row_count=transaction.transient_row_count,
        fixed_row_count=transaction.fixed_row_count,
        min_timestamp=lower,
        max_timestamp=upper,
        metadata_version=transaction.metadata_version,
        column_structure_version=_stored_structure_version(transaction),
        data_version=transaction.data_version,
        partition_table_version=transaction.partition_table_version,
        column_version=transaction.column_version,
        truncate_version=transaction.truncate_version,
        seq_txn=transaction.seq_txn,
        lag_checksum=checksum,
        lag_txn_count=lag.txn_count,
        lag_row_count=lag.row_count,
        lag_min_timestamp=lag_bounds[0],
        lag_max_timestamp=lag_bounds[1],
        stale=b"",
        symbol_count=len(transaction.symbol_counts),
    )


def _stored_bounds(lower: int | None, upper: int | None) -> tuple[int, int]:
    return (
        layout.NO_MIN_TIMESTAMP if lower is None else lower,
        layout.NO_MAX_TIMESTAMP if upper is None else upper,
    )


def _stored_structure_version(transaction: TableTransaction) -> int:
    if transaction.column_structure_version == transaction.metadata_version:
        return layout.SAME_COLUMN_STRUCTURE_VERSION
    return transaction.column_structure_version or layout.ZERO_COLUMN_STRUCTURE_VERSION
