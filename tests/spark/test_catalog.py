"""``spark.sql.catalog.cold=coldparquet.Catalog``: tables by name, with coldparquet's jar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import coldparquet as cp

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = "timestamp'2024-03-01 00:00:00'"


@pytest.fixture
def cold(spark_with_jar: SparkSession, tmp_path: Path) -> SparkSession:
    """A session of its own, because the settings of a catalog count once."""
    session = spark_with_jar.newSession()
    session.conf.set("spark.sql.catalog.cold", "coldparquet.Catalog")
    session.conf.set("spark.sql.catalog.cold.url", f"{tmp_path}/")
    session.conf.set("spark.sql.catalog.cold.goal", "cheap")  # readers and writers have options of their own
    session.conf.set("spark.sql.catalog.cold.codec", "snappy")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def names(session: SparkSession, statement: str) -> list[str]:
    return sorted(str(row[-1] if len(row) == 1 else row[1]) for row in session.sql(statement).collect())


def test_a_life_of_a_table_in_sql(cold: SparkSession, tmp_path: Path) -> None:
    assert names(cold, "SHOW TABLES IN cold.db") == []
    cold.range(48).selectExpr(
        f"{FIRST} + id * interval 1 hour AS ts", "cast(id % 3 AS string) AS symbol", "id"
    ).createTempView("hours")
    cold.sql("CREATE TABLE cold.db.trades PARTITIONED BY (days(ts)) AS SELECT * FROM hours WHERE id < 24")
    assert sorted(path.name[:10] for path in (tmp_path / "db" / "trades").iterdir() if path.is_dir()) == ["2024-03-01"]
    assert names(cold, "SHOW TABLES IN cold.db") == ["trades"]
    assert names(cold, "SHOW NAMESPACES IN cold") == ["db"]
    assert [row[0] for row in cold.sql("DESCRIBE cold.db.trades").collect()][:3] == ["ts", "symbol", "id"]

    cold.sql("INSERT INTO cold.db.trades SELECT * FROM hours WHERE id >= 24")
    of_day = cold.sql("SELECT symbol, count(*) FROM cold.db.trades WHERE ts >= '2024-03-02' GROUP BY symbol")
    assert sorted(map(tuple, of_day.collect())) == [("0", 8), ("1", 8), ("2", 8)]
    assert "PushedFilters" in of_day._jdf.queryExecution().toString()

    cold.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    cold.sql("INSERT OVERWRITE cold.db.trades SELECT ts, 'new', id FROM hours WHERE id = 30")
    assert cold.sql("SELECT count(*), min(ts), max(id) FROM cold.db.trades").collect()[0][0] == 25
    codecs = {
        pq.ParquetFile(path).metadata.row_group(0).column(2).compression for path in tmp_path.rglob("data.parquet")
    }
    assert codecs == {"SNAPPY"}
    with cp.sync.open_table(str(tmp_path / "db" / "trades")) as table:
        assert table.scan(["id"], "symbol = 'new'").to_arrow()["id"].to_pylist() == [30]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM cold.db.nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("CREATE TABLE cold.db.empty (ts timestamp)", "begins a table with its first rows"),
        ("CREATE TABLE cold.db.t PARTITIONED BY (bucket(3, id)) AS SELECT 1 AS id", "partitions by time"),
        ("CREATE TABLE cold.db.t AS SELECT 1 AS id", "timestamp"),
        ("CREATE OR REPLACE TABLE cold.db.t AS SELECT 1 AS id", "INSERT OVERWRITE"),
        ("CREATE NAMESPACE cold.other", "makes no namespaces"),
        ("SELECT * FROM cold.db.`t*`", "no name of a directory"),
    ],
)
def test_what_it_does_not_do_says_what_to_do(cold: SparkSession, statement: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=said):
        cold.sql(statement).collect()
    assert not list(tmp_path.rglob("*.parquet"))


def test_statements_about_a_table_that_would_lose_rows_are_refused(cold: SparkSession, tmp_path: Path) -> None:
    cold.sql(f"CREATE TABLE cold.db.t PARTITIONED BY (days(ts)) AS SELECT {FIRST} AS ts, 1L AS id")
    cold.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    for statement, said in (
        (f"INSERT OVERWRITE cold.db.t SELECT {FIRST} + interval 1 day, 2L", "truncate"),
        ("DROP TABLE cold.db.t", "delete the directory"),
        ("ALTER TABLE cold.db.t ADD COLUMN other int", "changes no tables"),
        ("SELECT * FROM cold.db.t VERSION AS OF 1", r"no VERSION AS OF 1 of cold\.db\.t.*CREATE TABLE"),
        ("SELECT * FROM cold.db.t TIMESTAMP AS OF '2024-03-01'", r"no TIMESTAMP AS OF of cold\.db\.t.*CREATE TABLE"),
        (
            f"CREATE TABLE cold.db.t PARTITIONED BY (days(ts)) AS SELECT {FIRST} AS ts, 1L AS id",
            "TABLE_OR_VIEW_ALREADY_EXISTS",
        ),
    ):
        with pytest.raises(Exception, match=said):
            cold.sql(statement).collect()
    assert cold.sql("SELECT count(*) FROM cold.db.t").collect()[0][0] == 1
    assert len(list((tmp_path / "db" / "t").glob("2024*/data.parquet"))) == 1
