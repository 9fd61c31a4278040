"""Oracle: what Spark's own reader makes of the same ``data.parquet``, whole and filtered."""

from __future__ import annotations

from functools import reduce
from itertools import repeat
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from tests.support.questdb_tables import copy_parquet_partitions, expected_rows
from tests.support.spark_values import collected, in_any_order

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = ("types_all", "codecs", "encodings", "pages", "symbols", "column_added_before", "o3_in_place", "dedup")
ELSEWHERE = ("CHAR", "GEOHASH", "IPv4", "LONG256", "UUID", "TIMESTAMP_NS", "DATE", "DOUBLE[", "DECIMAL(76")
"""Types that Spark's own reader refuses, or shows as they are stored, or whose extremes it cannot hold; for them see the oracle
of QuestDB's answers."""
BROTLI = "brotli"
"""In the names of columns with a codec for which Spark has no class."""

CONDITIONS = (
    "ts >= '2024-04-01T00:00:00' and ts < '2024-04-01T00:20:00'",
    "id between 100 and 350",
    "id in (1, 700, 1999, 5000) and bucket is not null",
    "half > 12.5",
    "color = 'red'",
    "color is null and id < 1000",
    "color <> 'red' or code is null",
    "code like '000001%'",
    "not (bucket <= 3)",
    "cast(ts as date) = date'2024-04-01' and id % 701 = 0",
    "back > ts and id < 50",
    "code <=> null or half > 900",
)
"""Of the table row_groups: pushed, pushed in part, and not pushed at all."""


def both(spark: SparkSession, table: str, directory: Path) -> tuple[DataFrame, DataFrame]:
    """Return the Parquet partitions of a golden table through our reader and through Spark's: columns that both know."""
    path = copy_parquet_partitions(table, directory)
    columns = [name for name, type_of in questdb_types(table).items() if is_read_alike(name, type_of)]
    ours = spark.read.format("coldparquet").option("columns", ",".join(columns)).load(str(path))
    return ours, spark.read.schema(ours.schema).parquet(f"{path.as_uri()}/*/data.parquet")


def questdb_types(table: str) -> dict[str, str]:
    return {field.name: (field.metadata or {})[b"questdb.type"].decode() for field in expected_rows(table).schema}


def is_read_alike(name: str, type_of: str) -> bool:
    return BROTLI not in name and not type_of.startswith(ELSEWHERE)


@pytest.mark.parametrize("table", TABLES)
def test_whole_tables(spark: SparkSession, table: str, tmp_path: Path) -> None:
    ours, native = both(spark, table, tmp_path)
    assert in_any_order(collected(ours)) == in_any_order(collected(native))


def found_by(frames: Iterable[DataFrame]) -> list[str]:
    """Ask all conditions in one job, each of a frame of its own: their rows, with the number of the condition."""
    asked = [
        frame.where(condition).withColumn("condition", lit(number))
        for number, (condition, frame) in enumerate(zip(CONDITIONS, frames, strict=False))
    ]
    columns = collected(reduce(DataFrame.unionAll, asked))
    assert set(columns["condition"]) == set(range(len(CONDITIONS))), "every condition finds something"
    return in_any_order(columns)


@pytest.mark.slow
@pytest.mark.parametrize("session", ["spark", "spark_without_pushdown"])
def test_conditions(session: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    spark: SparkSession = request.getfixturevalue(session)
    ours, native = both(spark, "row_groups", tmp_path)
    path = str(tmp_path / "row_groups")
    reader = spark.read.format("coldparquet").options(columns=",".join(ours.columns), push_filters="true")
    expected = found_by(repeat(native))
    assert found_by(repeat(ours)) == expected
    assert found_by(reader.load(path) for _ in CONDITIONS) == expected, (
        "with filters taken over, where Spark pushes them"
    )
