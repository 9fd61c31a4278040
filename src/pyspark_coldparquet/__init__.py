"""Spark imports every package that is named ``pyspark_*`` and registers its ``DefaultSource``."""

from coldparquet.spark.source import DefaultSource

__all__ = ["DefaultSource"]
