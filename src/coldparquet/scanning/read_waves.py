"""Reading some row groups of a plan, the most promising ones first, and no more of them than turn out to be needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.scanning.admission import admit
from coldparquet.scanning.batch_stream import BatchStream
from coldparquet.scanning.request_planner import with_reads

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    import pyarrow as pa

    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.read_plan import PlannedRead
    from coldparquet.scanning.scan_planner import PlannedScan


async def read_each(planned: PlannedScan, executor: Executor, take: Callable[[int, pa.Table], None]) -> None:
    """Carry out a plan and hand over the rows of each of its reads, one after the other.

    Args:
        planned: The plan. Its question may have a limit: then reading ends with so many rows, and the last of them are those
            that the limit leaves.
        executor: Decodes, and runs ``take``.
        take: Gets the position of a read in the plan and those of its rows that satisfy the predicate, perhaps none.
    """
    if not planned.plan.row_groups:
        return

    async def admitted() -> PlannedScan:
        return await admit(planned)

    loop = asyncio.get_running_loop()
    store = planned.question.snapshot.store
    async with BatchStream(admitted, store=store, executor=executor) as stream:
        for position in range(len(planned.plan.row_groups)):
            rows = await stream.next_row_group()
            if rows is None:
                break
            await loop.run_in_executor(executor, take, position, rows)


async def read_in_waves(  # noqa: PLR0913 - one plan, and what decides how far it is carried out
    planned: PlannedScan,
    executor: Executor,
    *,
    order: IntArray,
    is_needed: Callable[[IntArray], BoolArray],
    take: Callable[[int, pa.Table], None],
    cut: Callable[[int], PlannedRead] | None = None,
    first_wave_reads: int = 1,
    wants_certain_rows: bool = True,
) -> None:
    """Do the reads of a plan, the most promising first, as long as some of the others are needed.

    What one wave brings decides what the next one needs, so waves wait for each other: of 1 read, 2, 4, 8 and so on, which
    at most doubles what is read, in few round trips.

    Args:
        planned: The plan; its question has no limit.
        executor: Decodes, and runs ``is_needed`` and ``take``.
        order: Positions of reads in the plan, the most promising first.
        is_needed: Tells which of some reads that are still to be done may matter, after all rows that were taken.
        take: Gets the position of a read and its matching rows; within a wave in table order.
        cut: Cuts a read that is about to be done, given by its position, to the rows of it that may matter.
        first_wave_reads: Reads of the first wave.
        wants_certain_rows: Whether reads at the front of which every row matches come along at once, because rows are wanted
            and not only what they prove of others.
    """
    reads = planned.plan.row_groups
    every_row_matches = np.fromiter((read.all_rows_match for read in reads), np.bool_, len(reads))
    loop = asyncio.get_running_loop()
    waiting, wave_reads = order, first_wave_reads
    while len(waiting):
        waiting = waiting[await loop.run_in_executor(executor, is_needed, waiting)]
        undecided = np.flatnonzero(~every_row_matches[waiting])
        certain_reads = int(undecided[0]) if len(undecided) else len(waiting)
        size = max(wave_reads, certain_reads) if wants_certain_rows else wave_reads
        if len(waiting):
            await _read_wave(planned, executor, np.sort(waiting[:size]).tolist(), take, cut)
        waiting, wave_reads = waiting[size:], 2 * wave_reads


async def _read_wave(
    planned: PlannedScan,
    executor: Executor,
    wave: list[int],
    take: Callable[[int, pa.Table], None],
    cut: Callable[[int], PlannedRead] | None,
) -> None:
    reads = [planned.plan.row_groups[read] if cut is None else cut(read) for read in wave]
    await read_each(with_reads(planned, reads), executor, lambda position, rows: take(wave[position], rows))
