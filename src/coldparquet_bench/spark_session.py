"""The Spark of the benchmarks: two cores of this machine, and Spark's own S3A reader pointed at the simulated store."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldparquet.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HADOOP_VERSION = "3.5.0"
_JARS = f"spark-jars-{HADOOP_VERSION}"
ANALYTICS_BUCKET = "bench-analytics"
"""A copy of the benchmarks' bucket. In it S3A reads as Hadoop 3.5 does by default, through AWS's "analytics" stream, which
keeps what it read in memory for later queries of the same session; in the other bucket it reads with vectored IO."""
_KEY = "cold-store"
"""The simulated store takes any."""


def require_spark() -> Path:
    """Make sure that Spark and S3A can be run, before anything is measured."""
    if find_spec("pyspark") is None:
        raise UnsupportedError("Spark needs pyspark: pip install 'coldparquet[spark]'", kind="MissingPackage")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise UnsupportedError("Spark needs Java 17: install it, or set JAVA_HOME", kind="MissingJava")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jars = Path(os.environ.get("COLDPARQUET_CACHE") or Path(caches, "coldparquet")) / _JARS
    if not jars.is_dir():
        raise UnsupportedError(
            f"Spark's own S3 reader needs jars in {jars}: run localstack/spark_jars.sh",
            kind="MissingJars",
            path=str(jars),
        )
    return jars


def start_session(endpoint_url: str, directory: Path) -> SparkSession:
    """Start a session whose two readers reach the simulated store."""
    jars = require_spark()
    from pyspark.sql import SparkSession

    # Workers read the store's address and key from the environment, as on a cluster; they inherit it from here.
    os.environ.update(
        {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AWS_ENDPOINT_URL": endpoint_url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
        }
    )
    builder: Any = SparkSession.builder
    session: SparkSession = (
        builder.master("local[2]")
        .appName("coldparquet bench")
        .config(map=_settings(endpoint_url, directory, jars))
        .getOrCreate()
    )
    return session


def _settings(endpoint_url: str, directory: Path, jars: Path) -> dict[str, str]:
    of_s3a = {
        "endpoint": endpoint_url,
        "endpoint.region": "us-east-1",
        "access.key": _KEY,
        "secret.key": _KEY,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "input.stream.type": "classic",
        f"bucket.{ANALYTICS_BUCKET}.input.stream.type": "analytics",
    }
    return {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        # On by default in the Parquet that Spark 4 brings; said here, because it is what we compare with.
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "true",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in of_s3a.items()},
    }
