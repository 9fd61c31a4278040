"""Hive lakes through the data source: the rows that Spark's own reader gives for what Spark wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "day = '2024-03-02'",
        "day >= '2024-03-02' and part in (1, 3)",
        "part is null or id < 5",
        "not (part = 1) and venue like 'X%'",
    ],
)
def test_a_lake_that_spark_wrote_has_the_rows_that_spark_reads(spark: SparkSession, tmp_path: Path, where: str) -> None:
    rows = spark.range(120).selectExpr(
        "id",
        "date_add(date'2024-03-01', cast(id % 3 as int)) as day",
        "case when id % 5 = 4 then null else cast(id % 5 as bigint) end as part",
        "case id % 2 when 0 then 'XETRA' else 'other venue' end as venue",
        "named_struct('a', id, 'b', array(cast(id as string))) as nested",
    )
    lake = str(tmp_path / "lake")
    rows.repartition(2).write.partitionBy("day", "part").parquet(lake)
    ours = spark.read.format("coldparquet").load(lake)
    theirs = spark.read.parquet(lake)
    columns = ["id", "day", "part", "venue", "nested"]
    assert dict(ours.dtypes)["day"] == "date"
    found = ours.where(where).select(columns).orderBy("id").collect()
    expected = theirs.where(where).select(columns).orderBy("id").collect()
    assert found == expected
    assert ours.where(where).count() == len(expected)


def test_structs_that_differ_and_typed_keys_are_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for year, struct in ((2023, "named_struct('b', 'x', 'a', id)"), (2024, "named_struct('a', id, 'c', array(id))")):
        rows = spark.range(4).selectExpr("id", f"if(id = 1, null, {struct}) as s")
        rows.coalesce(1).write.parquet(f"{lake}/year={year}/zip=00{year % 10}")
    ours = spark.read.format("coldparquet").options(mergeSchema=True, keys="year=int32,zip=text").load(lake)
    schema = "id long, s struct<a: long, b: string, c: array<long>>, year int, zip string"
    theirs = spark.read.schema(schema).parquet(lake)
    assert {name: type_ for name, type_ in ours.dtypes if name != "s"} == {
        name: type_ for name, type_ in theirs.dtypes if name != "s"
    }
    for where in ("true", "zip = '003'", "s.c IS NOT NULL", "s IS NULL AND year = 2024", "s.b = 'x' AND s.a > 1"):
        columns = ["id", "s.a", "s.b", "s.c", "year", "zip"]
        found = ours.where(where).select(columns).orderBy("year", "id").collect()
        assert found == theirs.where(where).select(columns).orderBy("year", "id").collect()
        assert found
