"""From the reads of a plan to its requests: coalesced by the goal, the prices and the speed of the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from coldparquet.plan.coalescing_choice import may_widen, widened
from coldparquet.plan.planned_requests import plan_requests
from coldparquet.plan.read_plan import RowGroupRead, bytes_wanted_by
from coldparquet.plan.read_ranges import ReadRanges
from coldparquet.scanning.planned_partition import PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import Coalescing
    from coldparquet.plan.planned_requests import ReadsOfObject
    from coldparquet.plan.read_plan import PartitionRead, PlannedRead, PlannedRequest
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.scan_planner import PlannedScan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequests:
    """The requests of a plan, and how they were made."""

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
    """Coalesce the ranges of reads, as the options' goal says; those of deferred columns as a second stage.

    Args:
        question: What is asked.
        partitions: The partitions of the plan.
        described: What the plan says of them.
        reads: Some of their reads, in the order of the plan.
    """
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
    """The requests of both stages for reads of many partitions: all that are coalesced alike are planned at once.

    Args:
        late_part_bytes: About how long the requests of deferred columns should be at the end.
    """

    def __init__(self, *, late_part_bytes: int) -> None:
        self._late_part_bytes = late_part_bytes
        self._alike: dict[tuple[int, Coalescing, int], list[ReadsOfObject]] = {}
        """By stage, by how they are coalesced and by the length of the parts: reads of Parquet files."""
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
        """Take some reads of one partition.

        Args:
            partition: The partition.
            reads: In table order.
            coalescing: How the ranges of the first stage become requests.
            part_bytes: About how long these should be at the end.
            late_coalescing: How those of deferred columns do.
        """
        if not isinstance(partition, PlannedParquet):
            self._of_native += partition.requests(reads, coalescing, part_bytes=part_bytes)
            return
        self._alike.setdefault((1, coalescing, part_bytes), []).append(partition.reads_of_object(reads))
        for read in reads:
            # What is left of it is requested by itself, once its predicate has been evaluated: over gaps as they were chosen
            # for few requests, because only little of it may be left.
            if isinstance(read, RowGroupRead) and read.deferred is not None:
                late = self._alike.setdefault((2, late_coalescing, self._late_part_bytes), [])
                late.append(partition.reads_of_object([read.deferred]))

    def requests(self) -> tuple[PlannedRequest, ...]:
        """Return the requests of all partitions in turn, those of each by stage and in file order."""
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
    """Return how long the requests of a second stage should be, so that they use all connections.

    Args:
        question: What is asked.
        wanted_bytes: All that is read, in both stages.
    """
    return question.coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)


def with_reads(planned: PlannedScan, reads: Sequence[PlannedRead]) -> PlannedScan:
    """Return a plan that does these reads only, and fetches nothing else.

    Args:
        planned: The whole plan.
        reads: Some of its reads in their order; each may be cut to fewer rows.
    """
    plan = planned.plan
    found = plan_requests_of(planned.question, planned.partitions, plan.partitions, reads)
    return replace(
        planned,
        plan=replace(plan, row_groups=tuple(reads), requests=found.requests, coalescings=found.coalescings),
    )


def for_new_connections(planned: PlannedScan) -> PlannedScan:
    """Return a plan with the same reads, whose requests are those of processes without open connections.

    Args:
        planned: The plan of a process that goes on with the connections that it has.
    """
    question, plan = planned.question, planned.plan
    if not may_widen(question.options, question.speed) or len(plan.requests) > question.speed.connections:
        return planned  # nothing would change
    speed = replace(question.speed, are_connections_new=True)
    alike = replace(planned, question=replace(question, speed=speed), plan=replace(plan, speed=speed))
    return with_reads(alike, plan.row_groups)


def _coalescings(
    question: Question, described: Sequence[PartitionRead], reads: Sequence[PlannedRead], wanted_bytes: int
) -> tuple[Coalescing, ...]:
    """Choose for each partition by its storage class, and for all together whether requests would queue."""
    if question.options.goal == "cheap":
        return tuple(question.coalescing_of(partition.data_path) for partition in described)
    chosen = question.coalescing
    ranges = ReadRanges.of(reads) if may_widen(question.options, question.speed) else None
    if ranges is not None:
        chosen = widened(chosen, ranges, wanted_bytes=wanted_bytes, options=question.options, speed=question.speed)
    return (chosen,) * len(described)
