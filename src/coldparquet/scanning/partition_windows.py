"""Planning a table from one of its ends: a few partitions at a time, because the first ones may tell enough."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.stated_times import stated_times_ns
from coldparquet.scanning.parquet_draft import refuse_misplaced_times
from coldparquet.scanning.planned_partition import PlannedParquet
from coldparquet.scanning.scan_planner import plan_question, prune_partitions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from concurrent.futures import Executor

    from coldparquet.catalog.partition import Partition
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.scan_planner import PlannedScan


async def plan_from_one_end(
    question: Question, executor: Executor, *, newest_first: bool, by_time: bool
) -> AsyncGenerator[PlannedScan, None]:
    """Plan 1 partition, then 2 more, 4 more and so on, for as long as the caller asks for more; it closes the generator.

    Requests: for each step those of :func:`coldparquet.scanning.scan_planner.plan_question` for its partitions.

    Args:
        question: What is asked; without a limit.
        executor: Plans.
        newest_first: Whether to begin at the end of the table; the partitions of a step are in table order all the same.
        by_time: Whether the caller relies on all rows of one step to be of later times than those of the steps that come
            after it (earlier, if not ``newest_first``). Where the names of the partitions do not promise that, all are
            planned at once then. The timestamp is one of the question's columns then.

    Raises:
        FormatError: ``by_time``, and a partition's rows are of other times than its directory stands for (kind
            ``TimeRangeMismatch``).
    """
    kept, _ = prune_partitions(question)
    step = 1 if not by_time or _follow_each_other(kept) else len(kept)
    done = 0
    while done < len(kept):
        start, stop = done, min(done + step, len(kept))
        if newest_first:
            start, stop = len(kept) - stop, len(kept) - start
        partitions = tuple(kept[start:stop])
        snapshot = replace(question.snapshot, partitions=partitions)
        planned = await plan_question(replace(question, snapshot=snapshot), executor)
        if by_time:
            await asyncio.get_running_loop().run_in_executor(executor, _check_times, planned, partitions)
        yield planned
        done, step = done + stop - start, 2 * step


def _follow_each_other(partitions: Sequence[Partition]) -> bool:
    """Tell whether each partition is known to hold later times than the one before."""
    ranges = [partition.time_range_ns for partition in partitions]
    known = [time_range for time_range in ranges if time_range is not None]
    return len(known) == len(ranges) and all(before[1] <= after[0] for before, after in pairwise(known))


def _check_times(planned: PlannedScan, partitions: Sequence[Partition]) -> None:
    timestamp = planned.question.snapshot.designated_timestamp
    by_path = {partition.data_path: partition for partition in partitions}
    for found in planned.partitions:  # archived ones may have been left out
        if isinstance(found, PlannedParquet) and timestamp is not None:
            place, borders = found.places[timestamp], np.array([0, found.sidecar.row_group_count])
            if place is not None:
                [stated] = stated_times_ns(found.sidecar, place, borders)
                refuse_misplaced_times(by_path[found.data_path], stated)
