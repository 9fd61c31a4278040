"""Tables written by Spark jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import PartitionInterval, partition_floor_ns
from coldparquet.spark import error_of, write
from coldparquet.spark.writer import partition_expression
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.written_tables import DAY_US, START_US, in_order, names_in, overwritten, same_rows, ticks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, rows: pa.Table, tasks: int = 2) -> DataFrame:
    """Return rows as a DataFrame in so many tasks."""
    return spark.createDataFrame(rows).repartition(tasks)


def read(table: Path) -> pa.Table:
    """Return all rows as the library reads them, by time and number: Spark does not keep an order."""
    with cp.sync.open_table(table) as opened:
        found = opened.scan().to_arrow()
    times: list[Any] = found.column("ts").to_pylist()
    assert times == sorted(times)
    return found.sort_by([("ts", "ascending"), ("number", "ascending")])


def by_number(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("ts", "ascending"), ("number", "ascending")])


@pytest.mark.slow
def test_save_append_and_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "trades"
    first, second, third = ticks(400), ticks(200, seed=1, days=5), ticks(30, seed=2, days=1, first_day=1)
    frame(spark, first).write.format("coldparquet").option("timestamp", "ts").mode("append").save(str(table))
    assert same_rows(read(table), by_number(first))
    frame(spark, second, 3).write.format("coldparquet").mode("append").save(str(table))
    assert same_rows(read(table), by_number(in_order([first, second])))
    frame(spark, third).write.format("coldparquet").mode("overwrite").save(str(table))
    expected = overwritten(in_order([first, second]), third)
    assert same_rows(read(table), by_number(expected))
    found = spark.read.format("coldparquet").load(str(table)).orderBy("ts", "number").toArrow()
    assert same_rows(found, by_number(expected))


@pytest.mark.slow
def test_write_clusters_the_rows_first(spark: SparkSession, tmp_path: Path) -> None:
    rows, more = ticks(500, days=4), ticks(300, seed=1, days=6)
    with ColdStoreServer(_bucket(tmp_path)) as server:
        options = {
            "storage.key": "cold-store",
            "storage.secret": "cold-store",
            "storage.endpoint_url": server.endpoint_url,
            "storage.client_kwargs": '{"region_name": "us-east-1"}',
        }
        url = "s3://bucket/trades"
        write(frame(spark, rows, 3), url, timestamp="ts", symbols=["side"], options=options)
        write(frame(spark, more, 3), url, mode="append", tasks=2, options=options)
        with pytest.raises(InvalidInputError, match="exists already"):
            write(frame(spark, rows), url, options=options)
        write(frame(spark, rows), url, mode="ignore", options=options)
        uploads = [
            served.path for served in server.requests if served.method == "PUT" and served.path.endswith(".parquet")
        ]
    table = tmp_path / "bucket" / "trades"
    with cp.sync.open_table(table) as opened:
        assert opened.schema.field("side").type == pa.dictionary(pa.int32(), pa.string())
        assert len(uploads) == 4 + len(opened.partitions)  # nothing was written twice to be joined
    found = read(table)
    assert same_rows(found.set_column(1, "side", found["side"].cast(pa.string())), by_number(in_order([rows, more])))


def test_a_failing_task_leaves_nothing_visible(spark: SparkSession, tmp_path: Path) -> None:
    table, before = tmp_path / "trades", ticks(50)
    write(frame(spark, before), str(table), timestamp="ts")
    files = names_in(table)
    wrong = frame(spark, ticks(80, seed=1)).selectExpr(
        "if(number = 1000079, null, ts) as ts", "side", "price", "number"
    )
    with pytest.raises(Exception, match="the designated timestamp is never null") as failed:
        wrong.write.format("coldparquet").mode("append").save(str(table))
    error = error_of(failed.value)
    assert (type(error), error and error.kind) == (InvalidInputError, "NullValue")
    assert names_in(table) == files
    assert same_rows(read(table), by_number(before))


def test_rows_of_a_partition_are_clustered_and_no_others(spark: SparkSession) -> None:
    times = [-DAY_US, -1, 0, 1, START_US - 1, START_US, *(START_US + step * 9_000_000_007 for step in range(300))]
    frame = spark.createDataFrame([(time,) for time in times], "micros bigint").selectExpr(
        "micros", "timestamp_micros(micros) as `zoned ``time`", "cast(null as timestamp_ntz) as naive"
    )
    frame = frame.selectExpr(
        "micros", "`zoned ``time`", "timestampadd(MICROSECOND, micros, TIMESTAMP_NTZ'1970-01-01 00:00:00') as naive"
    )
    intervals = [interval for interval in PartitionInterval if interval is not PartitionInterval.NONE]
    spark.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        expressions = [
            f"cast({partition_expression(frame.schema, column, interval)} as string)"
            for interval in intervals
            for column in frame.columns
        ]
        rows: list[Any] = frame.selectExpr("micros", *expressions).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for number, interval in enumerate(intervals):
        floors = [partition_floor_ns(row[0] * 1000, interval) for row in rows]
        for column in range(3):
            values = [row[1 + 3 * number + column] for row in rows]
            assert len(set(zip(floors, values, strict=True))) == len(set(floors)) == len(set(values)), interval.name


def _bucket(root: Path) -> Path:
    (root / "bucket").mkdir()
    return root
