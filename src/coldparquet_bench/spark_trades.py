"""Spark's own S3A reader and ours, in one session: W1, counts, extremes, a few days of many, and all of 400 MB.

The day of W1, and a year of small days, both in folders with plain dates, as QuestDB lays them out. Spark neither prunes nor finds
such folders by itself: S3A is given ``*/data.parquet``. One question is also asked of a hive-style copy, where S3A is told the
days by their folders' names. The last questions read local files, where no store costs time: there only Spark's way from a file
to a row is compared. ``read`` is ``coldparquet.spark.read``, ``helper`` one of the functions beside it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import coldparquet.spark as cold
from coldparquet.records import replace
from coldparquet_bench import full_scan, trading_day, year_of_trades
from coldparquet_bench.measurement import BUCKET, OURS
from coldparquet_bench.spark_measurement import SparkBenchmark, SparkCall, SparkPlace, SparkQuestion, main
from coldparquet_bench.spark_session import ANALYTICS_BUCKET
from coldparquet_bench.trades import DAY_COLUMNS, day_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, Row

S3A, S3A_ANALYTICS, JVM_READER = "S3A", "S3A, analytics stream", "JVM reader"
READ, HELPER, WITHOUT_CATALOGUE = f"{OURS}, read", f"{OURS}, helper", f"{OURS}, without a catalogue"
SOME_DAYS, HIVE = "some_days", "hive"
"""Copies of the first days of the year: as they are, and in folders ``day=2024-03-01``."""
SOME_DAY_COUNT = 200
LOCAL_DAYS = 4
COLUMNS = ("ts", "symbol", "price")

ONE_DAY = "S1: two columns of two hours of one day"
COUNT_DAY = "S2: number of rows of one day"
EXTREMES_DAY = "S3: first and last timestamp of one day"
THREE_DAYS = "S4: three days of 200"
THREE_DAYS_HIVE = "S4: three days of 200, S3A told by hive-style folders"
WEEK = "S5: a week of a year of days"
COUNT_DAYS = "S6: number of rows of 200 days"
ALL_COLUMNS = "S7: all columns of local files"
TWO_COLUMNS = "S7: two columns of local files"


def benchmark(is_small: bool = False) -> SparkBenchmark:
    """Make the benchmark; a smoke test asks for less data."""
    rows, days, day_rows = (200_000, 30, 4_000) if is_small else (trading_day.ROWS, year_of_trades.DAYS, 20_000)
    return SparkBenchmark(
        module="coldparquet_bench.spark_trades",
        data=f"spark-{rows}-{days}-{day_rows}",
        questions=_questions(),
        make_data=partial(_make_data, rows=rows, days=days, day_rows=day_rows),
        is_small=is_small,
    )


async def _make_data(bucket: Path, *, rows: int, days: int, day_rows: int) -> None:
    await trading_day.benchmark(rows=rows).make_data(bucket)
    await year_of_trades.benchmark(days=days, rows=day_rows).make_data(bucket)
    await full_scan.benchmark(days=LOCAL_DAYS, rows=rows).make_data(bucket)
    for day in map(day_name, range(min(days, SOME_DAY_COUNT))):
        for copy in (bucket / SOME_DAYS / day, bucket / HIVE / f"day={day}"):
            shutil.copytree(bucket / year_of_trades.TABLE / day, copy, copy_function=os.link)
    shutil.copytree(bucket, bucket.parent / ANALYTICS_BUCKET, copy_function=os.link)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Some columns of a table, where a condition holds."""

    table: str
    files: str
    """Of the table, as S3A has to be told."""
    columns: tuple[str, ...]
    where: str

    @property
    def ours(self) -> str:
        """What we are told: the same file as S3A, or the table, where S3A needs a pattern."""
        return self.table if "*" in self.files else self.files

    def s3a(self, place: SparkPlace, bucket: str = BUCKET) -> Any:
        return _summary(_parquet(place, self.files, bucket).where(self.where), self.columns)

    def source(self, place: SparkPlace) -> Any:
        return _summary(_cold(place, _url(self.ours), self.columns, self.where), self.columns)

    def read(self, place: SparkPlace) -> Any:
        frame = cold.read(place.session, _url(self.ours), columns=self.columns, where=self.where)
        return _summary(frame, self.columns)

    def ways(self) -> dict[str, SparkCall]:
        analytics = partial(self.s3a, bucket=ANALYTICS_BUCKET)
        return {S3A: self.s3a, S3A_ANALYTICS: analytics, OURS: self.source, READ: self.read}


