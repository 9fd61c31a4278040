"""Conversions through Delta's own reader and writer, where its jars were fetched."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from tests.support.live_servers import is_installed
from tests.support.questdb_tables import assert_same_rows
from tests.support.spark_jobs import convert_through_delta
from tests.support.spark_sessions import ROOT, run_in_spark
from tests.support.table_copies import expected_of, make_lake

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

SCRIPT = "delta_jars.sh"
TABLE = "interval_day"


@pytest.fixture
def settings() -> dict[str, str]:
    """What a session needs to know Delta."""
    if not is_installed(SCRIPT):
        pytest.skip(f"Spark with Delta was not started: its jars are missing here, localstack/{SCRIPT} fetches them")
    jars = subprocess.run([ROOT / "localstack" / SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    return {
        "spark.driver.extraClassPath": f"{jars.stdout.strip()}/*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


async def test_a_table_becomes_delta_and_comes_back(settings: dict[str, str], tmp_path: Path) -> None:
    table = make_lake(tmp_path, TABLE) / "db" / TABLE
    told = run_in_spark(
        convert_through_delta, str(table), str(tmp_path), mode="local", directory=tmp_path / "spark", settings=settings
    )
    assert told["first"] == ["converted", None, None]
    assert told["again"] == [
        "kept",
        None,
        "the destination is complete already; whether the source changed since was not looked at",
    ]
    assert told["other"][:2] == ["failed", "OtherTable"]
    assert told["back"] == ["converted", None, None]
    # Of which files the one commit consists, as Delta's protocol has it.
    [commit] = (tmp_path / "delta" / "_delta_log").glob("*.json")
    added = [action["add"]["path"] for line in commit.read_text().splitlines() if "add" in (action := json.loads(line))]
    assert sum(pq.read_metadata(tmp_path / "delta" / name).num_rows for name in added) == expected_of(TABLE).num_rows
    async with cp.open_table(tmp_path / "back", options=cp.ReadOptions(symbols="string")) as back:
        assert_same_rows(await back.scan().to_arrow(), expected_of(TABLE))
