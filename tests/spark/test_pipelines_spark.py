"""Pipelines on Spark: the same results as on one machine, whatever goes wrong with single partitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import coldparquet as cp
from coldparquet.cli.commands import app
from coldparquet.pipelines import ConvertJob, IndexJob, run_pipeline
from coldparquet.records import replace
from coldparquet.spark.engine import SparkEngine
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import damage, expected_of, fates, make_lake, partition_count

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "planted-secret-of-a-pipeline"  # noqa: S105 - it is planted to be looked for


async def test_index_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    expected = make_lake(tmp_path / "expected", "interval_day", "interval_hour")
    lake = make_lake(tmp_path / "store" / "bucket", "interval_day", "interval_hour")
    for one in (expected, lake):
        damage(sorted((one / "db" / "interval_hour").iterdir())[1])
    here = await run_pipeline(IndexJob(pages=True, pack=False), str(expected))
    engine = SparkEngine(spark=spark, tasks=2)
    with ColdStoreServer(tmp_path / "store", ColdStoreOptions(secret_key=SECRET)) as server:
        options = server.storage_options
        there = await run_pipeline(
            IndexJob(pages=True, pack=False), "s3://bucket/lake", engine=engine, storage_options=options
        )
        assert fates(there) == fates(here)
        assert there.engine == "spark"
        again = await run_pipeline(IndexJob(pages=True, pack=False), "s3://bucket/lake", storage_options=options)
        assert again.count("done") == 0
        assert again.count("failed") == 1
    for sidecar in expected.rglob("_pm"):
        assert (lake / sidecar.relative_to(expected)).read_bytes() == sidecar.read_bytes()

    frame = spark.createDataFrame(there.to_arrow())
    assert {row["action"]: row["count"] for row in frame.groupBy("action").count().collect()} == there.actions
    assert SECRET not in str(there.as_dict())


@pytest.mark.usefixtures("spark")
def test_the_command_takes_the_session_that_is_there(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "interval_day")
    arguments = ["pipeline", "index", str(lake), "--engine", "spark", "--tasks", "2", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["engine"], report["partition_actions"]) == ("spark", {"written": partition_count("interval_day")})


@pytest.mark.slow
async def test_conversion_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    source = tmp_path / "plain"
    source.mkdir()
    pq.write_table(expected_of("interval_day"), source / "rows.parquet")
    to_table = ConvertJob(
        destination=str(tmp_path / "table"),
        source_format="parquet",
        destination_format="coldparquet",
        timestamp="ts",
        symbols=("sym",),
    )
    engine = SparkEngine(spark=spark)
    report = await run_pipeline(to_table, str(source), engine=engine)
    assert [(result.action, result.reason) for result in report.results] == [("converted", None)]
    async with cp.open_table(tmp_path / "table") as table:
        assert_same_rows(await table.scan().to_arrow(), expected_of("interval_day"))
    assert (await run_pipeline(to_table, str(source), engine=engine)).actions == {"kept": 1}

    other = replace(to_table, symbols=())
    rows = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "other.parquet")
    occupied = replace(other, destination=str(tmp_path / "occupied"))
    (tmp_path / "occupied" / "2024-03-01").mkdir(parents=True)
    (tmp_path / "occupied" / "2024-03-01" / "data.parquet").write_bytes(b"dear")
    for job, kind in ((other, "OtherTable"), (occupied, "NotEmpty")):
        [result] = (await run_pipeline(job, str(tmp_path / "other.parquet"), engine=engine)).results
        assert (result.outcome, result.kind) == ("failed", kind)

    back = ConvertJob(destination=str(tmp_path / "back"), destination_format="orc")
    assert (await run_pipeline(back, str(tmp_path / "table"), engine=engine)).actions == {"converted": 1}
    assert spark.read.orc(str(tmp_path / "back")).count() == expected_of("interval_day").num_rows
    assert (await run_pipeline(back, str(tmp_path / "table"), engine=engine)).actions == {"kept": 1}
