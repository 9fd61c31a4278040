"""Running a job over lakes: plan, work, finish, report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.pipelines.access import Access, LakeStores
from coldparquet.pipelines.lakes import Lake
from coldparquet.pipelines.local_engine import LocalEngine
from coldparquet.pipelines.report import PipelineReport
from coldparquet.pipelines.work import WorkResult, reason_of
from coldparquet.storage.open_store import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.pipelines.job import Engine, Job
    from coldparquet.pipelines.work import WorkPlan


async def run_pipeline(  # noqa: PLR0913 - what can be told is told by name
    job: Job,
    lakes: str | Sequence[str],
    *,
    engine: Engine | None = None,
    storage_options: Mapping[str, Any] | None = None,
    destination_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    on_progress: Callable[[WorkResult, int], None] | None = None,
) -> PipelineReport:
    """Run a job over all tables of one or more lakes.

    One bad lake, table or partition does not stop the run: what went wrong is in the report. What is left to do is found in the
    tables themselves, so that running it again does only that, also after a run was killed.

    Requests: those of finding the tables (:func:`~coldparquet.pipelines.lakes.search_tables`), of planning, of each item and of
    finishing: see the job.

    Args:
        job: What to do, such as ``IndexJob(pages=True)``.
        lakes: URLs of tables, of directories of tables, or patterns of such: any fsspec URL, or a local path. See
            :meth:`~coldparquet.pipelines.lakes.Lake.parse`.
        engine: What runs the pieces of work; None is :class:`~coldparquet.pipelines.local_engine.LocalEngine`, which uses all
            processors of this machine. On Spark: ``coldparquet.spark.SparkEngine(spark=spark)``.
        storage_options: Credentials, endpoint and so on of the lakes, as fsspec and s3fs take them. Workers get them from
            this process; leave credentials to the environment, a profile or a role where you can.
        destination_options: The same for the place that ``publish`` and ``convert`` write to.
        store_options: How patient to be with the stores, here and in workers.
        on_progress: Called with each result and the number of all pieces of work.

    Returns:
        What became of everything.

    Raises:
        InvalidInputError: A lake's URL cannot be meant, or there is none.
        NotFoundError: No lake has a table.
        AccessError: No lake can be listed.
        StorageError: The engine broke down.
    """
    started_s = time.monotonic()
    urls = [lakes] if isinstance(lakes, str) else list(lakes)
    if not urls:
        raise InvalidInputError("no lake was named; give the URL of a table, or of a directory of tables")
    parsed = [Lake.parse(url) for url in urls]
    engine = engine or LocalEngine()
    access = Access(
        storage_options=dict(storage_options or {}),
        destination_options=dict(destination_options or {}),
        store_options=checked_store_options(store_options),
    )
    async with LakeStores(access) as stores:
        plan = await job.plan(parsed, stores)
        progress = _Progress(len(plan.items), on_progress)
        if plan.items:
            await engine.execute(job, plan.items, stores, progress.note)
        finished = await _finish(job, progress.results, plan, stores)
    results = sorted((*plan.settled, *progress.results, *finished), key=_place)
    return PipelineReport(
        job=job.name,
        engine=engine.name,
        lakes=tuple(map(shown_url, urls)),
        is_dry_run=job.dry_run,
        results=tuple(results),
        notes=plan.notes,
        elapsed_s=time.monotonic() - started_s,
    )


async def _finish(
    job: Job, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores
) -> tuple[WorkResult, ...]:
    """Finish; a failure is one more result, because what was done is done."""
    try:
        return await job.finish(results, plan, stores)
    except ColdParquetError as error:
        failed = WorkResult(
            table=plan.items[0].lake if plan.items else "",
            outcome="failed",
            action="failed to finish",
            reason=reason_of(error),
            kind=error.kind,
        )
        return (failed,)


@dataclass(slots=True)
class _Progress:
    """Collects results."""

    total: int
    on_progress: Callable[[WorkResult, int], None] | None
    results: list[WorkResult] = field(default_factory=list)

    def note(self, result: WorkResult) -> None:
        self.results.append(result)
        if self.on_progress is not None:
            self.on_progress(result, self.total)


def _place(result: WorkResult) -> tuple[str, str]:
    return result.table, result.partition
