"""``coldparquet pipeline --engine spark``: which Python its workers run. Without Spark."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tests.support.table_copies import make_lake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Run


@pytest.mark.parametrize("chosen", [None, "/opt/env/bin/python"])
def test_workers_of_spark_run_this_python(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    found = []

    class Builder:
        def appName(self, _name: str) -> Builder:  # noqa: N802 - Spark's name
            return self

        def getOrCreate(self) -> None:  # noqa: N802
            found.append(os.environ["PYSPARK_PYTHON"])
            raise PySparkRuntimeError("JAVA_GATEWAY_EXITED")

    monkeypatch.setenv("PYSPARK_PYTHON", chosen or "to be put back")
    if chosen is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert run("pipeline", "index", make_lake(tmp_path / "bucket", "interval_day"), "--engine", "spark").exit_code == 1
    assert found == [chosen or sys.executable]
