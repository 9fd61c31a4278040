"""Run a verb on one table, or over lakes, and say what became of everything."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

import typer

from coldparquet.cli.flags import price_table
from coldparquet.cli.output import FAILED, print_json
from coldparquet.cli.verb_output import counted, counted_bytes, counted_rows, print_published, print_report
from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.maintenance.pack import result_of_pack
from coldparquet.options import ReadOptions
from coldparquet.pipelines.model import PATTERN_CHARACTERS, PipelineReport, Place, WorkItem
from coldparquet.pipelines.run import LocalEngine, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.catalog.findings import Severity
    from coldparquet.maintenance.index import IndexJob
    from coldparquet.maintenance.pack import PackJob
    from coldparquet.maintenance.verify import VerifyJob
    from coldparquet.pipelines.model import Engine, Job, WorkResult
    from coldparquet.publish.job import PublishJob
    from coldparquet.write.compact_job import CompactJob


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What the flags say about the engine."""

    name: str | None
    """None where no flag says."""
    processes: int | None
    """Of the local one."""
    tasks: int | None
    """Of Spark."""
    credentials: str | None
    """Where executors of Spark find storage options."""

    @property
    def is_open(self) -> bool:
        """Whether nothing was said of an engine."""
        return self.name is None and self.processes is None and self.tasks is None and self.credentials is None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbRun:
    """A job, and what it is to be run on."""

    job: Job
    lakes: Sequence[str]
    engine: EngineChoice
    storage_options: Mapping[str, Any]
    destination_options: Mapping[str, Any]
    prices: str | None
    """A file; only for publishing one table."""
    as_json: bool
    started_s: float = field(default_factory=time.monotonic)

    def on_one_or_many(self) -> int:
        """Run it on one table, here, if that is what was named; else on lakes. Return the exit code."""
        if len(self.lakes) > 1 or not self.engine.is_open or self.job.name not in _ON_TABLE:
            return self.on_lakes()
        try:
            return _ON_TABLE[self.job.name](self)
        except NotFoundError as no_table:
            if no_table.kind not in _NO_TABLE_HERE and not PATTERN_CHARACTERS & set(self.lakes[0]):
                raise
            try:
                return self.on_lakes()
            except (NotFoundError, InvalidInputError):
                raise no_table from None

    def on_lakes(self) -> int:
        """Run it on all tables of the lakes."""
        if self.prices is not None:
            raise typer.BadParameter("it is for one table", param_hint="--prices")
        with _started(self.engine) as started, counted(self.job.name, unit="items") as advance:
            report = asyncio.run(
                run_pipeline(
                    self.job,
                    self.lakes,
                    engine=started,
                    storage_options=self.storage_options,
                    destination_options=self.destination_options,
                    on_progress=advance,
                )
            )
        if self.as_json:
            print_json(report.as_dict())
        else:
            print_report(report)
        return FAILED if report.count("failed") else 0

    def tell(self, facts: Mapping[str, Any], results: tuple[WorkResult, ...], *, notes: tuple[str, ...] = ()) -> None:
        """Print what became of one table: its report as JSON, or as text that of many would say."""
        if self.as_json:
            print_json(facts)
            return
        print_report(
            PipelineReport(
                job=self.job.name,
                engine="local",
                lakes=tuple(self.lakes),
                is_dry_run=self.job.dry_run,
                results=results,
                notes=notes,
                elapsed_s=time.monotonic() - self.started_s,
            )
        )

    @property
    def place(self) -> Place:
        """The one table."""
        return Place(self.lakes[0], self.storage_options)


_NO_TABLE_HERE = frozenset({"NoPartitions", "NoTable"})
"""Kinds of errors that say of a directory that it is no table: it may be one of tables."""


