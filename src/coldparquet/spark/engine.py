"""Runs pipelines and conversions on Spark: a DataFrame of work items, mapped to their results.

Spark does the scheduling, retries and speculative execution. Each task gets its items as text, processes several at
once, and returns their results as text. Only plain data travels and no RDD is used, so Spark Connect works as well. The
executors need coldparquet installed, in the same version as the driver.

Conversions read any Spark format into tables of cold partitions, and write these tables to any Spark format.

A conversion is a Spark job of its own, so conversions run on the driver, one source after the other. Formats that are
not part of Spark need their own package on it, built for this version of Spark. Delta 4.4, which is built for Spark
4.2, writes on 4.3. But it reads there by name alone and with ``spark.databricks.delta.v2.enableMode=STRICT``. Iceberg
1.12, built for Spark 4.1, does not load on 4.3; on 4.1 it was tested both ways, with names of a catalog.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.errors import AnalysisException

from coldparquet.concurrency import background
from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.pipelines.model import Access, LakeStores, WorkItem, WorkResult, failure, job_as_dict, job_from_dict
from coldparquet.pipelines.run import items_per_worker, run_items
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.errors import error_of
from coldparquet.spark.helpers import TASKS_PER_CORE, core_count
from coldparquet.spark.task import map_in_arrow
from coldparquet.spark.writer import write
from coldparquet.storage.open import opened_store
from coldparquet.write.convert import COLDPARQUET, check_same_columns, left_overs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from coldparquet.pipelines.model import Job
    from coldparquet.write.convert import ConvertJob


_PLAIN_FILES = frozenset({"csv", "json", "orc", "parquet", "text"})
"""Formats in which a directory without ``_SUCCESS`` comes from a killed job. Others have their own commits."""


def convert(
    spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None
) -> WorkResult:
    """Convert one source; an error of Spark becomes its result."""
    started_s = time.monotonic()
    try:
        is_written = _convert(spark, job, item, access, credentials)
    except Exception as error:  # noqa: BLE001 - classic Spark raises what Java and py4j raise, Connect what gRPC does
        return failure(item, error_of(error) or error, elapsed_s=time.monotonic() - started_s)
    return WorkResult(
        table=item.table_url,
        outcome="done" if is_written else "nothing to do",
        action="converted" if is_written else "kept",
        reason=None
        if is_written
        else "the destination is complete already; whether the source changed since was not looked at",
        elapsed_s=time.monotonic() - started_s,
        details={"destination": item.work["destination"]},
    )


def _convert(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> bool:
    """Convert; False if the destination is already complete."""
    destination = item.work["destination"]
    frame = _source(spark, job, item, access, credentials)
    if job.destination_format in _PLAIN_FILES:
        if background.run(_is_complete(destination, access)):
            return False
        frame.write.format(job.destination_format).mode("overwrite").save(destination)
        return True
    options = _options(access.destination_options, credentials) if job.destination_format == COLDPARQUET else {}
    try:
        if job.destination_format == COLDPARQUET:
            write(
                frame,
                destination,
                timestamp=job.timestamp,
                partition_by=job.partition_by,
                symbols=job.symbols,
                options=options,
            )
        elif _is_name(destination):
            frame.write.format(job.destination_format).mode("error").saveAsTable(destination)
        else:
            frame.write.format(job.destination_format).mode("error").save(destination)
    except Exception as error:
        if not _says_that_it_exists(error):
            raise
        found = _loaded(spark, job.destination_format, destination, options)
        check_same_columns(found.columns, frame.columns, destination)
        return False
    return True


def _says_that_it_exists(error: Exception) -> bool:
    """Tell whether the table existed before. Such tables are committed as a whole, so that one is complete."""
    known = error_of(error)
    if known is not None:
        return known.kind == "AlreadyExists"
    return isinstance(error, AnalysisException) and (error.getCondition() or "").endswith("_EXISTS")


def _source(spark: SparkSession, job: ConvertJob, item: WorkItem, access: Access, credentials: str | None) -> DataFrame:
    is_ours = job.source_format == COLDPARQUET
    options = _options(access.storage_options, credentials) if is_ours else {}
    return _loaded(spark, job.source_format, item.table_url, options)


def _loaded(spark: SparkSession, source_format: str, place: str, options: Mapping[str, str]) -> DataFrame:
    if source_format != COLDPARQUET and _is_name(place):
        return spark.table(place)
    return spark.read.format(source_format).options(**options).load(place)


def _is_name(place: str) -> bool:
    """Tell whether a place is a name in Spark's catalog, such as ``lake.sales.trades``, and not a URL."""
    return "/" not in place


def _options(explicit: Mapping[str, Any], credentials: str | None) -> dict[str, str]:
    options = {} if credentials is None else {"credentials": credentials}
    return {**options, "secret_options": json.dumps(dict(explicit))} if explicit else options


async def _is_complete(url: str, access: Access) -> bool:
    """Tell whether the files exist. Spark would remove all other content, so that is refused."""
    async with opened_store(
        url,
        storage_options=access.destination_options,
        store_options=access.store_options,
        store=None,
        max_concurrency=access.max_concurrency,
    ) as opened:
        return await left_overs(opened.stack.store, opened.path) is None


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
        from coldparquet.write.convert import ConvertJob  # noqa: PLC0415 - executors import this module for other jobs

        # In this thread, because Spark's active session, with its settings and its Python data sources, belongs to it.
        # This blocks the event loop, which has no other task.
        if isinstance(job, ConvertJob):
            for item in items:
                on_result(self._convert(job, item, stores.access))
            return
        for result in self._run(job, items, stores.access):
            on_result(result)

    def _convert(self, job: ConvertJob, item: WorkItem, access: Access) -> WorkResult:
        from coldparquet.spark.engine import convert  # noqa: PLC0415 - other jobs need neither reader nor writer

        return convert(self.spark, job, item, access, self.credentials)

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
