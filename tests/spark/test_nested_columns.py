"""Nested columns and half floats in Spark's SQL, with its own filters or with those of the jar."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = pa.table(
    {
        "id": [0, 1, 2, 3],
        "s": [{"x": 1, "l": [1.5]}, None, {"x": None, "l": []}, {"x": 3, "l": None}],
        "m": pa.array([[("a", 1)], [], None, [("b", None)]], pa.map_(pa.string(), pa.int64())),
        "half": pa.array([1, None, 2.5, 3], pa.float16()),
        "raw": pa.array([b"12", None, b"ab", b"cd"], pa.binary(2)),
        "wide": pa.array([[Decimal("1.5")], None, [], [None]], pa.list_(pa.decimal256(60, 1))),
    }
)
QUERIES = {
    "SELECT id, s.x, s.l FROM t": [(0, 1, [1.5]), (1, None, None), (2, None, []), (3, 3, None)],
    "SELECT id, m['a'], size(m) FROM t WHERE m IS NOT NULL": [(0, 1, 1), (1, None, 0), (3, None, 1)],
    "SELECT id FROM t WHERE s IS NULL": [(1,)],
    "SELECT id FROM t WHERE s.x = 3": [(3,)],
    "SELECT id FROM t WHERE s.x IS NOT NULL AND id > 0": [(3,)],
    "SELECT id, half FROM t WHERE half > 1": [(2, 2.5), (3, 3.0)],
    "SELECT id, raw FROM t WHERE raw = X'6162'": [(2, bytearray(b"ab"))],
    "SELECT wide FROM t WHERE id = 0": [(["1.5"],)],
    "SELECT count(s), count(half), max(half) FROM t": [(3, 3, 3.0)],
    "SELECT id FROM t WHERE array_contains(s.l, 1.5D)": [(0,)],
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "2024-03-01").mkdir()
    pq.write_table(ROWS, tmp_path / "2024-03-01" / "data.parquet", row_group_size=3)
    return tmp_path


def _ask(spark: SparkSession, lake: Path) -> dict[str, Any]:
    spark.read.format("coldparquet").load(str(lake)).createOrReplaceTempView("t")
    return {query: [tuple(row) for row in spark.sql(query).collect()] for query in QUERIES}


@pytest.mark.slow
def test_with_the_filters_of_python_data_sources(spark: SparkSession, lake: Path) -> None:
    assert _ask(spark, lake) == QUERIES


def test_with_the_jar(spark_with_jar: SparkSession, lake: Path) -> None:
    assert _ask(spark_with_jar, lake) == QUERIES
