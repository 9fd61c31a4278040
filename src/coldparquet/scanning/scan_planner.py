"""Planning a question about a table: which partitions, which row groups, which requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.prune import prune
from coldparquet.plan.read_plan import PlannedRequest, PrunedPartition, ReadPlan, RowGroupRead
from coldparquet.plan.statistics import IntervalStatistics
from coldparquet.scanning.closer_look import CloserLook, look_closer
from coldparquet.scanning.known_symbols import look_up_symbols
from coldparquet.scanning.late_reading import read_late
from coldparquet.scanning.native_partition import NativePlan
from coldparquet.scanning.parquet_draft import ParquetDraft, draft_parquet
from coldparquet.scanning.parquet_planner import plan_parquet
from coldparquet.scanning.partition_planner import look_into, plan_native

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.read_plan import MetadataRequest, PlannedRead
    from coldparquet.scanning.partition_plan import PartitionPlan
    from coldparquet.scanning.partition_planner import KnownPartition
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan, and what turns its bytes into rows."""

    question: Question
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`."""


class PlannedOnce:
    """The plan of one question, made when it is first asked for: the state of the table does not change, nor does the plan.

    Args:
        question: What is asked.
        executor: Where to plan.
    """

    def __init__(self, question: Question, executor: Executor) -> None:
        self._question = question
        self._executor = executor
        self._planning = asyncio.Lock()
        self._planned: PlannedScan | None = None

    async def get(self) -> PlannedScan:
        """Return the plan. Requests: those of :func:`plan_question`, the first time."""
        async with self._planning:
            if self._planned is None:
                self._planned = await plan_question(self._question, self._executor)
            return self._planned


async def plan_question(question: Question, executor: Executor) -> PlannedScan:
    """Plan a question.

    Requests: the metadata of the partitions that are left by their time ranges, all at once; none for those known. Where
    that leaves row groups undecided and more is worth a look, bloom filters and pages of all partitions, all at once (see
    :func:`coldparquet.scanning.closer_look.look_closer`). Of native partitions: the search for the rows of the time range,
    and the offsets and symbols of the columns needed. With a limit and no predicate, those of the first partition, then of
    twice as many, until there are enough rows. For ``symbols="global"`` the symbols of the table, see
    :func:`coldparquet.scanning.known_symbols.look_up_symbols`.
    """
    kept, pruned = prune_partitions(question)
    known, symbols = await both(_look_into(question, kept), look_up_symbols(question))
    question = replace(question, symbols=symbols)
    loop = asyncio.get_running_loop()
    drafts = await loop.run_in_executor(executor, _draft, question, known)
    looks = await gather_or_cancel([_look_closer(draft) for draft in drafts])
    beyond_limit = [PrunedPartition(name=partition.name, reason="limit") for partition in kept[len(drafts) :]]
    requests = _spent_on(question, known, looks)
    return await loop.run_in_executor(executor, _plan, question, drafts, looks, (*pruned, *beyond_limit), requests)


async def _look_into(question: Question, kept: Sequence[Partition]) -> list[KnownPartition]:
    """Read the metadata of all partitions at once; for the first rows of a table, of no more than hold them."""
    known: list[KnownPartition] = []
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


def _draft(question: Question, known: Sequence[KnownPartition]) -> list[ParquetDraft | KnownPartition]:
    """Prune the row groups of every partition by its sidecar; native ones have been looked into already."""
    drafts: list[ParquetDraft | KnownPartition] = []
    rows_left = question.limit
    for found in known:
        if rows_left is not None and rows_left <= 0:
            break
        if isinstance(found.known, NativePlan):
            drafts.append(found)
            rows_left = _rows_after(rows_left, found.known.reads)
            continue
        draft = draft_parquet(
            question,
            found.partition,
            found.known,
            index=len(drafts),
            rows_wanted=question.last_rows if rows_left is None else rows_left,
        )
        drafts.append(draft)
        rows_left = _rows_after(rows_left, draft.row_groups.reads)
    return drafts


def _rows_after(rows_left: int | None, reads: Sequence[PlannedRead]) -> int | None:
    """Return how many rows are still wanted behind some reads; None for all."""
    return None if rows_left is None else rows_left - sum(read.row_count for read in reads if read.all_rows_match)


async def _look_closer(draft: ParquetDraft | KnownPartition) -> CloserLook:
    return await look_closer(draft) if isinstance(draft, ParquetDraft) else CloserLook()


def prune_partitions(question: Question) -> tuple[list[Partition], list[PrunedPartition]]:
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
    drafts: Sequence[ParquetDraft | KnownPartition],
    looks: Sequence[CloserLook],
    pruned: tuple[PrunedPartition, ...],
    requests: tuple[MetadataRequest, ...],
) -> PlannedScan:
    plans: list[PartitionPlan] = []
    rows_left = question.limit
    for draft, look in zip(drafts, looks, strict=True):
        if isinstance(draft, ParquetDraft):
            plan = plan_parquet(draft, look, rows_left=rows_left)
        else:
            plan = plan_native(question, draft, rows_left=rows_left)
        plans.append(plan)
        rows_left = _rows_after(rows_left, plan.row_groups)
    plans = read_late(question, plans)
    row_groups = tuple(read for plan in plans for read in plan.row_groups)
    partitions = tuple(plan.planned for plan in plans)
    return PlannedScan(
        question=question,
        plan=ReadPlan(
            table=question.url,
            columns=tuple(column.name for column in question.output_columns),
            predicate=question.predicate_text,
            limit=question.limit,
            partitions_pruned=pruned,
            partitions=tuple(plan.read for plan in plans),
            row_groups=row_groups,
            requests=plan_requests_of(question, partitions, row_groups),
            metadata_requests=requests,
            snapshot=question.snapshot.source,
            notes=question.snapshot.notes,
            options=question.options,
        ),
        partitions=partitions,
    )


def plan_requests_of(
    question: Question, partitions: Sequence[PlannedPartition], reads: Sequence[PlannedRead]
) -> tuple[PlannedRequest, ...]:
    """Coalesce the ranges of reads, as the options' goal says; those of deferred columns as a second stage.

    Args:
        question: What is asked.
        partitions: The partitions of the plan.
        reads: Some of their reads, in the order of the plan.

    Returns:
        Requests in partition order and, within a partition, by stage and in file order.
    """
    coalescing = question.options.coalescing
    wanted_bytes = sum(read.bytes_wanted for read in reads)
    part_bytes = coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)
    requests: list[PlannedRequest] = []
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        of_partition = list(group)
        requests += partitions[index].requests(of_partition, coalescing, part_bytes=part_bytes)
        deferred = [
            read.deferred for read in of_partition if isinstance(read, RowGroupRead) and read.deferred is not None
        ]
        for read in deferred:  # what is left of it is requested by itself, once its predicate has been evaluated
            requests += partitions[index].requests([read], coalescing, part_bytes=part_bytes, stage=2)
    return tuple(requests)


def _spent_on(
    question: Question, known: Sequence[KnownPartition], looks: Sequence[CloserLook]
) -> tuple[MetadataRequest, ...]:
    """Return what making the plan has cost: opening the table, metadata, and what a closer look has fetched."""
    before = question.snapshot.requests
    of_partitions = [request for found in known for request in found.requests if request not in before]
    of_looks = [request for look in looks for request in look.requests]
    return (*before, *of_partitions, *question.symbols.requests, *of_looks)
