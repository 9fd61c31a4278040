"""Streams in Spark itself: a table that grows between runs, limits, a restart, and what a changed partition says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from coldparquet.spark import error_of
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.growing_tables import GrowingTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def await_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query to its end. One whose worker was not up within Spark's fixed ten seconds is started again: that is no answer
    of ours, and happens where the machine is busy with other tests."""
    for _ in range(3):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query
    raise TimeoutError("Spark could not start a Python worker within ten seconds, three times")


def run_to_end(spark: SparkSession, table: GrowingTable, directory: Path, **options: str) -> StreamingQuery:
    """Copy what is new to Parquet files, which Spark itself commits batch by batch, and go on from where the last run ended."""
    frame = spark.readStream.format("coldparquet").option("columns", "number").options(**options)
    writer = (
        frame.load(str(table.directory))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
    )
    return await_end(lambda: writer.start(str(directory / "copied")))


def copied_numbers(directory: Path) -> list[int]:
    numbers: list[Any] = []
    for file in (directory / "copied").glob("*.parquet"):
        numbers += pq.read_table(file)["number"].to_pylist()
    return sorted(numbers)


@pytest.mark.slow
async def test_a_table_is_copied_while_it_grows(spark: SparkSession, tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    for day in (1, 2, 3):
        await table.publish(day, 8)
    first = run_to_end(spark, table, tmp_path, maxPartitionsPerTrigger="2")
    assert [batch["numInputRows"] for batch in first.recentProgress if batch["numInputRows"]] == [16, 8]
    assert copied_numbers(tmp_path) == list(range(24))
    await table.append(3, 3)
    await table.publish(4, 5)
    second = run_to_end(spark, table, tmp_path)
    assert [batch["numInputRows"] for batch in second.recentProgress if batch["numInputRows"]] == [8]
    assert copied_numbers(tmp_path) == sorted(table.all_numbers) == list(range(32))
    [source] = second.recentProgress[0]["sources"]
    assert json.loads(source["endOffset"])["rows"] == 32
    await table.rewrite(1, more=1)
    with pytest.raises(Exception, match="have changed since") as caught:
        run_to_end(spark, table, tmp_path)
    error = error_of(caught.value)
    assert error is not None
    assert error.kind == "PartitionsRewritten"
    assert copied_numbers(tmp_path) == list(range(32))


@pytest.mark.slow
async def test_a_stream_runs_on_a_store_while_a_partition_is_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    table = GrowingTable(tmp_path / "root" / "bucket" / "numbers")
    for day in (1, 2):
        await table.publish(day, 8)
    with ColdStoreServer(tmp_path / "root") as server:
        told = {"columns": "number", "on_change": "reread", "poll_seconds": "0"}
        frame = spark.readStream.format("coldparquet").options(
            **told, storage_options=json.dumps(server.storage_options)
        )
        query = (
            frame.load("s3://bucket/numbers")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start(str(tmp_path / "copied"))
        )
        try:
            query.processAllAvailable()
            assert copied_numbers(tmp_path) == list(range(16))
            await table.rewrite(1, more=1)
            query.processAllAvailable()
        finally:
            query.stop()
    assert copied_numbers(tmp_path) == sorted([*range(16), *table.numbers[1]])


def test_a_stream_that_cannot_be_says_why(spark: SparkSession, tmp_path: Path) -> None:
    # With a schema Spark does not ask for the columns, and begins with the stream itself.
    tables = json.dumps([str(tmp_path / "a"), str(tmp_path / "b")])
    loaded = spark.readStream.format("coldparquet").schema("number bigint").option("paths", tables).load()
    with pytest.raises(Exception, match="a stream follows one table") as caught:
        await_end(loaded.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start)
    error = error_of(caught.value)
    assert error is not None
    assert error.kind == "OneTableOnly"
    assert "UnboundLocalError" not in str(caught.value)
