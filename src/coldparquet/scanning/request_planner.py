"""From the reads of a plan to its requests: coalesced by the goal, the prices and the speed of the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from coldparquet.plan.coalescing_choice import may_widen, widened
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.read_ranges import ReadRanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import Coalescing
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
    wanted_bytes = sum(read.bytes_wanted for read in reads)
    coalescings = _coalescings(question, described, reads, wanted_bytes)
    part_bytes = part_bytes_of(question, wanted_bytes)
    requests: list[PlannedRequest] = []
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        of_partition = list(group)
        coalescing = coalescings[index]
        requests += requests_of_partition(
            partitions[index],
            of_partition,
            coalescing=coalescing,
            part_bytes=coalescing.part_bytes(wanted_bytes, question.options.max_concurrency),
            late_coalescing=question.coalescing_of(described[index].data_path),
            late_part_bytes=part_bytes,
        )
    return PlannedRequests(requests=tuple(requests), coalescings=coalescings)


def requests_of_partition(  # noqa: PLR0913 - the two stages have shapes of their own
    partition: PlannedPartition,
    reads: Sequence[PlannedRead],
    *,
    coalescing: Coalescing,
    part_bytes: int,
    late_coalescing: Coalescing,
    late_part_bytes: int,
) -> list[PlannedRequest]:
    """Plan the requests of both stages for some reads of one partition.

    Args:
        partition: The partition.
        reads: In table order.
        coalescing: How the ranges of the first stage become requests.
        part_bytes: About how long these should be at the end.
        late_coalescing: How those of deferred columns do.
        late_part_bytes: About how long those should be.
    """
    requests = list(partition.requests(reads, coalescing, part_bytes=part_bytes))
    for read in reads:
        # What is left of it is requested by itself, once its predicate has been evaluated: over gaps as they were chosen
        # for few requests, because only little of it may be left.
        if isinstance(read, RowGroupRead) and read.deferred is not None:
            requests += partition.requests([read.deferred], late_coalescing, part_bytes=late_part_bytes, stage=2)
    return requests


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
