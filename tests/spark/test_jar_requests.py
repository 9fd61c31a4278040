"""Natural queries with coldparquet's jar, on a year of days: what they ask of the store, and Spark's own rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import coldparquet.spark
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.spark_values import collected, in_any_order
from tests.support.spark_year import make_year

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

URL = "s3://cold/year"
ROWS = 20_000
THREE_DAYS = "timestamp >= '2025-03-10' and timestamp < '2025-03-13'"


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_year(tmp_path_factory.mktemp("year"), ROWS)


@pytest.fixture
def store(year: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(year.parent.parent) as server:
        yield server


def frames(spark: SparkSession, store: ColdStoreServer, year: Path) -> tuple[DataFrame, DataFrame]:
    """Return the table through our source and through Spark's own reader."""
    ours = spark.read.format("coldparquet").option("storage_options", json.dumps(store.storage_options)).load(URL)
    return ours, spark.read.schema(ours.schema).parquet(f"{year.as_uri()}/*/data.parquet")


def days(frame: DataFrame, *dates: str) -> DataFrame:
    parts = [frame.where(f"date(timestamp) = '{date}'").select("timestamp", "price") for date in dates]
    return parts[0].union(parts[1])


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], int, float]] = {
    "count of three days": (lambda year: year.where(THREE_DAYS).groupBy().count(), 10, 0),
    "average of three days": (lambda year: year.where(THREE_DAYS).groupBy("symbol").agg(F.avg("price")), 16, 3e6),
    "union of two days": (lambda year: days(year, "2025-02-01", "2025-11-30"), 24, 1e6),
    "between": (lambda year: year.where("timestamp between '2025-05-05' and '2025-05-06'").select("id"), 16, 1e6),
    "self join": (
        lambda year: (
            year.where("id < 9").select("id").join(year.where("id between 5 and 20").select("id", "size"), "id")
        ),
        750,
        1e6,
    ),
}
"""What is asked, the most requests, those of loading included, and the most bytes of data."""


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_costs_what_it_needs(
    spark_with_jar: SparkSession, store: ColdStoreServer, year: Path, name: str
) -> None:
    ask, most_requests, most_bytes = QUERIES[name]
    ours, native = frames(spark_with_jar, store, year)
    found = in_any_order(collected(ask(ours)))
    requests, fetched = spent(store)
    print(name, requests, fetched)
    assert requests <= most_requests
    assert fetched <= most_bytes
    assert found == in_any_order(collected(ask(native)))


def spent(store: ColdStoreServer) -> tuple[int, int]:
    """Return the number of requests, and the bytes of data."""
    return len(store.requests), sum(
        request.sent_bytes for request in store.requests if request.path.endswith("data.parquet")
    )


def test_a_limit_reads_the_first_rows_alone(spark_with_jar: SparkSession, store: ColdStoreServer, year: Path) -> None:
    ours, _ = frames(spark_with_jar, store, year)
    assert [row.id for row in ours.limit(5).collect()] == list(range(5))
    requests, fetched = spent(store)
    print(requests, fetched)
    assert requests <= 12
    assert fetched <= 2e6
