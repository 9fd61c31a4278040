"""The tests' own Spark: its workers run this Python, and it leaves nothing in the checkout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from coldparquet.spark.cores import core_count
from tests.support.spark_jobs import worker_pythons
from tests.support.spark_sessions import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_run_this_python_and_nothing_is_left_in_the_checkout(spark: SparkSession) -> None:
    assert worker_pythons(spark) == [sys.executable]
    assert core_count(spark) == 2
    assert not [
        name for name in ("metastore_db", "derby.log", "spark-warehouse", "artifacts") if (ROOT / name).exists()
    ]
