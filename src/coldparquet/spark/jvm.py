"""Finds the jar that tells our data source what Spark tells no Python source: columns, filters, limits and aggregates."""

from __future__ import annotations

import warnings
from pathlib import Path

from coldparquet.errors import UnsupportedError

_JAR = Path(__file__).with_name("coldparquet.jar")


def jar() -> str:
    """Return the path of ``coldparquet.jar``, for the setting ``spark.jars``.

    With it on the driver, ``spark.read.format("coldparquet").load(url).where(...).select(...)`` reads the columns and
    rows that the query needs. Executors need no jar::

        SparkSession.builder.config("spark.jars", coldparquet.spark.jar())

    In a session that runs already, on the thread that loads the table::

        spark.sql(f"ADD JAR '{coldparquet.spark.jar()}'")

    For ``spark-submit --jars``, ``python -m coldparquet.spark.jvm`` prints it.

    Raises:
        UnsupportedError: This installation has none: it was built without a JDK or without Spark (kind ``NoJar``).
    """
    if not _JAR.exists():
        raise UnsupportedError(
            "this installation of coldparquet has no coldparquet.jar, because it was built without a JDK or without Spark's jars:"
            " install a released wheel, or build it again with JAVA_HOME and SPARK_HOME set (in a checkout, python src/jvm/build.py);"
            " without the jar, name columns and rows with coldparquet.spark.read(spark, url, columns=..., where=...)",
            kind="NoJar",
        )
    return str(_JAR)


WORTH_A_WARNING_BYTES = 16 * 1024 * 1024
"""Less is read in a second, whatever the query leaves of it."""


def warn_without_jar() -> None:
    """Say, once in a process, that a scan reads whole tables because Spark tells a Python source nothing of its query."""
    warnings.warn(
        "coldparquet reads all columns and rows, because Spark tells a Python source neither those that a query selects nor its"
        " filters. Add to the session .config('spark.jars', coldparquet.spark.jar()), or name them with .option('columns', ...)"
        " and .option('where', ...)",
        UserWarning,
        stacklevel=2,
    )


if __name__ == "__main__":
    print(jar())  # noqa: T201 - a command
