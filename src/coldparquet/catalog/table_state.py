"""How much of a table has been handed over: which rows of which version of which partition.

Whoever follows a table keeps such a state between two looks at it, and over restarts
(:mod:`coldparquet.catalog.state_text` writes it small). A state also describes the table as it lies there: all rows of every
partition. Only partitions in Parquet count; a native one comes into it once the database has converted it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.format.partition_intervals import PartitionInterval, partition_floor_ns
from coldparquet.format.partition_names import recorded_directory_name

if TYPE_CHECKING:
    from coldparquet.catalog.table_files import TableFiles

_MICROSECOND_NS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One version of a partition, or of one piece of a partition that was split, and how much of it was handed over."""

    timestamp: int
    """Begin of the partition or of the piece, in the unit of the table; it names the partition."""
    name_txn: int
    """Version in the name of the directory, or -1 without one."""
    parquet_size_bytes: int
    """Size of `data.parquet` in this version; -1 where the transaction does not state it."""
    row_count: int
    """Rows of this version."""
    object_version: int = 0
    """Digest of the ETag, where no transaction names the version; else 0."""
    delivered_rows: int = 0
    """So many rows were handed over: the first ones of this version."""
    epoch: int = 0
    """How often the partition was rewritten after rows of it had been handed over, and that was accepted."""
    epoch_first_row: int = 0
    """Where handing over began after the last time: at row 0 to read it again, or behind its last row to leave it out."""

    @property
    def version(self) -> tuple[int, int, int, int]:
        """What differs between two versions of a partition."""
        return self.name_txn, self.parquet_size_bytes, self.row_count, self.object_version

    @property
    def rows_left(self) -> int:
        """Rows that were not handed over yet."""
        return self.row_count - self.delivered_rows

    def all_delivered(self) -> PartitionState:
        """Return the state after all rows of this version were handed over."""
        return self if not self.rows_left else replace(self, delivered_rows=self.row_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """Partitions of one table, with how much of each was handed over."""

    table_id: int
    """QuestDB's number of the table; -1 without a `_txn`."""
    txn: int
    """Transaction in which the partitions were seen; 0 without a `_txn`."""
    interval: PartitionInterval | None
    """How the table is partitioned; None where nobody says so."""
    is_nanosecond: bool
    """Whether the unit of times is the nanosecond, not the microsecond."""
    generation: int = 0
    """How often handing over began anew because another table lay there."""
    partitions: tuple[PartitionState, ...]
    """In time order, each of another time."""
    native_timestamps: frozenset[int] = frozenset()
    """Begins of the partitions that are in QuestDB's native format, of which nothing is handed over."""

    @property
    def delivered_rows(self) -> int:
        """Rows that were handed over of the partitions that are there."""
        return sum(partition.delivered_rows for partition in self.partitions)

    def partition_of(self, timestamp: int) -> int:
        """Return the begin of the partition that a piece belongs to: pieces of one partition share it."""
        if self.interval is None:
            return timestamp
        unit_ns = 1 if self.is_nanosecond else _MICROSECOND_NS
        return partition_floor_ns(timestamp * unit_ns, self.interval) // unit_ns

    def name_of(self, partition: PartitionState) -> str:
        """Return the directory name of a partition; only its begin where nobody says how the table is partitioned."""
        if self.interval is None:
            return str(partition.timestamp)
        return recorded_directory_name(
            partition.timestamp, self.interval, name_txn=partition.name_txn, is_nanosecond=self.is_nanosecond
        )

    def with_nothing_delivered(self) -> TableState:
        """Return the state before anything of the table was handed over."""
        return replace(self, partitions=())

    def with_all_delivered(self) -> TableState:
        """Return the state after everything that is there was handed over."""
        return replace(self, partitions=tuple(partition.all_delivered() for partition in self.partitions))


def recorded_state(files: TableFiles) -> TableState:
    """Describe a table as its transaction says; nothing of it is handed over yet. No request."""
    records, metadata, transaction = files.records, files.metadata, files.transaction
    partitions = tuple(
        PartitionState(
            timestamp=timestamp, name_txn=name_txn, parquet_size_bytes=parquet_size_bytes, row_count=row_count
        )
        for timestamp, name_txn, parquet_size_bytes, row_count, is_parquet in zip(
            records.timestamps.tolist(),
            records.name_txns.tolist(),
            records.parquet_sizes.tolist(),
            records.row_counts.tolist(),
            records.is_parquet.tolist(),
            strict=True,
        )
        if is_parquet
    )
    return TableState(
        table_id=metadata.table_id,
        txn=transaction.txn,
        interval=metadata.interval,
        is_nanosecond=metadata.is_nanosecond,
        partitions=partitions,
        native_timestamps=frozenset(records.timestamps[~records.is_parquet].tolist()),
    )
