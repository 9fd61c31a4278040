"""Reading says nothing of pandas: no row comes near it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import coldparquet.spark as cold
from tests.support.spark_jobs import DAYS, ROWS, make_trades

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_reading_warns_of_nothing_and_later_warnings_are_heard(spark: SparkSession, tmp_path: Path) -> None:
    url = str(make_trades(tmp_path))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        rows = cold.read(spark, url, columns=["price"]).count()
        rows_of_source = spark.read.format("coldparquet").option("columns", "price").load(url).count()
        assert heard == []
        warnings.warn("PySpark does not yet fully support pandas", FutureWarning, stacklevel=1)
    assert rows == rows_of_source == DAYS * ROWS
    assert len(heard) == 1
