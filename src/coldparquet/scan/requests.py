"""Turns the reads of a plan into requests, coalesced by the goal, the prices and the speed of the store."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from coldparquet.plan.coalescing import may_widen, widened
from coldparquet.plan.model import bytes_wanted_by
from coldparquet.plan.native import cut_native
from coldparquet.plan.reads import first_rows, last_rows
from coldparquet.plan.requests import ReadRanges, plan_requests
from coldparquet.records import replace
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.options import Coalescing
    from coldparquet.plan.model import PlannedRequest, Read, ReadPlan, StoredData
    from coldparquet.scan.model import PlannedScan, Question


def data_request(data: StoredData, request: PlannedRequest, *, rank: int, may_be_kept: bool) -> RangeRequest:
    """Make what a store is asked for a planned request; of several that wait, the one of the lowest rank goes first."""
    return RangeRequest(
        path=request.path,
        byte_range=request.byte_range,
        reason=request.reason,
        role="data",
        expected_etag=data.etag,
        object_bytes=data.size_bytes,
        may_grow=data.may_grow,
        rank=rank,
        may_be_kept=may_be_kept,
    )


def cut_read(read: Read, count: int, *, from_end: bool, coalescing: Coalescing) -> Read:
    """Return a read of the last, or the first, rows of another one."""
    if read.data.decoder == "native":
        return cut_native(read, count, from_end=from_end)
    cut = last_rows if from_end else first_rows
    return cut(read, count, least_saving_bytes=max(coalescing.gap_bytes, 1))


def with_requests(question: Question, plan: ReadPlan) -> ReadPlan:
    """Return the plan with the requests of its reads: their ranges, coalesced by the options' goal.

    They are in partition order and, within a partition, by stage and in file order; deferred columns are a second stage.
    """
    wanted_bytes = bytes_wanted_by(plan.row_groups)
    coalescings = _coalescings(question, plan, wanted_bytes)
    late_coalescings = tuple(question.coalescing_of(partition.data_path) for partition in plan.partitions)
    late_part_bytes = question.coalescing.part_bytes(wanted_bytes, question.options.max_concurrency)
    part_bytes = [coalescing.part_bytes(wanted_bytes, question.options.max_concurrency) for coalescing in coalescings]
    return replace(
        plan,
        requests=requests_of(plan.row_groups, coalescings, part_bytes, late_coalescings, late_part_bytes),
        coalescings=coalescings,
        late_coalescings=late_coalescings,
        late_part_bytes=late_part_bytes,
    )


def requests_of(
    reads: Sequence[Read],
    coalescings: Sequence[Coalescing],
    part_bytes: Sequence[int] | Mapping[int, int],
    late_coalescings: Sequence[Coalescing],
    late_part_bytes: int,
) -> tuple[PlannedRequest, ...]:
    """Plan the requests of both stages for reads of many partitions, in their order.

    For each partition: how its ranges become requests, and their approximate length; the same for deferred columns. All
    that are coalesced alike are planned together.
    """
    alike: dict[tuple[int, Coalescing, int], list[Sequence[Read]]] = {}
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        of_partition = list(group)
        alike.setdefault((1, coalescings[index], part_bytes[index]), []).append(of_partition)
        # Once the predicate is evaluated, what it leaves is requested separately. The gaps are those for few
        # requests, because only little may be left.
        late = [[read.deferred] for read in of_partition if read.deferred is not None]
        if late:
            alike.setdefault((2, late_coalescings[index], late_part_bytes), []).extend(late)
    found = [
        request
        for (stage, coalescing, length), partitions in alike.items()
        for request in plan_requests(partitions, coalescing, part_bytes=length, stage=stage)
    ]
    return tuple(sorted(found, key=attrgetter("partition_index", "stage")))


def with_reads(planned: PlannedScan, reads: Sequence[Read]) -> PlannedScan:
    """Return a plan that executes only these reads, and fetches nothing else."""
    plan = replace(planned.plan, row_groups=tuple(reads))
    return replace(planned, plan=with_requests(planned.question, plan))


def for_new_connections(planned: PlannedScan) -> PlannedScan:
    """Return a plan with the same reads, and with requests for a process without open connections."""
    question, plan = planned.question, planned.plan
    if not may_widen(question.options, question.speed) or len(plan.requests) > question.speed.connections:
        return planned  # nothing would change
    speed = replace(question.speed, are_connections_new=True)
    alike = replace(planned, question=replace(question, speed=speed), plan=replace(plan, speed=speed))
    return with_reads(alike, plan.row_groups)


def _coalescings(question: Question, plan: ReadPlan, wanted_bytes: int) -> tuple[Coalescing, ...]:
    """Choose each partition's coalescing by its storage class; decide for all together whether requests would queue."""
    if question.options.goal == "cheap":
        return tuple(question.coalescing_of(partition.data_path) for partition in plan.partitions)
    chosen = question.coalescing
    ranges = ReadRanges.of(plan.row_groups) if may_widen(question.options, question.speed) else None
    if ranges is not None:
        chosen = widened(chosen, ranges, wanted_bytes=wanted_bytes, options=question.options, speed=question.speed)
    return (chosen,) * len(plan.partitions)
