"""Drivers of their own: a cluster of two executors, Spark Connect, Delta; the same answers, data requests alone once tasks run, and a death."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.live_servers import is_installed
from tests.support.questdb_tables import assert_same_rows
from tests.support.spark_jobs import (
    DAYS,
    ROWS,
    ask_cluster,
    ask_everything,
    convert_through_delta,
    failures_of_reading,
    follow_what_is_found,
    make_bucket,
    make_trades,
    prices_found,
)
from tests.support.spark_sessions import ROOT, run_in_spark
from tests.support.table_copies import expected_of, make_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ColdStoreServer]:
    make_bucket(tmp_path / "buckets" / "bucket")
    with ColdStoreServer(tmp_path / "buckets") as server:
        yield server


def variables_of(store: ColdStoreServer) -> dict[str, str]:
    """What a driver's environment says of the store; executors on the same machine inherit it."""
    options = store.storage_options
    return {
        "AWS_ENDPOINT_URL": store.endpoint_url,
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_REGION": "us-east-1",
    }


def assert_everything_answered(answers: dict[str, Any], store: ColdStoreServer) -> None:
    assert answers["source"] == prices_found()
    assert answers["read"] == prices_found()
    assert answers["count"] == DAYS * ROWS
    assert answers["min_max"] == [0, DAYS * ROWS - 2]
    assert answers["pythons"] == [sys.executable]
    assert answers["cores"] == 2
    assert answers["written"] == prices_found()
    assert answers["pipeline"] == {"written": DAYS}
    assert (answers["nowhere"], answers["broken write"]) == ("NotFound", "NullValue")
    assert "partitions" in answers["explain_read"]
    for name in ("source", "read"):
        assert_only_data_once_tasks_run(store, name)


def assert_only_data_once_tasks_run(store: ColdStoreServer, name: str) -> None:
    """Whatever is asked from the first data on is data: no listing, no sidecar, no HEAD, nothing of a day that is left out."""
    asked = sorted(
        (request for request in store.requests if f"{name}/trades" in f"{request.path} {unquote(request.query)}"),
        key=lambda request: request.started_s,
    )
    of_data = [request.path.endswith("/data.parquet") and request.operation == "GetObject" for request in asked]
    assert any(of_data)
    assert all(of_data[of_data.index(True) :])
    assert not [
        request for request, is_data in zip(asked, of_data, strict=True) if is_data and "2024-03-01" in request.path
    ]


def test_a_cluster_and_the_death_of_an_executor(store: ColdStoreServer, tmp_path: Path) -> None:
    answers = run_in_spark(
        ask_cluster,
        "s3://bucket",
        str(tmp_path / "marker"),
        mode="cluster",
        directory=tmp_path / "spark",
        variables=variables_of(store),
    )
    assert (tmp_path / "marker").exists()
    assert answers.pop("after a death") == [float(price) for price in range(DAYS * ROWS)]
    assert "partitions" in answers["explain"]
    assert_everything_answered(answers, store)


def test_spark_connect(store: ColdStoreServer, tmp_path: Path) -> None:
    answers = run_in_spark(
        ask_everything,
        "s3://bucket",
        mode="connect",
        directory=tmp_path / "spark",
        variables=variables_of(store),
    )
    assert answers["explain"] == "ConnectSession"
    assert_everything_answered(answers, store)


@pytest.mark.soak  # Spark gives a stream's Python 10 s to begin, which a busy machine needs several times
@pytest.mark.parametrize("mode", ["cluster", "connect"])
def test_streams(store: ColdStoreServer, tmp_path: Path, mode: Literal["cluster", "connect"]) -> None:
    copied = run_in_spark(
        follow_what_is_found,
        "s3://bucket",
        str(tmp_path),
        mode=mode,
        directory=tmp_path / "spark",
        variables=variables_of(store),
    )
    assert copied == prices_found()


def test_workers_without_the_package_are_told(tmp_path: Path) -> None:
    bare = Path(sys.base_prefix, "bin", "python3")
    failures = run_in_spark(
        failures_of_reading,
        str(make_trades(tmp_path)),
        mode="local",
        directory=tmp_path / "spark",
        variables={"PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": str(bare)},
    )
    assert [kind for kind, _ in failures] == ["MissingPackage", "MissingPackage"]
    assert all("install coldparquet[spark]" in sentence for _, sentence in failures)


def test_no_java_is_told(tmp_path: Path) -> None:
    script = (
        "from pyspark.sql import SparkSession; import coldparquet.spark as cold\n"
        "try: SparkSession.builder.getOrCreate()\n"
        "except Exception as error: print(cold.error_of(error))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (
        result.stdout.strip()
        == "Spark did not start: it needs Java 17 or later; install it and let JAVA_HOME name its directory"
    )


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
