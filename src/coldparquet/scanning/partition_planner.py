"""Looking into one partition before it is planned, and planning those in QuestDB's native format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.concurrency import both
from coldparquet.errors import InternalError
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.native_read import NativeColumn, NativeSymbol
from coldparquet.plan.read_plan import PartitionRead
from coldparquet.plan.time_bounds import is_time_range, timestamp_bounds
from coldparquet.scanning.native_partition import NativePlan, plan_native_rows
from coldparquet.scanning.partition_plan import PartitionPlan
from coldparquet.scanning.planned_partition import PlannedNative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.table_metadata import MetadataColumn
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.question import Question

_NATIVE_ROWS_PER_READ = 262_144
"""Rows of a native partition that are fetched and decoded together: 2 MiB of a column of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """A partition, and what was fetched in order to plan it."""

    partition: Partition
    known: PartitionMetadata | NativePlan
    requests: tuple[MetadataRequest, ...]


async def look_into(question: Question, partition: Partition, index: int) -> KnownPartition:
    """Fetch what planning a partition needs: its metadata, or the places of its rows in native files.

    Requests: those of :meth:`coldparquet.catalog.partition.Partition.metadata`. If it sends any and not every row is wanted
    for certain, at the same time 1 for the partition's ``_pages``, if this is the first partition or others have them. For a native
    partition see :func:`coldparquet.scanning.native_partition.plan_native_rows`.

    Args:
        question: What is asked.
        partition: The partition.
        index: Its position in the plan.
    """
    if partition.format == "native":
        native = await _look_into_native(question, partition, index)
        return KnownPartition(partition=partition, known=native, requests=native.metadata_requests)
    spent: list[MetadataRequest] = []
    if not _are_pages_wanted(question, partition, index):
        metadata = await partition.metadata()
    else:
        page_files = question.snapshot.page_files
        metadata, _ = await both(partition.metadata(), page_files.look_up(partition.location, spent))
    return KnownPartition(partition=partition, known=metadata, requests=(*metadata.metadata_requests, *spent))


def _are_pages_wanted(question: Question, partition: Partition, index: int) -> bool:
    """Tell whether to fetch the ``_pages`` of a partition while its sidecar is on the way: it may be there, and of use."""
    page_files = question.snapshot.page_files
    may_be_there = index == 0 if page_files.table_has_files is None else page_files.table_has_files
    may_be_of_use = question.is_selective and question.options.page_index != "never"
    is_unread = partition.snapshot is None
    return is_unread and may_be_there and may_be_of_use and not _is_wanted_as_a_whole(question, partition)


def _is_wanted_as_a_whole(question: Question, partition: Partition) -> bool:
    """Tell whether the times that a partition stands for prove that every row of it is wanted."""
    snapshot, time_range_ns = question.snapshot, partition.time_range_ns
    timestamp = snapshot.designated_timestamp
    is_cut = question.limit is not None or question.last_rows is not None
    if is_cut or time_range_ns is None or timestamp is None or not is_time_range(question.predicate, timestamp):
        return False
    arrow_type = snapshot.columns[timestamp].readable_type.arrow
    unit_ns = NANOSECONDS_PER_UNIT[arrow_type.unit or "ns"]
    lower, upper = timestamp_bounds(question.predicate, timestamp)
    start_ns, stop_ns = time_range_ns
    begins_inside = lower is None or start_ns // unit_ns >= lower
    ends_inside = upper is None or (stop_ns - 1) // unit_ns <= upper
    return arrow_type.name == "timestamp" and begins_inside and ends_inside


async def _look_into_native(question: Question, partition: Partition, index: int) -> NativePlan:
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
        rows_per_read=_NATIVE_ROWS_PER_READ,
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
