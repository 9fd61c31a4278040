"""Planning a question about a table: which partitions, which row groups, which requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.concurrency import gather_or_cancel
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.partition_plan import plan_row_groups
from coldparquet.plan.projection import match_columns
from coldparquet.plan.prune import prune
from coldparquet.plan.read_plan import (
    PartitionRead,
    PlannedRequest,
    PrunedPartition,
    ReadPlan,
    RowGroupRead,
    RowGroupsDropped,
    plan_requests,
)
from coldparquet.plan.statistics import IntervalStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.partition import Partition, PartitionMetadata
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import MetadataRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked of which table: everything that planning needs, and nothing that can fetch data."""

    url: str
    options: ReadOptions
    partitions: tuple[Partition, ...]
    table_columns: tuple[TableColumn, ...]
    designated_timestamp: int | None
    """Index of the designated timestamp among the table's columns."""
    output_columns: tuple[TableColumn, ...]
    """Columns of the result; none where only the number of rows is wanted."""
    predicate_text: str | None
    predicate: BoundPredicate | None
    limit: int | None
    open_requests: tuple[MetadataRequest, ...]
    """What opening the table has cost: finding the partitions, and the metadata of the newest one in Parquet."""
    notes: tuple[str, ...]

    @property
    def needed_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result and of the predicate, each once."""
        fields = () if self.predicate is None else self.predicate.fields()
        return tuple(dict.fromkeys((*self.output_columns, *(self.table_columns[field.index] for field in fields))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """What decoding needs to know about one partition of a plan."""

    sidecar: Sidecar
    data_path: str
    places: Mapping[int, int | None]
    """By index in the table: where each column that the question needs is in the sidecar, None where it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan, and what turns its bytes into rows."""

    question: Question
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`."""


async def plan_question(question: Question, executor: Executor) -> PlannedScan:
    """Plan a question.

    Requests: the metadata of the partitions that are left by their time ranges, all at once; none for those known.
    """
    kept, pruned = _prune_partitions(question)
    metadata = await _metadata_of(question, kept)
    return await asyncio.get_running_loop().run_in_executor(executor, _plan, question, kept, pruned, metadata)


async def _metadata_of(question: Question, kept: Sequence[Partition]) -> list[PartitionMetadata]:
    """Read the metadata of all partitions at once; for the first rows of a table, of no more than hold them."""
    known: list[PartitionMetadata] = []
    is_preview = question.limit is not None and question.predicate is None
    while len(known) < len(kept):
        if is_preview and sum(metadata.sidecar.total_rows for metadata in known) >= (question.limit or 0):
            break
        stop = max(1, 2 * len(known)) if is_preview else len(kept)
        known += await gather_or_cancel([partition.metadata() for partition in kept[len(known) : stop]])
    return known


