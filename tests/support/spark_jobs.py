"""Questions that tests put to Spark in processes of their own, and the table that they are about."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

import coldparquet.spark as cold
from coldparquet.maintenance.index import index_table
from coldparquet.pipelines import ConvertJob, IndexJob, run_pipeline
from coldparquet.spark.engine import SparkEngine
from coldparquet.spark.helpers import core_count
from coldparquet.write import write_table
from tests.support import spark_year
from tests.support.small_tables import DAY_US, FIRST_DAY_US, day_of_trades
from tests.support.spark_values import shown_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


DAYS, ROWS, ROW_GROUPS = 3, 2_000, 4
COLUMNS = ("ts", "symbol", "price")
WHERE = "ts >= '2024-03-02T12:00:00' and symbol = 'ETH'"


_MOST_STARTS = 6

TABLES = ("trades", "source/trades", "read/trades")
"""What :func:`ask_everything` reads; those with a directory of their own are read once, to be found in a server's log."""


def make_bucket(bucket: Path) -> None:
    """Lay out what :func:`ask_everything` asks for: :data:`TABLES`, and ``lake/trades`` without sidecars."""
    for table in TABLES:
        make_trades((bucket / table).parent)
    for sidecar in make_trades(bucket / "lake").rglob("_pm"):
        sidecar.unlink()


def make_trades(directory: Path) -> Path:
    """Write the table ``trades`` into a directory: three days with sidecars; prices count the rows."""
    table = directory / "trades"
    for day in range(DAYS):
        name = np.datetime64(FIRST_DAY_US + day * DAY_US, "us").astype("datetime64[D]")
        partition = table / f"{name}.7"
        partition.mkdir(parents=True)
        (partition / "data.parquet").write_bytes(day_of_trades(day, rows=ROWS, row_groups=ROW_GROUPS))
    asyncio.run(index_table(table, pages=False, pack=False))
    return table


def prices_found() -> list[float]:
    """Return the prices of the rows that :data:`WHERE` finds: every second one of a day and a half."""
    first = ROWS + ROWS // 2
    return [float(price) for price in range(first, DAYS * ROWS) if price % 2]


def ask_everything(spark: SparkSession, bucket: str) -> dict[str, Any]:
    """Ask in every way: the data source with pushed filters, pieces of a plan, helpers that need no job; and who worked.

    Then write a table, index another one, and ask for what is not there.
    """
    url = f"{bucket}/trades"
    source = spark.read.format("coldparquet").options(columns=",".join(COLUMNS), push_filters="true")
    least, greatest = cold.min_max(spark, url, "size")
    return {
        "source": prices(source.load(f"{bucket}/source/trades").where(WHERE)),
        "read": prices(cold.read(spark, f"{bucket}/read/trades", columns=COLUMNS, where=WHERE)),
        "explain": kind_or_text(lambda: cold.explain(source.load(url))),
        "explain_read": cold.explain_read(spark, url, columns=COLUMNS, where=WHERE),
        "written": prices(write_what_is_found(spark, url, f"{bucket}/written")),
        "pipeline": asyncio.run(
            run_pipeline(IndexJob(pages=False, pack=False), f"{bucket}/lake", engine=SparkEngine(spark=spark))
        ).actions,
        "nowhere": kind_or_text(lambda: str(source.load(f"{bucket}/nowhere").collect())),
        "broken write": kind_or_text(
            lambda: cold.write(spark.sql("select cast(null as timestamp) as ts"), f"{bucket}/broken", timestamp="ts")
        ),
        "count": cold.count(spark, url),
        "min_max": [least, greatest],
        "pythons": worker_pythons(spark),
        "cores": core_count(spark),
    }


def write_what_is_found(spark: SparkSession, url: str, destination: str) -> DataFrame:
    """Write what :data:`WHERE` finds into a table of its own, and return that."""
    cold.write(cold.read(spark, url, columns=COLUMNS, where=WHERE), destination, timestamp="ts")
    return spark.read.format("coldparquet").load(destination)


def follow_what_is_found(spark: SparkSession, bucket: str, directory: str) -> list[float]:
    """Write it, let a stream copy that, and return the copy's prices."""
    write_what_is_found(spark, f"{bucket}/trades", f"{bucket}/followed")
    stream = spark.readStream.format("coldparquet").option("columns", "price").load(f"{bucket}/followed")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    follow_to_end(writer, f"{directory}/copied")
    return prices(spark.read.parquet(f"{directory}/copied"))


def follow_to_end(writer: DataStreamWriter, path: str | None = None) -> StreamingQuery:
    """Run a stream until it has all that is there.

    Spark gives the Python process of a stream 10 s to begin, which nothing can change and a busy machine does not always manage:
    the stream is started again then.
    """
    for start in range(_MOST_STARTS):
        query = writer.trigger(availableNow=True).start(path)
        try:
            query.awaitTermination()
        except Exception as error:
            if "failed to connect back" not in str(error) or start + 1 == _MOST_STARTS:
                raise
        else:
            break
    return query