def _questions() -> dict[str, SparkQuestion]:
    day = f"{trading_day.TABLE}/{trading_day.DAY}"
    two_hours = _Selection(
        table=day,
        files=f"{day}/data.parquet",
        columns=("ts", "price"),
        where=_between("ts", f"{trading_day.DAY} 09:30:00", f"{trading_day.DAY} 11:30:00"),
    )
    begin, end = day_name(10), day_name(13)
    three_days = _Selection(
        table=SOME_DAYS, files=f"{SOME_DAYS}/*/data.parquet", columns=COLUMNS, where=_between("ts", begin, end)
    )
    hive_days = replace(three_days, files=HIVE, where=_between("day", begin, end))
    week = _Selection(
        table=year_of_trades.TABLE,
        files=f"{year_of_trades.TABLE}/*/data.parquet",
        columns=COLUMNS,
        where=_between("ts", begin, day_name(17)),
    )
    unpacked_week = replace(week, table=year_of_trades.UNPACKED)
    return {
        ONE_DAY: SparkQuestion(ways=two_hours.ways()),
        COUNT_DAY: SparkQuestion(ways=_counting(two_hours)),
        EXTREMES_DAY: SparkQuestion(
            ways={
                S3A: lambda place: _extremes(_parquet(place, two_hours.files)),
                HELPER: lambda place: list(map(_text, cold.min_max(place.session, _url(two_hours.table), "ts"))),
            }
        ),
        THREE_DAYS: SparkQuestion(ways=three_days.ways(), warm_calls=3),
        THREE_DAYS_HIVE: SparkQuestion(ways={S3A: hive_days.s3a, OURS: three_days.source}),
        WEEK: SparkQuestion(ways={**week.ways(), WITHOUT_CATALOGUE: unpacked_week.source}, warm_calls=2),
        COUNT_DAYS: SparkQuestion(ways=_counting(three_days), warm_calls=2),
        ALL_COLUMNS: _scanning(DAY_COLUMNS),
        TWO_COLUMNS: _scanning(two_hours.columns),
    }


def _counting(of: _Selection) -> dict[str, SparkCall]:
    return {
        S3A: lambda place: _parquet(place, of.files).count(),
        OURS: lambda place: _cold(place, _url(of.table), ()).count(),
        HELPER: lambda place: cold.count(place.session, _url(of.table)),
    }


def _scanning(columns: Sequence[str]) -> SparkQuestion:
    def local(place: SparkPlace) -> Path:
        return place.bucket / full_scan.TABLE

    return SparkQuestion(
        ways={
            JVM_READER: lambda place: _rows_through(
                place.session.read.parquet(f"{local(place).as_uri()}/*/data.parquet").select(*columns)
            ),
            OURS: lambda place: _rows_through(_cold(place, str(local(place)), columns)),
            READ: lambda place: _rows_through(cold.read(place.session, str(local(place)), columns=columns)),
        },
        warm_calls=3,
    )


def _between(column: str, begin: str, end: str) -> str:
    kind = "timestamp" if column == "ts" else "date"
    return f"{column} >= {kind} '{begin}' and {column} < {kind} '{end}'"


def _url(path: str) -> str:
    return f"s3://{BUCKET}/{path}"


def _parquet(place: SparkPlace, path: str, bucket: str = BUCKET) -> DataFrame:
    return place.session.read.parquet(f"s3a://{bucket}/{path}")


def _cold(place: SparkPlace, url: str, columns: Sequence[str], where: str | None = None) -> DataFrame:
    """Load a table as is recommended: the condition is an option. No column at all is enough to count rows."""
    told = {"columns": ",".join(columns)} if where is None else {"columns": ",".join(columns), "where": where}
    return place.session.read.format("coldparquet").options(**told).load(url)


def _summary(frame: DataFrame, columns: Sequence[str]) -> list[Any]:
    """Return the number of rows, and the largest value of every column, so that all of them have to be read."""
    from pyspark.sql import functions

    largest = [functions.max(name).alias(name) for name in columns]
    row = _only_row(frame.agg(functions.count(functions.lit(1)).alias("rows"), *largest))
    return [row["rows"], *(str(row[name]) for name in columns)]


def _extremes(frame: DataFrame) -> list[str]:
    from pyspark.sql import functions

    row = _only_row(frame.agg(functions.min("ts").alias("first"), functions.max("ts").alias("last")))
    return [_text(row["first"]), _text(row["last"])]


def _only_row(frame: DataFrame) -> Row:
    [row] = frame.collect()
    return row


def _text(time: datetime) -> str:
    """Return a time in UTC; what Spark collects has no zone, and is in that of the machine."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"


def _rows_through(frame: DataFrame) -> int:
    """Bring every row as far as Spark's own, throw it away, and return how many there were."""
    from pyspark.sql import Observation, functions

    seen = Observation()
    frame.observe(seen, functions.count(functions.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    rows: int = seen.get["rows"]
    return rows


if __name__ == "__main__":
    main(benchmark)