@contextmanager
def _started(engine: EngineChoice) -> Iterator[Engine]:
    """Start the engine; a Spark session that was not there before is stopped in the end."""
    name = engine.name or "local"
    _refuse_others(name, engine)
    if name == "local":
        yield LocalEngine(processes=engine.processes)
        return
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only this engine needs it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from coldparquet.spark.engine import SparkEngine  # noqa: PLC0415
    from coldparquet.spark.errors import error_of  # noqa: PLC0415

    is_ours = SparkSession.getActiveSession() is None
    if is_ours:
        # Workers take the python3 of PATH otherwise, which is another one where this environment is not activated.
        # spark-submit hands spark.pyspark.python over as this variable.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = SparkSession.builder.appName("coldparquet").getOrCreate()
    except PySparkException as error:
        raise error_of(error) or error from None
    try:
        yield SparkEngine(spark=spark, tasks=engine.tasks, credentials=engine.credentials)
    finally:
        if is_ours:
            spark.stop()


def _refuse_others(name: str, engine: EngineChoice) -> None:
    """Make sure that there is such an engine, and that it knows the flags that are given."""
    flags: dict[str, dict[str, object]] = {
        "local": {"--processes": engine.processes},
        "spark": {"--tasks": engine.tasks, "--credentials": engine.credentials},
    }
    if name not in flags:
        raise typer.BadParameter(f"{name!r} is none of local and spark", param_hint="--engine")
    for other, values in flags.items():
        for flag, value in values.items():
            if other != name and value is not None:
                raise typer.BadParameter(f"it is for --engine {other}", param_hint=flag)


def _index(run: VerbRun) -> int:
    job = cast("IndexJob", run.job)
    with counted({"index": "indexing", "migrate": "migrating"}[job.name]) as advance:
        report = asyncio.run(job.on_table(run.place, ReadOptions(), advance))
    actions = Counter(partition.action for partition in report.partitions)
    run.tell({**asdict(report), "counts": dict(actions)}, job.results(report), notes=report.notes)
    has_failed = report.count("failed") or report.count_pages("failed") or report.has_misnamed
    return FAILED if has_failed or any(finding.severity == "error" for finding in report.findings) else 0


def _verify(run: VerbRun) -> int:
    job = cast("VerifyJob", run.job)
    with counted("verifying") as advance:
        report = asyncio.run(job.on_table(run.place, ReadOptions(), advance))
    severities: tuple[Severity, ...] = ("error", "warning", "advice")
    run.tell({**asdict(report), "counts": {one: report.count(one) for one in severities}}, job.results(report))
    return FAILED if report.count("error") else 0


def _pack(run: VerbRun) -> int:
    job = cast("PackJob", run.job)
    with counted("packing") as advance:
        report = asyncio.run(job.on_table(run.place, ReadOptions(), advance))
    run.tell({**asdict(report), "packed": report.packed_count}, job.results(report))
    return FAILED if report.action == "skipped" else 0


def _compact(run: VerbRun) -> int:
    job = cast("CompactJob", run.job)
    with counted_rows("compacting") as advance:
        report = asyncio.run(job.on_table(run.place, advance))
    actions = Counter(partition.action for partition in report.partitions)
    run.tell({**asdict(report), "counts": dict(actions)}, job.results(report), notes=report.notes)
    return FAILED if report.count("failed") else 0


def _publish(run: VerbRun) -> int:
    job = cast("PublishJob", run.job)
    destination = Place(job.destination, run.destination_options)
    with counted_bytes("publishing") as advance:
        report = asyncio.run(job.on_table(run.place, destination, advance, prices=price_table(run.prices)))
    if run.as_json:
        actions = Counter(partition.action for partition in report.partitions)
        totals = {"rows": report.rows, "rows_left_behind": report.rows_left_behind, "counts": dict(actions)}
        print_json({**asdict(report), **totals})
    else:
        table = WorkItem(lake=report.destination, table="")
        catalogue = None if report.catalogue is None else result_of_pack(table, report.catalogue, is_renewed=True)
        print_published(report, catalogue)
    return FAILED if report.rows_left_behind else 0


_ON_TABLE = {
    "index": _index,
    "migrate": _index,
    "verify": _verify,
    "pack": _pack,
    "compact": _compact,
    "publish": _publish,
}
"""How each verb is run on one table: its bar, its report as JSON, and its exit code."""
