"""The tests' own Spark: its workers run this Python, and it leaves nothing in the checkout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from coldparquet.spark.helpers import core_count
from tests.support.spark_jobs import worker_pythons
from tests.support.spark_sessions import ROOT, missing_for_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_run_this_python_and_nothing_is_left_in_the_checkout(spark: SparkSession) -> None:
    assert worker_pythons(spark) == [sys.executable]
    assert core_count(spark) == 2
    assert not [
        name for name in ("metastore_db", "derby.log", "spark-warehouse", "artifacts") if (ROOT / name).exists()
    ]


def test_a_java_home_that_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing_for_spark() == f"JAVA_HOME leads nowhere: there is no {tmp_path}/bin/java"
