"""Every job on Spark: the same report as on one machine, and the same files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from coldparquet.pipelines import (
    CompactJob,
    ConvertJob,
    IndexJob,
    LocalEngine,
    MigrateJob,
    PublishJob,
    TierJob,
    VerifyJob,
    run_pipeline,
)
from coldparquet.spark.engine import SparkEngine
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import copy_table, damage, expected_of, make_lake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coldparquet.pipelines import PipelineReport
    from coldparquet.pipelines.model import Engine, Job

pytestmark = pytest.mark.spark

TABLE = "interval_day"
JOBS: dict[str, Job] = {
    "index": IndexJob(pages=True, pack=False),
    "verify": VerifyJob(),
    "verify deep": VerifyJob(deep=True),
    "migrate": MigrateJob(),
    "compact": CompactJob(force=True, row_group_rows=20, purge=True, purge_after_hours=0),
    "publish": PublishJob(destination="published"),
    "tier": TierJob(storage_class_after=("0d=STANDARD_IA",), least_bytes=0),
    "convert": ConvertJob(destination="converted"),
}


async def prepared(name: str, bucket: Path) -> None:
    """Lay out the lake that a job is for; one of its partitions, or tables, is damaged where the job would notice."""
    if name in {"migrate", "publish"}:
        table = copy_table(TABLE, bucket / "lake")
        (copy_table("symbols", bucket / "lake") / "_txn").write_bytes(b"no transaction")
        for sidecar in table.rglob("_pm") if name == "migrate" else ():
            sidecar.unlink()
        return
    lake = make_lake(bucket, TABLE)
    if name != "index":
        await run_pipeline(IndexJob(pages=False, pack=False), str(lake))
    if name in {"index", "verify", "verify deep", "compact"}:
        damage(sorted((lake / "db" / TABLE).iterdir())[1])


async def run(job: Job, root: Path, engine: Engine) -> PipelineReport:
    """Run a job, on an S3 server where it is about storage classes."""
    if isinstance(job, TierJob):
        with ColdStoreServer(root) as server:
            options = server.storage_options
            return await run_pipeline(job, "s3://bucket/lake", engine=engine, storage_options=options)
    return await run_pipeline(job, str(root / "bucket" / "lake"), engine=engine)


def with_destination_in(job: Job, root: Path) -> Job:
    if isinstance(job, PublishJob):
        return PublishJob(destination=str(root / job.destination))
    if isinstance(job, ConvertJob):
        return ConvertJob(destination=str(root / job.destination))
    return job


def told(report: PipelineReport, root: Path) -> dict[str, Any]:
    """What a report says, but for time and requests, which a task spends on listings of its own, and on names that differ."""
    results = [result.as_dict() | {"elapsed_s": 0.0, "spent": None} for result in report.results]
    if report.job == "convert":  # Spark does not tell how many rows it has written
        results = [result | {"rows": None} for result in results]
    said = {"job": report.job, "notes": report.notes, "results": results}
    plain: dict[str, Any] = json.loads(json.dumps(said).replace(str(root), "ROOT"))
    return plain


def files_below(directory: Path) -> dict[str, bytes]:
    """Data, sidecars and transactions, but not what names the moment or the server."""
    names = {"_pm", "data.parquet", "_txn", "_meta"}
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.name in names}


@pytest.mark.parametrize("name", JOBS)
async def test_a_job_tells_and_leaves_the_same_on_spark(name: str, spark: SparkSession, tmp_path: Path) -> None:
    reports, roots = [], [tmp_path / "here", tmp_path / "there"]
    engines: list[Engine] = [LocalEngine(processes=1), SparkEngine(spark=spark)]
    for root, engine in zip(roots, engines, strict=True):
        await prepared(name, root / "bucket")
        report = await run(with_destination_in(JOBS[name], root), root, engine)
        assert report.engine == engine.name
        reports.append(told(report, root))
    here, there = reports
    assert there == here
    assert {result["outcome"] for result in there["results"]} >= {"done"}
    assert files_below(roots[1]) == files_below(roots[0])
    if name == "convert":
        # Spark writes the times as INT96, of which pyarrow makes another type.
        found = pq.read_table(roots[1] / "converted" / "db" / TABLE).drop_columns(["ts"])
        assert_same_rows(found, expected_of(TABLE).drop_columns(["ts"]))