def _prune_partitions(question: Question) -> tuple[list[Partition], list[PrunedPartition]]:
    """Drop the partitions whose directory name already proves that no row matches."""
    partitions, predicate, timestamp = question.partitions, question.predicate, question.designated_timestamp
    type_ = None if timestamp is None else question.table_columns[timestamp].type
    # A damaged sidecar may name any column; directory names bound timestamps only.
    if predicate is None or timestamp is None or type_ is None or type_.arrow.name != "timestamp":
        return list(partitions), []
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    ranges = [partition.time_range_ns for partition in partitions]
    stated = [time_range or (0, 0) for time_range in ranges]
    statistics = IntervalStatistics(
        column=timestamp,
        lower=_bounds([start // unit_ns for start, _ in stated]),
        upper=_bounds([(stop - 1) // unit_ns for _, stop in stated]),
        known=np.array([known is not None for known in ranges], dtype=bool),
    )
    verdict, _ = prune(predicate, statistics, len(partitions))
    kept = [partition for partition, may_match in zip(partitions, verdict.survives, strict=True) if may_match]
    reason = "time range"
    pruned = [
        PrunedPartition(name=partition.name, reason=reason)
        for partition, may_match in zip(partitions, verdict.survives, strict=True)
        if not may_match
    ]
    return kept, pruned


def _bounds(values: Sequence[int]) -> npt.NDArray[np.int64]:
    """Bound timestamps of 64 bits by numbers of any size: the first partition of a table has no begin."""
    limits = np.iinfo(np.int64)
    return np.array([min(max(value, limits.min), limits.max) for value in values], dtype=np.int64)


def _plan(
    question: Question,
    kept: Sequence[Partition],
    pruned: Sequence[PrunedPartition],
    metadata: Sequence[PartitionMetadata],
) -> PlannedScan:
    reads: list[PartitionRead] = []
    row_groups: list[RowGroupRead] = []
    planned: list[PlannedPartition] = []
    beyond_limit = [PrunedPartition(name=partition.name, reason="limit") for partition in kept[len(metadata) :]]
    rows_left = question.limit
    needed = question.needed_columns
    for partition, known in zip(kept, metadata, strict=False):
        if rows_left is not None and rows_left <= 0:
            beyond_limit.append(PrunedPartition(name=partition.name, reason="limit"))
            continue
        places = match_columns(needed, known.sidecar)
        read, of_partition = _plan_partition(question, partition, known, places, index=len(reads), rows_left=rows_left)
        if rows_left is not None:
            rows_left -= sum(row_group.row_count for row_group in of_partition if row_group.all_rows_match)
        reads.append(read)
        row_groups += of_partition
        planned.append(PlannedPartition(sidecar=known.sidecar, data_path=partition.data_path, places=places))
    plan = ReadPlan(
        table=question.url,
        columns=tuple(column.name for column in question.output_columns),
        predicate=question.predicate_text,
        limit=question.limit,
        partitions_pruned=(*pruned, *beyond_limit),
        partitions=tuple(reads),
        row_groups=tuple(row_groups),
        requests=_requests(question, planned, row_groups),
        metadata_requests=(*question.open_requests, *_spent_on(question, metadata)),
        options=question.options,
    )
    return PlannedScan(question=question, plan=plan, partitions=tuple(planned))


def _requests(
    question: Question, partitions: Sequence[PlannedPartition], row_groups: Sequence[RowGroupRead]
) -> tuple[PlannedRequest, ...]:
    """Coalesce the chunks of each partition, as the options' goal says."""
    coalescing = question.options.coalescing
    wanted_bytes = sum(read.bytes_wanted for read in row_groups)
    part_bytes = coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)
    requests: list[PlannedRequest] = []
    for index, of_partition in groupby(row_groups, key=attrgetter("partition_index")):
        partition, reads = partitions[index], list(of_partition)
        fetched = {column for read in reads for column in read.columns}
        requests += plan_requests(
            reads,
            path=partition.data_path,
            column_names={column: partition.sidecar.column(column).name for column in fetched},
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
            part_bytes=part_bytes,
        )
    return tuple(requests)


def _spent_on(question: Question, metadata: Sequence[PartitionMetadata]) -> list[MetadataRequest]:
    """Return the metadata requests that opening the table had not already spent."""
    return [request for known in metadata for request in known.requests if request not in question.open_requests]


def _plan_partition(  # noqa: PLR0913 - the parts of one partition's plan
    question: Question,
    partition: Partition,
    known: PartitionMetadata,
    places: Mapping[int, int | None],
    *,
    index: int,
    rows_left: int | None,
) -> tuple[PartitionRead, list[RowGroupRead]]:
    sidecar = known.sidecar
    fields = question.predicate.fields() if question.predicate is not None else ()
    output_places = [place for column in question.output_columns if (place := places[column.index]) is not None]
    pruned = plan_row_groups(
        sidecar,
        partition_index=index,
        output_columns=output_places,
        predicate=question.predicate,
        predicate_columns={field.index: places[field.index] for field in fields},
    )
    row_groups = _within_limit(pruned.reads, rows_left)
    absent = tuple(column.name for column in question.output_columns if places[column.index] is None)
    made = set.intersection(*(set(read.made_columns) for read in row_groups)) if row_groups else set()
    read = PartitionRead(
        name=partition.name,
        data_path=partition.data_path,
        parquet_size_bytes=sidecar.parquet_size_bytes,
        metadata_source=known.source,
        row_groups_total=sidecar.row_group_count,
        row_groups_read=len(row_groups),
        rows_total=sidecar.total_rows,
        rows_read=sum(read.row_count for read in row_groups),
        dropped=tuple(
            RowGroupsDropped(reason=reason, row_groups=count)
            for reason, count in (pruned.report.dropped if pruned.report else ())
        ),
        made_columns=(*absent, *(sidecar.column(column).name for column in sorted(made))),
        notes=question.notes if index == 0 else (),
    )
    return read, row_groups


def _within_limit(reads: Sequence[RowGroupRead], rows_left: int | None) -> list[RowGroupRead]:
    """Leave out the row groups behind those that certainly hold as many rows as are still wanted."""
    if rows_left is None:
        return list(reads)
    kept = []
    for read in reads:
        if rows_left <= 0:
            break
        kept.append(read)
        rows_left -= read.row_count if read.all_rows_match else 0
    return kept


def only_undecided(planned: PlannedScan) -> PlannedScan:
    """Leave out of a plan the row groups whose rows all match: counting them needs no data."""
    plan = planned.plan
    undecided = tuple(read for read in plan.row_groups if not read.all_rows_match)
    return replace(planned, plan=replace(plan, row_groups=undecided))
