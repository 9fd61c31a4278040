"""Spark imports every package that is named ``pyspark_*`` and registers its ``DefaultSource``."""
