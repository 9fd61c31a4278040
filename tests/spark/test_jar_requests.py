"""Natural queries with coldparquet's jar, on a year of days: what they ask of the store, and Spark's own rows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import coldparquet.spark
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.spark_jobs import metrics_of_a_scan
from tests.support.spark_sessions import JAR_VARIABLE, run_in_spark
from tests.support.spark_values import collected, in_any_order, shown_metrics
from tests.support.spark_year import DAYS, URL, make_year

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 20_000
THREE_DAYS = "timestamp >= '2025-03-10' and timestamp < '2025-03-13'"
OPENING = 5
"""Requests of every planning: catalogue, listing, newest sidecar, and two files that a table of QuestDB has."""


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_year(tmp_path_factory.mktemp("year"), ROWS)


@pytest.fixture
def store(year: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(year.parent.parent) as server:
        yield server


@pytest.fixture
def ours(spark_with_jar: SparkSession, store: ColdStoreServer) -> DataFrame:
    """The table, loaded as everyone loads it."""
    frame = spark_with_jar.read.format("coldparquet").option("storage_options", json.dumps(store.storage_options))
    loaded = frame.load(URL)
    assert len(store.requests) == OPENING
    return loaded


@pytest.fixture
def native(spark: SparkSession, ours: DataFrame, year: Path) -> DataFrame:
    """The same files through Spark's own reader."""
    return spark.read.schema(ours.schema).parquet(f"{year.as_uri()}/*/data.parquet")


def asked(store: ColdStoreServer) -> tuple[int, int, int]:
    """Return the requests after loading: all of them, those for data, and the bytes of these."""
    requests = store.requests[OPENING:]
    data = [one for one in requests if one.operation == "GetObject" and one.path.endswith("data.parquet")]
    return len(requests), len(data), sum(one.bytes_sent for one in data)


def of_day(frame: DataFrame, date: str) -> DataFrame:
    return frame.where(f"date(timestamp) = '{date}'").select("timestamp", "price")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], int, int, float]] = {
    "count of three days": (lambda year: year.where(THREE_DAYS).groupBy().count(), OPENING + 3, 0, 0),
    "average of three days": (
        lambda year: year.where(THREE_DAYS).groupBy("symbol").agg(F.round(F.avg("price"), 6)),
        OPENING + 9,
        3,
        3e6,
    ),
    "union of two days": (lambda year: of_day(year, "2025-02-01").union(of_day(year, "2025-11-30")), 24, 4, 1.2e6),
    "between": (lambda year: year.where("timestamp between '2025-05-05' and '2025-05-06'").select("id"), 16, 4, 1e6),
    "without a zone": (
        lambda year: year.where("cast(timestamp as timestamp_ntz) < timestamp_ntz'2025-01-02 00:00:00'").select("id"),
        16,
        4,
        1e6,
    ),
    "another zone": (
        lambda year: year.where("timestamp < timestamp'2025-01-01 20:00:00 America/New_York'").groupBy().count(),
        OPENING + 4,
        1,
        3e5,
    ),
    "extremes of a month": (
        lambda year: year.where("timestamp >= '2025-06-01' and timestamp < '2025-07-01'").agg(
            F.min("timestamp"), F.max("timestamp"), F.min("id"), F.max("size"), F.count("price"), F.count("*")
        ),
        OPENING + 30,
        0,
        0,
    ),
    "count of all": (lambda year: year.groupBy().count(), OPENING + 2, 0, 0),
    "self join": (
        lambda year: (
            of_day(year, "2025-02-01")
            .alias("a")
            .join(of_day(year, "2025-02-02").alias("b"), F.expr("a.price = b.price"))
        ),
        30,
        6,
        2e6,
    ),
}
"""What is asked, the most requests of the query, those of them for data, and their bytes."""


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_costs_what_it_needs(name: str, ours: DataFrame, native: DataFrame, store: ColdStoreServer) -> None:
    ask, most_requests, most_for_data, most_bytes = QUERIES[name]
    found = in_any_order(collected(ask(ours)))
    requests, for_data, fetched = asked(store)
    assert requests <= most_requests
    assert for_data <= most_for_data
    assert fetched <= most_bytes
    assert found == in_any_order(collected(ask(native)))


def test_spark_knows_how_much_a_scan_reads_and_broadcasts_what_is_little(
    ours: DataFrame, store: ColdStoreServer
) -> None:
    def estimate(frame: DataFrame) -> tuple[int, int]:
        scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        rows = scan.scan().estimateStatistics().numRows().getAsLong()
        return rows, int(str(scan.stats().sizeInBytes()))

    prices = ours.select("timestamp", "price")
    assert estimate(prices) == (DAYS * ROWS, DAYS * ROWS * 24)
    three_days = prices.where(THREE_DAYS)
    assert estimate(three_days) == (3 * ROWS, 3 * ROWS * 24)
    assert estimate(of_day(ours, "2025-02-01")) == (ROWS, ROWS * 24)
    assert estimate(three_days.where("price > 3").limit(7))[0] == 7
    assert estimate(prices.where("timestamp < '2025-01-01'"))[0] == 0
    assert not asked(store)[0]
    joined = three_days.alias("few").join(ours.alias("all"), F.expr("few.timestamp = all.timestamp"))
    assert "BroadcastHashJoin" in joined._jdf.queryExecution().executedPlan().toString()


