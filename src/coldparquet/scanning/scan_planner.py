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
from coldparquet.plan.prune import prune
from coldparquet.plan.read_plan import PartitionRead, PlannedRequest, PrunedPartition, ReadPlan
from coldparquet.plan.statistics import IntervalStatistics
from coldparquet.scanning.partition_planner import look_into, plan_partition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.plan.read_plan import MetadataRequest, PlannedRead
    from coldparquet.scanning.native_partition import NativePlan
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan, and what turns its bytes into rows."""

    question: Question
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`."""


async def plan_question(question: Question, executor: Executor) -> PlannedScan:
    """Plan a question.

    Requests: the metadata of the partitions that are left by their time ranges, all at once; none for those known. Of
    native partitions: the search for the rows of the time range, and the offsets and symbols of the columns needed. With
    a limit and no predicate, those of the first partition, then of twice as many, until there are enough rows.
    """
    kept, pruned = _prune_partitions(question)
    known = await _look_into(question, kept)
    return await asyncio.get_running_loop().run_in_executor(executor, _plan, question, kept, pruned, known)


async def _look_into(question: Question, kept: Sequence[Partition]) -> list[PartitionMetadata | NativePlan]:
    """Read the metadata of all partitions at once; for the first rows of a table, of no more than hold them."""
    known: list[PartitionMetadata | NativePlan] = []
    is_preview = question.limit is not None and question.predicate is None
    rows = 0
    while len(known) < len(kept):
        if is_preview and rows >= (question.limit or 0):
            break
        start, stop = len(known), max(1, 2 * len(known)) if is_preview else len(kept)
        known += await gather_or_cancel(
            [look_into(question, partition, start + index) for index, partition in enumerate(kept[start:stop])]
        )
        rows += sum(partition.rows or 0 for partition in kept[start:stop])
    return known


def _prune_partitions(question: Question) -> tuple[list[Partition], list[PrunedPartition]]:
    """Drop the partitions whose time range already proves that no row matches."""
    snapshot, predicate = question.snapshot, question.predicate
    partitions, timestamp = snapshot.partitions, snapshot.designated_timestamp
    type_ = None if timestamp is None else snapshot.columns[timestamp].type
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
    known: Sequence[PartitionMetadata | NativePlan],
) -> PlannedScan:
    reads: list[PartitionRead] = []
    row_groups: list[PlannedRead] = []
    planned: list[PlannedPartition] = []
    beyond_limit = [PrunedPartition(name=partition.name, reason="limit") for partition in kept[len(known) :]]
    rows_left = question.limit
    for partition, found in zip(kept, known, strict=False):
        if rows_left is not None and rows_left <= 0:
            beyond_limit.append(PrunedPartition(name=partition.name, reason="limit"))
            continue
        one = plan_partition(question, partition, found, index=len(reads)).within_limit(rows_left)
        if rows_left is not None:
            rows_left -= sum(row_group.row_count for row_group in one.row_groups if row_group.all_rows_match)
        reads.append(one.read)
        row_groups += one.row_groups
        planned.append(one.planned)
    plan = ReadPlan(
        table=question.url,
        columns=tuple(column.name for column in question.output_columns),
        predicate=question.predicate_text,
        limit=question.limit,
        partitions_pruned=(*pruned, *beyond_limit),
        partitions=tuple(reads),
        row_groups=tuple(row_groups),
        requests=_requests(question, planned, row_groups),
        metadata_requests=(*question.snapshot.requests, *_spent_on(question, known)),
        snapshot=question.snapshot.source,
        notes=question.snapshot.notes,
        options=question.options,
    )
    return PlannedScan(question=question, plan=plan, partitions=tuple(planned))


def _requests(
    question: Question, partitions: Sequence[PlannedPartition], row_groups: Sequence[PlannedRead]
) -> tuple[PlannedRequest, ...]:
    """Coalesce the chunks of each partition, as the options' goal says."""
    coalescing = question.options.coalescing
    wanted_bytes = sum(read.bytes_wanted for read in row_groups)
    part_bytes = coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)
    requests: list[PlannedRequest] = []
    for index, of_partition in groupby(row_groups, key=attrgetter("partition_index")):
        requests += partitions[index].requests(list(of_partition), coalescing, part_bytes=part_bytes)
    return tuple(requests)


def _spent_on(question: Question, known: Sequence[PartitionMetadata | NativePlan]) -> list[MetadataRequest]:
    """Return the metadata requests that opening the table had not already spent."""
    before = question.snapshot.requests
    return [request for found in known for request in found.metadata_requests if request not in before]


def only_undecided(planned: PlannedScan) -> PlannedScan:
    """Leave out of a plan the row groups whose rows all match: counting them needs no data."""
    plan = planned.plan
    undecided = tuple(read for read in plan.row_groups if not read.all_rows_match)
    return replace(planned, plan=replace(plan, row_groups=undecided))
