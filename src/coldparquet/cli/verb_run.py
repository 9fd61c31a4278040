"""Run a verb on one table, or over lakes, and say what became of everything."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

import typer

from coldparquet.cli.failures import FAILED
from coldparquet.cli.flags import price_table
from coldparquet.cli.output import print_json
from coldparquet.cli.verb_output import VERBING, print_report, verb_progress
from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.pipelines.lakes import one_table
from coldparquet.pipelines.model import PATTERN_CHARACTERS, PipelineReport, Place, Spent
from coldparquet.pipelines.run import LocalEngine, run_pipeline
from coldparquet.storage.log import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.pipelines.lakes import TableByTable
    from coldparquet.pipelines.model import Engine, Job


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
        if len(self.lakes) > 1 or not self.engine.is_open or self.job.name not in VERBING:
            return self.on_lakes()
        try:
            return asyncio.run(self._on_table())
        except NotFoundError as no_table:
            if no_table.kind not in _NO_TABLE_HERE and not PATTERN_CHARACTERS & set(self.lakes[0]):
                raise
            try:
                return self.on_lakes()
            except (NotFoundError, InvalidInputError):
                raise no_table from None

    async def _on_table(self) -> int:
        job = cast("TableByTable", self.job)
        place, ledger = Place(self.lakes[0], self.storage_options), Ledger()
        async with one_table(place, destination_options=self.destination_options) as table:
            table.stores.prices = price_table(self.prices)
            with verb_progress(job.name, is_dry_run=job.dry_run) as advance, ledger.current():
                run = await job.on_table(table, advance)
        report = PipelineReport(
            job=job.name,
            engine="local",
            lakes=tuple(self.lakes),
            is_dry_run=job.dry_run,
            results=run.results,
            notes=getattr(job.report(run), "notes", ()),
            elapsed_s=time.monotonic() - self.started_s,
            spent=Spent.of(ledger),
        )
        return self._tell(report, {**job.report(run).as_dict(), "spent": asdict(report.spent)})

    def on_lakes(self) -> int:
        """Run it on all tables of the lakes."""
        if self.prices is not None:
            raise typer.BadParameter("it is for one table", param_hint="--prices")
        with (
            _started(self.engine) as started,
            verb_progress(self.job.name, unit="items", is_dry_run=self.job.dry_run) as advance,
        ):
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
        return self._tell(report, report.as_dict())

    def _tell(self, report: PipelineReport, facts: Mapping[str, Any]) -> int:
        """Print what became of everything, and return the exit code."""
        if self.as_json:
            print_json(facts)
        else:
            print_report(report)
        return FAILED if report.count("failed") else 0


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
