"""The questions of the Hive lake, asked of Spark: its own reader of Parquet on S3A, and ours without and with an index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from coldparquet_bench import hive_lake
from coldparquet_bench.measurement import BUCKET, OURS
from coldparquet_bench.spark_measurement import SparkBenchmark, SparkPlace, SparkQuestion, main

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

S3A = "S3A"
SMALL_DAYS, SMALL_ROWS = 30, 500


def benchmark(is_small: bool = False) -> SparkBenchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    lake = hive_lake.benchmark(days=SMALL_DAYS, rows=SMALL_ROWS) if is_small else hive_lake.benchmark()
    conditions = hive_lake.conditions(SMALL_ROWS if is_small else hive_lake.ROWS)
    return SparkBenchmark(
        module="coldparquet_bench.hive_spark",
        data=lake.data,
        make_data=lake.make_data,
        questions={f"in Spark: {question}": _asked(question, where) for question, where in conditions.items()},
        is_small=is_small,
        is_optional=True,
    )


def _asked(question: str, condition: str | None) -> SparkQuestion:
    count_only = question in {hive_lake.COUNT, hive_lake.COUNT_DAY}
    # Spark's SQL has no times with a zone behind them, and the session's is UTC.
    where = None if condition is None else condition.replace("T00:00:00Z", "")
    index = f"s3://{BUCKET}/{hive_lake.INDEX}"
    return SparkQuestion(
        ways={
            S3A: partial(_parquet, where, count_only),
            OURS: partial(_cold, where, count_only, {}),
            hive_lake.WITH_INDEX: partial(_cold, where, count_only, {"index": index}),
        },
        warm_calls=1,
    )


def _parquet(where: str | None, count_only: bool, place: SparkPlace) -> Any:
    return _answer(place.session.read.parquet(f"s3a://{BUCKET}/{hive_lake.TABLE}"), where, count_only=count_only)


def _cold(where: str | None, count_only: bool, told: dict[str, str], place: SparkPlace) -> Any:
    """Ask as is recommended without our jar: columns and condition are options."""
    told = {**told, "columns": "" if count_only else ",".join(hive_lake.COLUMNS)}
    told |= {} if where is None else {"where": where}
    frame = place.session.read.format("coldparquet").options(**told).load(f"s3://{BUCKET}/{hive_lake.TABLE}")
    return _answer(frame, None, count_only=count_only)


def _answer(frame: DataFrame, where: str | None, *, count_only: bool) -> Any:
    """Return the number of rows and, of rows that are read, the largest value of each column, so that all of them are."""
    from pyspark.sql import functions

    frame = frame if where is None else frame.where(where)
    if count_only:
        return [frame.count()]
    largest = [functions.max(name).alias(name) for name in hive_lake.COLUMNS]
    [row] = frame.agg(functions.count(functions.lit(1)).alias("rows"), *largest).collect()
    return [row["rows"], *(str(row[name]) for name in hive_lake.COLUMNS)]


if __name__ == "__main__":
    main(benchmark)
