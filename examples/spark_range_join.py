# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet[spark]"]
# ///
"""Join trades with time ranges in Spark: python examples/spark_range_join.py [TABLE].

A join of ranges pushes nothing into a data source. What all ranges have in common is therefore said before: the outermost
times, which prune partitions and row groups, and the columns. Needs Java 17.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, count, max_by, min_by

import coldparquet.spark as cold

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need a Python that has coldparquet

ANNOUNCEMENTS = [
    ("interest rates", datetime(2024, 3, 2, 9, 30, tzinfo=UTC)),
    ("prices", datetime(2024, 3, 2, 13, tzinfo=UTC)),
]
AFTER = timedelta(minutes=10)


def moves_after_announcements(spark: SparkSession, table: Path) -> DataFrame:
    first, last = ANNOUNCEMENTS[0][1], ANNOUNCEMENTS[-1][1] + AFTER
    where = f"ts >= '{first:%Y-%m-%dT%H:%M:%S}' and ts < '{last:%Y-%m-%dT%H:%M:%S}'"
    trades = cold.read(spark, str(table), columns=["ts", "symbol", "price"], where=where)
    ranges = spark.createDataFrame(
        [(what, begin, begin + AFTER) for what, begin in ANNOUNCEMENTS], "what string, begin timestamp, end timestamp"
    )
    return (
        trades.join(broadcast(ranges), (col("ts") >= col("begin")) & (col("ts") < col("end")))
        .groupBy("what", "symbol")
        .agg(count("*").alias("trades"), (max_by("price", "ts") - min_by("price", "ts")).alias("move"))
        .orderBy("what", "symbol")
    )


def main(table: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    moves_after_announcements(spark, table).show()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trades"))
