"""Runs pipelines and conversions on Spark: a DataFrame of work items, mapped to their results.

Spark does the scheduling, retries and speculative execution. Each task gets its items as text, processes several at
once, and returns their results as text. Only plain data travels and no RDD is used, so Spark Connect works as well. The
executors need coldparquet installed, in the same version as the driver.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.pipelines.model import Access, LakeStores, WorkItem, WorkResult, job_as_dict, job_from_dict
from coldparquet.pipelines.run import items_per_worker, run_items
from coldparquet.records import replace
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.errors import error_of
from coldparquet.spark.helpers import TASKS_PER_CORE, core_count
from coldparquet.spark.task import map_in_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from coldparquet.pipelines.model import Job


_RESULTS = "result string"

_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception): .+$", re.MULTILINE)
"""The line of a Python traceback with the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkEngine:
    """Runs items on the executors of a Spark session, classic or Connect.

    Raises:
        InvalidInputError: Less than 1 task is requested, or ``credentials`` does not name a place.
    """

    name: ClassVar[str] = "spark"

    spark: SparkSession
    tasks: int | None = None
    """Spark tasks; None means at most 3 per core, fewer for little work."""
    credentials: str | None = None
    """Where executors find settings of the stores: ``env:NAME`` or ``file:/path``, see
    :mod:`coldparquet.spark.credentials`. None leaves it to their environment, a profile or a role. The
    ``storage_options`` of :func:`~coldparquet.pipelines.run.run_pipeline` travel to them inside the tasks, and appear
    in no plan, user interface or log."""

    def __post_init__(self) -> None:
        if self.tasks is not None and self.tasks < 1:
            raise InvalidInputError(f"SparkEngine.tasks is {self.tasks}; it must be at least 1")
        if self.credentials is not None:
            Credentials.parse({"credentials": self.credentials})

    async def execute(
        self, job: Job, items: Sequence[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
    ) -> None:
        """Run all items in one Spark job; results arrive at its end, and until then Spark shows the progress.

        Raises:
            UnsupportedError: The executors lack a package (kind ``MissingPackage``).
            StorageError: The Spark job failed (kind ``EngineFailed``); running the pipeline again does the remaining
                items.
        """
        # In this thread, because Spark's active session, with its settings and its Python data sources, belongs to it.
        # This blocks the event loop, which has no other task.
        if job.name == "convert":
            from coldparquet.spark.convert import convert  # noqa: PLC0415 - executors import this module for other jobs

            for item in items:
                on_result(convert(self.spark, job, item, stores.access, self.credentials))
            return
        for result in self._run(job, items, stores.access):
            on_result(result)

    def _run(self, job: Job, items: Sequence[WorkItem], access: Access) -> list[WorkResult]:
        try:
            tasks = self.tasks or self._task_count(len(items), items_per_worker(job))
            shares = deal(items, min(tasks, len(items)))
            rows = pa.table(
                {
                    "task": pa.array(range(len(shares)), pa.int32()),
                    "items": pa.array(["\n".join(item.to_json() for item in share) for share in shares], pa.string()),
                }
            )
            frame = self.spark.createDataFrame(rows).repartitionById(len(shares), "task")
            answers = map_in_arrow(frame, _task_function(job, access, self.credentials), _RESULTS)
            return [WorkResult.from_json(row["result"]) for row in answers.collect()]
        except Exception as error:  # classic Spark raises what Java and py4j raise, Connect what gRPC does
            raise error_of(error) or _engine_failed(str(error)) from error

    def _task_count(self, item_count: int, items_per_task: int) -> int:
        """Return 3 tasks per core, or fewer where there is little to do."""
        worthwhile = -(-item_count // items_per_task)
        return worthwhile if worthwhile <= TASKS_PER_CORE else min(worthwhile, TASKS_PER_CORE * core_count(self.spark))


def deal(items: Sequence[WorkItem], share_count: int) -> list[list[WorkItem]]:
    """Distribute items over shares of about equal cost: costly items first, each to the cheapest share."""
    shares: list[list[WorkItem]] = [[] for _ in range(share_count)]
    # Items without a cost count as equal, so that each share also gets as many of them.
    heap = [(0, 0, number) for number in range(share_count)]
    for item in sorted(items, key=_cost, reverse=True):
        cost, count, number = heapq.heappop(heap)
        shares[number].append(item)
        heapq.heappush(heap, (cost + item.cost_bytes, count + 1, number))
    return shares


def _engine_failed(text: str) -> StorageError:
    """Explain the failure: the last sentence of a Python traceback, or the first line of Spark's own message."""
    sentences = _EXCEPTION.findall(text)
    cause = sentences[-1] if sentences else text.strip().partition("\n")[0]
    return StorageError(
        f"the Spark job failed ({cause}); run the pipeline again, which does what is left", kind="EngineFailed"
    )


def _cost(item: WorkItem) -> int:
    return item.cost_bytes


def _task_function(
    job: Job, access: Access, credentials: str | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task's function. It holds only plain data, so versions of Python and the library may differ."""
    terms = json.dumps({"job": job_as_dict(job), "access": access.as_dict(), "credentials": credentials})

    def run_pipeline_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from coldparquet.spark.engine import run_shares  # noqa: PLC0415 - on the executor
        from coldparquet.spark.errors import told_to_spark  # noqa: PLC0415

        with told_to_spark():
            yield from run_shares(terms, batches)

    return run_pipeline_items


def run_shares(terms: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of a task, on an executor."""
    how = json.loads(terms)
    job = job_from_dict(how["job"])
    given = Access.from_dict(how["access"])
    settings = Credentials(explicit=given.storage_options, reference=how["credentials"]).storage_options()
    access = replace(given, storage_options=settings)
    for batch in batches:
        lines = [line for share in batch.column("items") for line in str(share).split("\n")]
        results = asyncio.run(_run(job, [WorkItem.from_json(line) for line in lines], access))
        yield pa.RecordBatch.from_pydict({"result": pa.array([result.to_json() for result in results], pa.string())})


async def _run(job: Job, items: Sequence[WorkItem], access: Access) -> list[WorkResult]:
    results: list[WorkResult] = []
    async with LakeStores(access) as stores:
        await run_items(job, items, stores, results.append)
    return results
