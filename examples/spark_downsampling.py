# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet[spark]"]
# ///
"""Bars of one hour from trades in Spark: python examples/spark_downsampling.py [TABLE].

Spark hands the times over (see the setting and the option below), so that only the row groups of one day are fetched. Needs Java 17.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max as largest
from pyspark.sql.functions import max_by, min_by, window
from pyspark.sql.functions import min as smallest
from pyspark.sql.functions import sum as total

import coldparquet.spark as cold

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need a Python that has coldparquet


def hourly_bars(trades: DataFrame) -> DataFrame:
    return (
        trades.groupBy("symbol", window("ts", "1 hour").start.alias("hour"))
        .agg(
            min_by("price", "ts").alias("open"),
            largest("price").alias("high"),
            smallest("price").alias("low"),
            max_by("price", "ts").alias("close"),
            total("amount").alias("volume"),
        )
        .orderBy("hour", "symbol")
    )


def main(table: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # off by default in Spark 4
    trades = (
        spark.read.format("coldparquet")
        .option("columns", "ts,symbol,price,amount")  # Spark does not tell which columns it needs
        .option("push_filters", "true")  # into the source; load anew for every query that you filter then
        .load(str(table))
        .where("ts >= '2024-03-02' and ts < '2024-03-03'")
    )
    print(cold.explain(trades))
    hourly_bars(trades).show(6)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trades"))
