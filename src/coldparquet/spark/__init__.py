"""Connects coldparquet to Spark: a data source, a writer, streams and pipelines.

``spark.read.format("coldparquet").load("s3://bucket/db/trades")`` needs no import and no registration. The functions
here do what a data source cannot do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.lazy_names import lazy_names

if TYPE_CHECKING:
    from coldparquet.spark.engine import SparkEngine
    from coldparquet.spark.errors import error_of, own_errors
    from coldparquet.spark.helpers import count, explain, explain_read, min_max, read
    from coldparquet.spark.jvm import jar
    from coldparquet.spark.writer import write

__all__ = [
    "SparkEngine",
    "count",
    "error_of",
    "explain",
    "explain_read",
    "jar",
    "min_max",
    "own_errors",
    "read",
    "write",
]

_MODULES = {
    "SparkEngine": "coldparquet.spark.engine",
    "count": "coldparquet.spark.helpers",
    "error_of": "coldparquet.spark.errors",
    "explain": "coldparquet.spark.helpers",
    "explain_read": "coldparquet.spark.helpers",
    "jar": "coldparquet.spark.jvm",
    "min_max": "coldparquet.spark.helpers",
    "own_errors": "coldparquet.spark.errors",
    "read": "coldparquet.spark.helpers",
    "write": "coldparquet.spark.writer",
}
"""The module that defines each name. Imported on use: a Spark worker pays for every module, in every task."""


if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
