"""How many tasks run at once, and how many are worth making: whatever a Python task does, it costs 25-30 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkAttributeError
from pyspark.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 3
"""Enough for cores that are done early to take another task, and few enough for what each costs."""

_NUMBERS = 1 << 16
"""Spark cuts so many into one partition per core."""


def core_count(spark: SparkSession) -> int:
    """Return how many tasks Spark makes of something that can be cut at will: one per core, unless it is told otherwise.

    Through Spark Connect, which offers no other way to ask, this is a Spark job of its own.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:  # of Connect
        places = spark.range(_NUMBERS).select(functions.spark_partition_id().alias("place"))
        last = places.agg(functions.max("place")).first()
        return 1 + (last[0] if last is not None else 0)
