# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet[spark]"]
# ///
"""Follow a table with Spark, run after run: python examples/spark_stream.py [TABLE].

Each run hands over what was added since the last one and ends. What was handed over is in the checkpoint, so that a run
that was killed goes on where it stopped. Needs Java 17.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need a Python that has coldparquet


def copy_large_trades(spark: SparkSession, table: Path, directory: Path) -> StreamingQuery:
    trades = (
        spark.readStream.format("coldparquet")
        .option("columns", "ts,symbol,price,amount")  # Spark does not tell which columns it needs
        .option("where", "amount > 5")  # prunes row groups and pages
        .option("maxPartitionsPerTrigger", "2")  # of a batch; without it the first batch is the whole table
        .load(str(table))
    )
    query = (
        trades.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)  # .trigger(processingTime="1 minute") goes on for ever
        .start(str(directory / "large_trades"))
    )
    query.awaitTermination()
    return query


def main(table: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as name:
        for run in (1, 2):
            query = copy_large_trades(spark, table, Path(name))
            rows = [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]
            print(f"run {run}: {sum(rows):,} rows in {len(rows)} batches")
        print(f"copied: {spark.read.parquet(f'{name}/large_trades').count():,} rows")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trades"))
