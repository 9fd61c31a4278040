"""What the same rows would cost if they were fetched with another goal, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.coalescing_choice import by_goal, widened
from coldparquet.plan.cost import (
    ClassReads,
    Dollars,
    dollars_of,
    estimate_seconds,
    plan_seconds,
    prices_of,
    reads_by_class,
)
from coldparquet.plan.native_read import NativeRead
from coldparquet.plan.read_ranges import ReadRanges
from coldparquet.prices import STANDARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.options import Goal, ReadOptions
    from coldparquet.plan.read_plan import PlannedRead, ReadPlan, RowGroupRead


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalCost:
    """What fetching the rows of a plan takes with one goal."""

    goal: Goal
    request_count: int
    bytes_fetched: int
    round_trips: int
    seconds: float
    dollars: Dollars


def compare_goals(plan: ReadPlan) -> tuple[GoalCost, ...]:
    """Reckon what each goal would make of the row groups and pages of a plan.

    Each goal gets its own gap and lengths; those that the options state go with the goal of the plan. Which bloom filters and
    pages are looked up also depends on the goal, and is left as planned; but ``few-requests`` never reads in two steps.

    Returns:
        One per goal; those are missing of which damaged metadata leaves nothing to reckon with.
    """
    others = replace(plan.options, coalesce_gap_bytes=None, max_request_bytes=None)
    costs = [
        _as_planned(plan) if goal == plan.options.goal else _cost(plan, replace(others, goal=goal))
        for goal in COALESCING_BY_GOAL
    ]
    return tuple(cost for cost in costs if cost is not None)


def _as_planned(plan: ReadPlan) -> GoalCost:
    return GoalCost(
        goal=plan.options.goal,
        request_count=plan.request_count,
        bytes_fetched=plan.bytes_fetched,
        round_trips=plan.round_trips,
        seconds=plan_seconds(plan),
        dollars=dollars_of(reads_by_class(plan), prices_of(plan.options)),
    )


def _cost(plan: ReadPlan, options: ReadOptions) -> GoalCost | None:
    lengths: dict[int, list[npt.NDArray[np.int64]]] = {}
    found_by_class: list[ClassReads] = []
    wanted_bytes = plan.bytes_wanted
    for storage_class, reads in _by_class(plan):
        coalescing = by_goal(options, plan.speed, storage_class)
        of_class = [np.empty(0, np.int64)]
        for stage, ranges in _stages(reads, options.goal):
            if ranges is None:
                return None
            chosen = coalescing
            if stage == 1:
                chosen = widened(coalescing, ranges, wanted_bytes=wanted_bytes, options=options, speed=plan.speed)
            part_bytes = chosen.part_bytes(wanted_bytes, plan.speed.connections)
            of_class.append(ranges.request_lengths(chosen, part_bytes=part_bytes))
            lengths.setdefault(stage, []).append(of_class[-1])
        of_all_stages = np.concatenate(of_class)
        found_by_class.append(
            ClassReads(
                storage_class=storage_class,
                request_count=len(of_all_stages),
                fetched_bytes=int(of_all_stages.sum()),
            )
        )
    stages = [lengths_bytes for of_stage in lengths.values() if (lengths_bytes := np.concatenate(of_stage).tolist())]
    return GoalCost(
        goal=options.goal,
        request_count=sum(found.request_count for found in found_by_class),
        bytes_fetched=sum(found.fetched_bytes for found in found_by_class),
        round_trips=len(stages),
        seconds=estimate_seconds(stages, speed=plan.speed),
        dollars=dollars_of(found_by_class, prices_of(options)),
    )


def _by_class(plan: ReadPlan) -> list[tuple[str, list[PlannedRead]]]:
    """Sort the reads by the storage class of their partition; those of a partition stay together."""
    by_class: dict[str, list[PlannedRead]] = {}
    for index, reads in groupby(plan.row_groups, key=lambda read: read.partition_index):
        by_class.setdefault(plan.partitions[index].storage_class or STANDARD, []).extend(reads)
    return list(by_class.items())


def _stages(reads: Sequence[PlannedRead], goal: Goal) -> list[tuple[int, ReadRanges | None]]:
    """Return what is fetched in each stage; deferred columns come along with the others where requests shall be few."""
    deferred: list[RowGroupRead] = [
        read.deferred for read in reads if not isinstance(read, NativeRead) and read.deferred is not None
    ]
    if goal != "few-requests":
        return [(1, ReadRanges.of(reads)), (2, ReadRanges.of_each(deferred))]
    with_deferred: list[PlannedRead] = []
    for read in reads:
        with_deferred.append(read)
        if not isinstance(read, NativeRead) and read.deferred is not None:
            with_deferred.append(read.deferred)
    return [(1, ReadRanges.of(with_deferred))]
