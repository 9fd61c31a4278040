"""Planning partitions in QuestDB's native format: where the rows of a time range lie, and what is read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import InternalError
from coldparquet.format.native_layout import VariableLayout
from coldparquet.plan.native_read import NativeColumn, NativeSymbol
from coldparquet.plan.read_plan import PartitionRead
from coldparquet.plan.time_bounds import is_time_range, timestamp_bounds
from coldparquet.scanning.native_partition import NativePlan, plan_native_rows
from coldparquet.scanning.partition_plan import PartitionPlan
from coldparquet.scanning.planned_partition import PlannedNative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.table_metadata import MetadataColumn
    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.known_partition import KnownPartition
    from coldparquet.scanning.question import Question

_MOST_ROWS_PER_READ = 262_144
"""Rows of a native partition that are fetched and decoded together: 2 MiB of a column of 64 bits."""
_LEAST_ROWS_PER_READ = 8_192
_READS_IN_MEMORY = 4
"""So many reads should fit into the memory of a scan, as far as the columns have a fixed width."""


async def find_native_rows(question: Question, partition: Partition, index: int) -> NativePlan:
    """Find the places of a partition's rows in native files.

    Requests: see :func:`coldparquet.scanning.native_partition.plan_native_rows`.

    Args:
        question: What is asked.
        partition: The partition.
        index: Its position in the plan.
    """
    partition.check_flags()
    snapshot = question.snapshot
    if snapshot.symbol_dictionaries is None:
        raise InternalError("a native partition is only known from a transaction")
    timestamp = snapshot.designated_timestamp
    all_rows_match = question.predicate is None or is_time_range(question.predicate, timestamp)
    wanted = question.output_columns if all_rows_match else question.needed_columns
    native = _native_columns(question, partition, wanted)
    found_by = None if timestamp is None else _native_columns(question, partition, [snapshot.columns[timestamp]])[0]
    return await plan_native_rows(
        snapshot.store,
        directory_path=partition.directory_path,
        partition_index=index,
        row_count=partition.rows or 0,
        columns=native,
        timestamp=found_by,
        time_bounds=timestamp_bounds(question.predicate, timestamp),
        rows_per_read=_rows_per_read(native, question.options.memory_limit_bytes),
        all_rows_match=all_rows_match,
        limit=question.limit,
        symbols=snapshot.symbol_dictionaries,
    )


def plan_native(question: Question, found: KnownPartition, *, rows_left: int | None) -> PartitionPlan:
    """Plan a native partition that was looked into. No request is sent.

    Args:
        question: What is asked.
        found: The partition.
        rows_left: How many rows are still wanted of this and later partitions; None for all.
    """
    partition, known = found.partition, found.known
    if not isinstance(known, NativePlan):
        raise InternalError("a Parquet partition is planned as a native one")
    reads = []
    for read in known.reads:
        if rows_left is not None and rows_left <= 0:
            break
        reads.append(read)
        if rows_left is not None and read.all_rows_match:
            rows_left -= read.row_count
    columns = {column.index: column for column in _native_columns(question, partition, question.needed_columns)}
    return PartitionPlan(
        read=PartitionRead(
            name=partition.name,
            data_path=partition.directory_path,
            parquet_size_bytes=None,
            metadata_source="native",
            row_groups_total=0,
            row_groups_read=0,
            rows_total=partition.rows or 0,
            rows_read=sum(read.row_count for read in reads),
        ),
        row_groups=tuple(reads),
        planned=PlannedNative(
            directory_path=partition.directory_path, columns=columns, dictionaries=known.dictionaries
        ),
        estimate=None,
    )


def _rows_per_read(columns: Sequence[NativeColumn], memory_limit_bytes: int) -> int:
    """Choose how many rows are fetched and decoded together; how long texts are, nobody knows yet."""
    row_bytes = sum(
        layout.entry_bytes if isinstance(layout := column.layout, VariableLayout) else layout.width_bytes
        for column in columns
    )
    fitting = memory_limit_bytes // (_READS_IN_MEMORY * max(row_bytes, 1))
    return max(_LEAST_ROWS_PER_READ, min(fitting, _MOST_ROWS_PER_READ))


def _native_columns(question: Question, partition: Partition, columns: Sequence[TableColumn]) -> list[NativeColumn]:
    """Say how the files of columns are named in a native partition, and where their rows begin."""
    files, record = question.snapshot.files, partition.location.record
    if files is None or record is None:
        raise InternalError("a native partition is only known from a transaction")
    by_id: Mapping[int, MetadataColumn] = {column.writer_index: column for column in files.metadata.columns}
    return [_native_column(column, by_id[column.id], files, record.timestamp) for column in columns]


def _native_column(
    column: TableColumn, described: MetadataColumn, files: TableFiles, partition_timestamp: int
) -> NativeColumn:
    versions, symbol = files.column_versions, None
    if versions is None:
        raise InternalError("column versions are read for every table with native partitions")
    version = versions.column(partition_timestamp, described.writer_index)
    if described.symbol_index is not None:
        symbol = NativeSymbol(
            count=files.transaction.symbol_counts[described.symbol_index],
            name_txn=versions.symbol_name_txn(described.writer_index),
        )
    return NativeColumn(
        index=column.index,
        name=column.name,
        type=column.readable_type,
        name_txn=version.name_txn,
        top=version.top,
        symbol=symbol,
    )
