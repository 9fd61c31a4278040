"""A table that changes while a job reads it, and credentials that a person passes to a real S3 server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import coldparquet.spark as cold
from coldparquet.errors import NotFoundError, ObjectChangedError
from tests.support.live_servers import REQUIRED_VARIABLE, is_installed, live_minio
from tests.support.small_tables import day_of_trades
from tests.support.spark_jobs import COLUMNS, DAYS, ROWS, WHERE, make_trades, prices, prices_found

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_table_that_changes_during_the_job(spark: SparkSession, tmp_path: Path) -> None:
    table = make_trades(tmp_path)
    frame = cold.read(spark, str(table), columns=["price"])
    data = table / "2024-03-02.7" / "data.parquet"
    data.write_bytes(day_of_trades(1, rows=ROWS // 2, row_groups=2))
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    error = cold.error_of(caught.value)
    assert isinstance(error, ObjectChangedError)
    assert str(data) in str(error)
    again = cold.read(spark, str(table), columns=["price"], where="ts < '2024-03-02'")
    assert len(prices(again)) == ROWS, "what did not change is read as ever"


def test_a_partition_that_vanishes_during_the_job(spark: SparkSession, tmp_path: Path) -> None:
    table = make_trades(tmp_path)
    frame = cold.read(spark, str(table), columns=["price"])
    (table / "2024-03-03.7" / "data.parquet").unlink()
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    error = cold.error_of(caught.value)
    assert isinstance(error, NotFoundError)
    assert "2024-03-03.7" in str(error)


@pytest.mark.slow
@pytest.mark.integration
def test_minio_with_credentials_that_a_person_passes(spark: SparkSession, tmp_path: Path) -> None:
    if not is_installed("minio.sh"):
        message = "MinIO was not started: 'localstack/minio.sh --install' was never run here"
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(f"{message}, and {REQUIRED_VARIABLE} is set")
        pytest.skip(message)
    with live_minio(tmp_path / "minio") as server:
        server.upload(make_trades(tmp_path), "trades")
        url, options = f"s3://{server.bucket}/trades", server.storage_options
        frame = cold.read(spark, url, columns=COLUMNS, where=WHERE, storage_options=options)
        assert prices(frame) == prices_found()
        assert cold.count(spark, url, storage_options=options) == DAYS * ROWS
        reader = spark.read.format("coldparquet").option("columns", ",".join(COLUMNS))
        for name, value in options.items():
            reader = reader.option(f"storage.{name}", str(value))
        assert prices(reader.load(url).where(WHERE)) == prices_found()
        assert server.password not in server.log.read_text(errors="replace")
