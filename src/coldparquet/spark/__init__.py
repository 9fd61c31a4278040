"""coldparquet in Spark: a data source, a writer, streams and pipelines.

``spark.read.format("coldparquet").load("s3://bucket/db/trades")`` needs no import and nothing to register. The functions
here are what a data source cannot offer: see each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldparquet.spark.engine import SparkEngine
    from coldparquet.spark.explaining import explain
    from coldparquet.spark.failures import error_of, own_errors
    from coldparquet.spark.helpers import count, explain_read, min_max, read
    from coldparquet.spark.writer import write

__all__ = ["SparkEngine", "count", "error_of", "explain", "explain_read", "min_max", "own_errors", "read", "write"]

_MODULES = {
    "SparkEngine": "coldparquet.spark.engine",
    "count": "coldparquet.spark.helpers",
    "error_of": "coldparquet.spark.failures",
    "explain": "coldparquet.spark.explaining",
    "explain_read": "coldparquet.spark.helpers",
    "min_max": "coldparquet.spark.helpers",
    "own_errors": "coldparquet.spark.failures",
    "read": "coldparquet.spark.helpers",
    "write": "coldparquet.spark.writer",
}
"""Where each name is defined. They are imported when they are used: a Spark worker pays for every module, in every task."""


if not TYPE_CHECKING:  # type checkers know which names there are

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
