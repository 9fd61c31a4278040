"""Planning one partition: in Parquet from its sidecar or footer, native from the table's own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, InternalError
from coldparquet.plan.native_read import NativeColumn, NativeSymbol
from coldparquet.plan.partition_plan import plan_row_groups
from coldparquet.plan.projection import match_columns
from coldparquet.plan.read_plan import PartitionRead, RowGroupsDropped
from coldparquet.plan.stated_times import misplaced_times
from coldparquet.plan.time_bounds import is_time_range, timestamp_bounds
from coldparquet.scanning.native_partition import NativePlan, plan_native_rows
from coldparquet.scanning.planned_partition import PlannedNative, PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import MetadataColumn
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import PlannedRead
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question

_NATIVE_ROWS_PER_READ = 262_144
"""Rows of a native partition that are fetched and decoded together: 2 MiB of a column of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """What planning one partition brings."""

    read: PartitionRead
    row_groups: tuple[PlannedRead, ...]
    planned: PlannedPartition

    def within_limit(self, rows_left: int | None) -> PartitionPlan:
        """Leave out the row groups behind those that certainly hold as many rows as are still wanted."""
        if rows_left is None:
            return self
        kept = []
        for row_group in self.row_groups:
            if rows_left <= 0:
                break
            kept.append(row_group)
            rows_left -= row_group.row_count if row_group.all_rows_match else 0
        read = replace(self.read, row_groups_read=len(kept), rows_read=sum(read.row_count for read in kept))
        return replace(self, row_groups=tuple(kept), read=read)


async def look_into(question: Question, partition: Partition, index: int) -> PartitionMetadata | NativePlan:
    """Fetch what planning a partition needs: its metadata, or the places of its rows in native files.

    Args:
        question: What is asked.
        partition: The partition.
        index: Its position in the plan.
    """
    if partition.format == "parquet":
        return await partition.metadata()
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


def plan_partition(
    question: Question, partition: Partition, known: PartitionMetadata | NativePlan, *, index: int
) -> PartitionPlan:
    """Plan one partition. No request is sent.

    Raises:
        FormatError: The partition is damaged, or the question is about times and its rows are of other times than its
            directory stands for (kind ``TimeRangeMismatch``).
        UnsupportedError: It holds a column with a type that does not become the table's.
    """
    if isinstance(known, NativePlan):
        return _plan_native(question, partition, known)
    return _plan_parquet(question, partition, known, index=index)


def _plan_native(question: Question, partition: Partition, known: NativePlan) -> PartitionPlan:
    read = PartitionRead(
        name=partition.name,
        data_path=partition.directory_path,
        parquet_size_bytes=None,
        metadata_source="native",
        row_groups_total=0,
        row_groups_read=0,
        rows_total=partition.rows or 0,
        rows_read=sum(read.row_count for read in known.reads),
    )
    columns = {column.index: column for column in _native_columns(question, partition, question.needed_columns)}
    planned = PlannedNative(directory_path=partition.directory_path, columns=columns, dictionaries=known.dictionaries)
    return PartitionPlan(read=read, row_groups=known.reads, planned=planned)


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


def _plan_parquet(question: Question, partition: Partition, known: PartitionMetadata, *, index: int) -> PartitionPlan:
    """Plan one partition in Parquet from its sidecar."""
    sidecar = known.sidecar
    places = match_columns(question.needed_columns, sidecar)
    _check_times(question, partition, sidecar, places)
    output_places = [place for column in question.output_columns if (place := places[column.index]) is not None]
    pruned = plan_row_groups(
        sidecar,
        partition_index=index,
        output_columns=output_places,
        predicate=question.predicate,
        predicate_columns={column.index: places[column.index] for column in question.predicate_columns},
    )
    absent = tuple(column.name for column in question.output_columns if places[column.index] is None)
    made = set.intersection(*(set(read.made_columns) for read in pruned.reads)) if pruned.reads else set()
    read = PartitionRead(
        name=partition.name,
        data_path=partition.data_path,
        parquet_size_bytes=sidecar.parquet_size_bytes,
        metadata_source=known.source,
        row_groups_total=sidecar.row_group_count,
        row_groups_read=len(pruned.reads),
        rows_total=sidecar.total_rows,
        rows_read=sum(read.row_count for read in pruned.reads),
        dropped=tuple(
            RowGroupsDropped(reason=reason, row_groups=count)
            for reason, count in (pruned.report.dropped if pruned.report else ())
        ),
        made_columns=(*absent, *(sidecar.column(column).name for column in sorted(made))),
        notes=known.notes,
    )
    planned = PlannedParquet(sidecar=sidecar, data_path=partition.data_path, may_grow=partition.may_grow, places=places)
    return PartitionPlan(read=read, row_groups=pruned.reads, planned=planned)


def _check_times(question: Question, partition: Partition, sidecar: Sidecar, places: Mapping[int, int | None]) -> None:
    """Refuse a partition that is not where its rows belong, if partitions were left out by the times of directories."""
    timestamp, promised = question.snapshot.designated_timestamp, partition.time_range_ns
    if promised is None or all(column.index != timestamp for column in question.predicate_columns):
        return
    place = None if timestamp is None else places[timestamp]
    found = None if place is None else misplaced_times(sidecar, place, promised)
    if found is not None:
        raise FormatError(
            f"its rows are of {found}, outside of the times that the directory's name and the table's _txn give it, so that"
            " questions about times would miss rows; 'coldparquet verify' lists all such partitions: give them the names"
            " of their times, or copy the table again",
            kind="TimeRangeMismatch",
            path=partition.directory_path,
            field="timestamp",
        )
