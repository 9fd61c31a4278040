"""One Spark for all tests of this folder. Tests marked ``spark`` are left out, loudly, where Java 17 is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldparquet_testing.simulator import ColdStoreServer
from tests.support.live_servers import REQUIRED_VARIABLE
from tests.support.spark_readers import make_store
from tests.support.spark_sessions import (
    FILTER_PUSHDOWN,
    JAR_VARIABLE,
    added_jar,
    build_jar,
    missing_for_spark,
    spark_session,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def java() -> None:
    """Java 17; for tests that start a Spark of their own with ``run_in_spark``."""
    missing = missing_for_spark()
    if missing is None:
        return
    if os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(f"Spark was not started: {missing}, and {REQUIRED_VARIABLE} is set")
    pytest.skip(f"Spark was not started: {missing}")


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:  # noqa: ARG001 - it is only to be there
    """A session on ``local[2]`` in which Python data sources are given filters; leave its settings as they were."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def jar(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it is only to be there
    """``coldparquet.jar`` of these sources; ``COLDPARQUET_TEST_JAR`` names one that is there."""
    given = os.environ.get(JAR_VARIABLE)
    return Path(given) if given else build_jar(tmp_path_factory.mktemp("jar"))


@pytest.fixture
def spark_with_jar(spark_without_pushdown: SparkSession, jar: Path) -> Iterator[SparkSession]:
    """The session with coldparquet's jar, which needs no setting of Spark."""
    with added_jar(spark_without_pushdown, jar):
        yield spark_without_pushdown


@pytest.fixture
def spark_without_pushdown(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session, while Python data sources are given no filters, as Spark has it by default."""
    spark.conf.set(FILTER_PUSHDOWN, "false")
    yield spark
    spark.conf.set(FILTER_PUSHDOWN, "true")


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """The root of a simulated store, with a table of three days with sidecars: ``tests.support.spark_readers.URL``."""
    return await make_store(tmp_path / "root")


@pytest.fixture
def server(store: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(store) as running:
        yield running
