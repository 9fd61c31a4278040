"""Running items in one event loop, so many at once: what every engine does in each of its processes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.pipelines.work import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coldparquet.pipelines.access import LakeStores
    from coldparquet.pipelines.job import Job
    from coldparquet.pipelines.work import WorkItem, WorkResult

LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Of an item or a result as JSON: those of ``verify`` list all findings of a partition."""

READY_LINE = "ready"
"""What a worker process says first."""


SMALL_ITEMS_PER_WORKER = 64
"""Of work that waits for requests: a process takes most of a second to start, as long as so many small items take."""

_FEW_AT_ONCE = 8
"""Work of which no more than so many items run at once computes, or moves much."""


def items_per_worker(job: Job) -> int:
    """Return how many items are worth a process, or a task of a cluster, of their own."""
    return SMALL_ITEMS_PER_WORKER if job.items_at_once > _FEW_AT_ONCE else job.items_at_once


async def run_item(job: Job, item: WorkItem, stores: LakeStores) -> WorkResult:
    """Run one item; whatever it raises is its result, bugs included, so that one item never stops the others."""
    started_s = time.monotonic()
    try:
        result = await job.run(item, stores)
    except Exception as error:  # noqa: BLE001 - the report is where a failure belongs, with its kind
        return failure(item, error, elapsed_s=time.monotonic() - started_s)
    return replace(result, elapsed_s=time.monotonic() - started_s)


async def run_items(
    job: Job, items: Iterable[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
) -> None:
    """Run items, as many at once as the job says; an item is taken only when there is room for it."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            on_result(await run_item(job, item, stores))

    async with asyncio.TaskGroup() as group:
        for _ in range(job.items_at_once):
            group.create_task(work())
