"""Oracle: every genuine table gives Spark the rows that QuestDB itself answered, of every type, in the same order."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from coldparquet.errors import UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.spark import error_of
from tests.support.questdb_tables import GOLDEN, expected_rows
from tests.support.spark_values import as_spark_shows, collected, without_infinities

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
BEYOND_SPARK = {"types_all": "day"}
"""Columns with dates that lie further from 1970 than Spark's 292,000 years."""


def indexed_copy(table: str, directory: Path) -> str:
    path = shutil.copytree(GOLDEN / table / "table", directory / table)
    asyncio.run(index_table(path, pages=False, pack=False))
    return str(path)


@pytest.mark.parametrize("table", TABLES)
def test_the_whole_table_equals_questdb(spark: SparkSession, table: str, tmp_path: Path) -> None:
    expected = as_spark_shows(expected_rows(table))
    reader = spark.read.format("coldparquet")
    if beyond := BEYOND_SPARK.get(table):
        del expected[beyond]
        reader = reader.option("columns", ",".join(expected))
    frame = reader.load(indexed_copy(table, tmp_path))
    found = without_infinities(collected(frame))
    assert list(found) == list(expected)
    for name, values in expected.items():
        # NaN within arrays differs from itself.
        assert str(found[name]).replace("None", "nan") == str(values).replace("None", "nan"), name


def test_a_value_that_spark_cannot_hold_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("coldparquet").load(indexed_copy("types_all", tmp_path))
    with pytest.raises(PythonException) as caught:
        frame.collect()
    error = error_of(caught.value)
    assert isinstance(error, UnsupportedError)
    assert error.kind == "ValueOutOfRange"
    assert "column 'day' holds DATE values" in str(error)