def kind_or_text(ask: Callable[[], str | None]) -> str | None:
    """Return what is answered, or the kind of the library's error."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        told = cold.error_of(error)
        return told.kind if told else str(error)


def prices(frame: DataFrame) -> list[float]:
    """Collect the prices, in ascending order."""
    return sorted(row.price for row in frame.select("price").collect())


def worker_pythons(spark: SparkSession) -> list[str]:
    """Ask two tasks which Python they run in."""

    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(2, numPartitions=2).mapInArrow(ask, "python string").collect()
    return sorted({row.python for row in rows})


def ask_while_an_executor_dies(spark: SparkSession, url: str, marker: str) -> list[float]:
    """Kill the first executor that has read a batch, and go on."""

    def kill_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                Path(marker).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(executor_process_id(), signal.SIGKILL)

    frame: Any = spark.read.format("coldparquet").options(columns="price", pieces="4", batch_rows="100").load(url)
    return prices(frame.mapInArrow(kill_once, "price double"))


def ask_cluster(spark: SparkSession, bucket: str, marker: str) -> dict[str, Any]:
    """Ask everything, then once more while an executor dies."""
    answers = ask_everything(spark, bucket)
    return {**answers, "after a death": ask_while_an_executor_dies(spark, f"{bucket}/trades", marker)}


def executor_process_id() -> int:
    """Return the process of the executor that this worker, a child of PySpark's daemon, belongs to."""
    of_daemon = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(of_daemon.split("PPid:")[1].split()[0])


def failures_of_reading(spark: SparkSession, url: str) -> list[list[str]]:
    """Read a table, in two ways, where that must fail; return the kinds and sentences that the library has for it."""
    failures = []
    for open_frame in (spark.read.format("coldparquet").load, partial(cold.read, spark)):
        try:
            open_frame(url).collect()
        except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
            told = cold.error_of(error)
            failures.append([told.kind, str(told)] if told else ["unknown", str(error)])
    return failures


def convert_through_delta(spark: SparkSession, table: str, directory: str) -> dict[str, Any]:
    """Convert a table to Delta, twice, and back; put another one in its place, too."""

    def convert(source: str, **job: Any) -> list[str | None]:
        [result] = asyncio.run(run_pipeline(ConvertJob(**job), source, engine=SparkEngine(spark=spark))).results
        return [result.action, result.kind, result.reason]

    to_delta = {"destination": f"{directory}/delta", "destination_format": "delta"}
    first, again = convert(table, **to_delta), convert(table, **to_delta)
    other = write_table_of_times(f"{directory}/other")
    spark.sql(f"create table trades using delta location '{directory}/delta'")
    spark.conf.set("spark.databricks.delta.v2.enableMode", "STRICT")
    from_delta = {"source_format": "delta", "destination_format": "coldparquet", "timestamp": "ts"}
    return {
        "first": first,
        "again": again,
        "other": convert(other, **to_delta),
        "back": convert("trades", destination=f"{directory}/back", **from_delta),
    }


def write_table_of_times(url: str) -> str:
    """Write a table of one column and one row; return its URL."""
    rows = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC"))})
    asyncio.run(write_table(url, rows, timestamp="ts"))
    return url


# --- Jobs in which Spark starts a second copy of a task that hangs, as ``spark.speculation`` has it do ----------------


TASKS, COPIED_ROWS = 4, 400
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.efficiency.enabled": "false",
}
_LONGEST_HANG_S = 240
"""By then the copy has won, and Spark has ended the task that hangs."""


def write_and_read_with_copies(spark: SparkSession, url: str, markers: str) -> dict[str, Any]:
    """Write a table, and read it by the data source, each with one task whose first attempt hangs behind its first batch.

    Returns:
        The numbers of the rows that were read, and for both jobs the attempts of the task that hung.
    """
    micros = f"{FIRST_DAY_US} + (id % {TASKS}) * {DAY_US} + id"
    numbers = spark.range(0, COPIED_ROWS, 1, TASKS).selectExpr(f"timestamp_micros({micros}) as ts", "id as number")
    slow_write = numbers.mapInArrow(_hanging_once(Path(markers, "write")), numbers.schema)
    slow_write.write.format("coldparquet").option("timestamp", "ts").mode("append").save(url)
    source = spark.read.format("coldparquet").options(pieces=str(TASKS), batch_rows="10").load(url)
    slow_read = source.mapInArrow(_hanging_once(Path(markers, "read")), source.schema)
    return {
        "numbers": sorted(row.number for row in slow_read.collect()),
        "counted": cold.count(spark, url),
        "attempts": {name: len(list(Path(markers, name).iterdir())) for name in ("write", "read")},
    }


def _hanging_once(marks: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that passes batches on; the first attempt of the first task hangs between two of them."""
    marks.mkdir(parents=True)

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: Any = TaskContext.get()
        hangs = task.partitionId() == 0 and task.attemptNumber() == 0
        if task.partitionId() == 0:
            Path(marks, str(task.taskAttemptId())).touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch[:half]
            if hangs:
                time.sleep(_LONGEST_HANG_S)
            yield batch[half:]

    return pass_on


def metrics_of_a_scan(spark: SparkSession, storage_options: str, where: str) -> dict[str, str]:
    """Read the year of days with the jar; return what the UI shows."""
    year = spark.read.format("coldparquet").option("storage_options", storage_options).load(spark_year.URL)
    return shown_metrics(spark, year.where(where).select("price"))
