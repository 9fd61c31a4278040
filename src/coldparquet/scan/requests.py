"""Turns the reads of a plan into requests, coalesced by the goal, the prices and the speed of the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.native import FixedLayout
from coldparquet.plan.coalescing import may_widen, widened
from coldparquet.plan.model import ReadPlan, RowGroupRead, bytes_wanted_by
from coldparquet.plan.native import NativeRead, RowSlices, native_reads
from coldparquet.plan.reads import first_rows, last_rows
from coldparquet.plan.requests import ReadRanges, plan_requests
from coldparquet.scan.planned import PlannedNative, PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import Coalescing
    from coldparquet.plan.model import PartitionRead, PlannedRead, PlannedRequest
    from coldparquet.plan.requests import ReadsOfObject
    from coldparquet.scan.model import Question
    from coldparquet.scan.planned import PlannedPartition


def cut_read(
    read: PlannedRead, partition: PlannedPartition, count: int, *, from_end: bool, coalescing: Coalescing
) -> PlannedRead:
    """Return a read of the last, or the first, rows of another one."""
    if isinstance(read, RowGroupRead) and isinstance(partition, PlannedParquet):
        cut = last_rows if from_end else first_rows
        return cut(read, count, pages=partition.pages, least_saving_bytes=max(coalescing.gap_bytes, 1))
    if isinstance(read, NativeRead) and isinstance(partition, PlannedNative):
        return _cut_native(read, partition, count, from_end=from_end)
    return read


def _cut_native(read: NativeRead, partition: PlannedNative, count: int, *, from_end: bool) -> NativeRead:
    columns = [partition.columns[index] for index in (*read.columns, *read.made_columns)]
    if not all(isinstance(column.layout, FixedLayout) for column in columns):
        return read
    first_row = read.first_row + (read.row_count - count if from_end else 0)
    rows = RowSlices(
        first_rows=np.array([first_row], dtype=np.int64), stop_rows=np.array([first_row + count], dtype=np.int64)
    )
    [cut] = native_reads(
        rows,
        columns,
        directory_path=partition.directory_path,
        partition_index=read.partition_index,
        data_ranges={},
        all_rows_match=read.all_rows_match,
    )
    return replace(cut, row_group=read.row_group)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequests:
    """The requests of a plan, and how they were coalesced."""

    requests: tuple[PlannedRequest, ...]
    """In partition order and, within a partition, by stage and in file order."""
    coalescings: tuple[Coalescing, ...]
    """How the ranges of the first stage became requests, one for each partition."""


def plan_requests_of(
    question: Question,
    partitions: Sequence[PlannedPartition],
    described: Sequence[PartitionRead],
    reads: Sequence[PlannedRead],
) -> PlannedRequests:
    """Coalesce the ranges of reads by the options' goal; deferred columns become a second stage."""
    wanted_bytes = bytes_wanted_by(reads)
    coalescings = _coalescings(question, described, reads, wanted_bytes)
    part_bytes = part_bytes_of(question, wanted_bytes)
    stages = RequestStages(late_part_bytes=part_bytes)
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        coalescing = coalescings[index]
        stages.add(
            partitions[index],
            list(group),
            coalescing=coalescing,
            part_bytes=coalescing.part_bytes(wanted_bytes, question.options.max_concurrency),
            late_coalescing=question.coalescing_of(described[index].data_path),
        )
    return PlannedRequests(requests=stages.requests(), coalescings=coalescings)


class RequestStages:
    """The requests of both stages for reads of many partitions. All that are coalesced alike are planned together.

    Args:
        late_part_bytes: Approximate length of the requests of deferred columns.
    """

    def __init__(self, *, late_part_bytes: int) -> None:
        self._late_part_bytes = late_part_bytes
        self._alike: dict[tuple[int, Coalescing, int], list[ReadsOfObject]] = {}
        """By stage, coalescing and length of the parts: reads of Parquet files."""
        self._of_native: list[PlannedRequest] = []

    def add(
        self,
        partition: PlannedPartition,
        reads: Sequence[PlannedRead],
        *,
        coalescing: Coalescing,
        part_bytes: int,
        late_coalescing: Coalescing,
    ) -> None:
        """Take some reads of one partition."""
        if not isinstance(partition, PlannedParquet):
            self._of_native += partition.requests(reads, coalescing, part_bytes=part_bytes)
            return
        self._alike.setdefault((1, coalescing, part_bytes), []).append(partition.reads_of_object(reads))
        for read in reads:
            # Once the predicate is evaluated, what it leaves is requested separately. The gaps are those for few
            # requests, because only little may be left.
            if isinstance(read, RowGroupRead) and read.deferred is not None:
                late = self._alike.setdefault((2, late_coalescing, self._late_part_bytes), [])
                late.append(partition.reads_of_object([read.deferred]))

    def requests(self) -> tuple[PlannedRequest, ...]:
        """Return the requests of all partitions in turn; within a partition by stage and in file order."""
        found = list(self._of_native)
        for (stage, coalescing, part_bytes), objects in self._alike.items():
            found += plan_requests(
                objects,
                gap_bytes=coalescing.gap_bytes,
                max_request_bytes=coalescing.max_request_bytes,
                part_bytes=part_bytes,
                stage=stage,
            )
        return tuple(sorted(found, key=attrgetter("partition_index", "stage")))


def part_bytes_of(question: Question, wanted_bytes: int) -> int:
    """Return the length of second-stage requests that uses all connections."""
    return question.coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)


def with_reads(planned: PlannedScan, reads: Sequence[PlannedRead]) -> PlannedScan:
    """Return a plan that executes only these reads, and fetches nothing else."""
    plan = planned.plan
    found = plan_requests_of(planned.question, planned.partitions, plan.partitions, reads)
    return replace(
        planned,
        plan=replace(plan, row_groups=tuple(reads), requests=found.requests, coalescings=found.coalescings),
    )


def for_new_connections(planned: PlannedScan) -> PlannedScan:
    """Return a plan with the same reads, and with requests for a process without open connections."""
    question, plan = planned.question, planned.plan
    if not may_widen(question.options, question.speed) or len(plan.requests) > question.speed.connections:
        return planned  # nothing would change
    speed = replace(question.speed, are_connections_new=True)
    alike = replace(planned, question=replace(question, speed=speed), plan=replace(plan, speed=speed))
    return with_reads(alike, plan.row_groups)


def _coalescings(
    question: Question, described: Sequence[PartitionRead], reads: Sequence[PlannedRead], wanted_bytes: int
) -> tuple[Coalescing, ...]:
    """Choose each partition's coalescing by its storage class; decide for all together whether requests would queue."""
    if question.options.goal == "cheap":
        return tuple(question.coalescing_of(partition.data_path) for partition in described)
    chosen = question.coalescing
    ranges = ReadRanges.of(reads) if may_widen(question.options, question.speed) else None
    if ranges is not None:
        chosen = widened(chosen, ranges, wanted_bytes=wanted_bytes, options=question.options, speed=question.speed)
    return (chosen,) * len(described)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan, and what decodes its bytes into rows."""

    question: Question
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`."""
    warnings: tuple[str, ...]
    """Those of its notes that a caller should see even without asking for the plan."""

    @property
    def late_part_bytes(self) -> int:
        """Approximate length of the requests of a second stage."""
        return part_bytes_of(self.question, self.plan.bytes_wanted)
