"""Parquet files that others wrote, and generated ones with the same traps, compared with pyarrow."""
