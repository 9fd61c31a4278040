# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet[spark]"]
# ///
"""The latest trade of every symbol in Spark: python examples/spark_latest_per_key.py [TABLE].

Metadata knows the last timestamp, without a data request; so only the end of the table is read, and more of it for symbols that
were not traded there. Needs Java 17.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max_by, struct

import coldparquet.spark as cold

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need a Python that has coldparquet

SYMBOLS = {"BTC", "ETH", "SOL"}
LOOKED_BACK = (timedelta(minutes=5), timedelta(hours=6), timedelta(days=3))


def latest_trades(spark: SparkSession, table: Path) -> DataFrame:
    _, last = cold.min_max(spark, str(table), "ts")
    for back in LOOKED_BACK:
        where = f"ts >= '{last - back:%Y-%m-%dT%H:%M:%S}'"
        recent = cold.read(spark, str(table), columns=["ts", "symbol", "price"], where=where)
        latest = recent.groupBy("symbol").agg(max_by(struct("ts", "price"), "ts").alias("trade"))
        found = latest.select("symbol", "trade.ts", "trade.price").orderBy("symbol").cache()
        if {row.symbol for row in found.select("symbol").collect()} >= SYMBOLS:
            break
        print(f"the last {back} hold not every symbol")
    return found


def main(table: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    latest_trades(spark, table).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trades"))