def test_a_join_by_time_reads_the_days_that_its_other_side_has(
    spark_with_jar: SparkSession, ours: DataFrame, native: DataFrame, store: ColdStoreServer, tmp_path: Path
) -> None:
    spacing = f"interval {86_400_000_000 // ROWS} microseconds"
    spark_with_jar.range(40).selectExpr(
        f"timestamp'2025-01-05' + id * 9 * interval 1 day + id * {spacing} as at", "id % 13 as kind"
    ).write.parquet(str(tmp_path / "events"))
    events = spark_with_jar.read.parquet(str(tmp_path / "events")).where("kind = 5")
    asked_before = len(store.requests)
    joined = ours.join(events, ours.timestamp == events.at).select("id", "price", "kind")
    found = in_any_order(collected(joined))
    requests, for_data, fetched = asked(store)
    assert asked_before == OPENING
    assert len(found) == 3
    assert requests <= 40
    assert for_data <= 6
    assert fetched <= 2e6
    assert found == in_any_order(
        collected(native.join(events, native.timestamp == events.at).select("id", "price", "kind"))
    )


def test_a_limit_reads_the_first_rows_alone(ours: DataFrame, store: ColdStoreServer) -> None:
    assert [row.id for row in ours.limit(5).collect()] == list(range(5))
    requests, for_data, fetched = asked(store)
    assert for_data == 1
    assert requests in (3, OPENING + 3)  # the first within a second of the load
    assert fetched <= 2e6


def test_a_limit_behind_a_filter_reads_one_day(ours: DataFrame, store: ColdStoreServer) -> None:
    """All days may hold such rows, but Spark stops after the first task, which has one row group."""
    found = ours.where("size = 7 and symbol in ('BTC', 'ETH')").limit(5).collect()
    assert len(found) == 5
    assert all((row["size"], row.symbol in ("BTC", "ETH")) == (7, True) for row in found)
    _, for_data, fetched = asked(store)
    assert for_data <= 3
    assert fetched <= 2e6


def test_a_view_is_asked_for_each_day_alone(
    spark_with_jar: SparkSession, ours: DataFrame, store: ColdStoreServer
) -> None:
    ours.createOrReplaceTempView("year")
    sql = "select count(*) as rows from year where timestamp >= :start and timestamp < :start + interval 1 day"
    for date in ("2025-01-01", "2025-12-31"):
        before = len(store.requests)
        found = spark_with_jar.sql(sql.replace(":start", f"timestamp'{date}'")).collect()
        assert [row.rows for row in found] == [ROWS]
        assert len(store.requests) - before <= OPENING + 1
    whole = spark_with_jar.sql("select count(*) as rows, max(id) as last from year").collect()
    assert [tuple(row) for row in whole] == [(DAYS * ROWS, DAYS * ROWS - 1)]


def test_explain_says_what_was_pushed(ours: DataFrame, store: ColdStoreServer) -> None:
    rows = ours.where(THREE_DAYS).where("symbol = 'BTC' and id % 2 = 0").select("price")
    shown = rows._jdf.queryExecution().toString()
    assert "symbol = 'BTC'" in shown.partition("PushedFilters")[2]
    assert "ReadSchema: struct<price:double,id:bigint>" in shown
    text = coldparquet.spark.explain(rows)
    assert "filter, taken over from Spark: symbol = 'BTC'" in text
    assert "columns       price, id" in text
    assert asked(store)[1] == 0
    assert "PlannedCost" not in shown
    rows.collect()
    _, for_data, fetched = asked(store)
    cost = rows._jdf.queryExecution().toString().partition("PlannedCost: [")[2].partition("]")[0]
    assert f"planned requests for data {for_data}, planned bytes of data {fetched:,}, planned dollars $0.0000" in cost
    counted = coldparquet.spark.explain(ours.where(THREE_DAYS).groupBy().count())
    assert counted.startswith("answered on the driver: count(*)")


def test_the_ui_shows_what_a_scan_costs(store: ColdStoreServer, jar: Path, tmp_path: Path) -> None:
    """Where the UI knows the classes of the jar: after ADD JAR it would show N/A, and warn."""
    shown = run_in_spark(
        metrics_of_a_scan,
        json.dumps(store.storage_options),
        THREE_DAYS,
        mode="local",
        directory=tmp_path,
        settings={"spark.jars": str(jar)},
    )
    requests, for_data, fetched = asked(store)
    assert shown["planned requests for data"] == str(for_data)
    assert shown["planned bytes of data"] == f"{fetched:,}"
    assert shown["requests that were sent to plan"] == str(requests - for_data)
    assert shown["planned dollars"].startswith("$0.0000")


@pytest.mark.skipif(JAR_VARIABLE in os.environ, reason="the session has the jar from its start, and knows its classes")
def test_the_ui_shows_nothing_that_it_does_not_know(spark_with_jar: SparkSession, ours: DataFrame) -> None:
    shown = shown_metrics(spark_with_jar, ours.where(THREE_DAYS).select("price"))
    assert shown["number of output rows"] == f"{3 * ROWS:,}"
    assert not [name for name in shown if "planned" in name]
