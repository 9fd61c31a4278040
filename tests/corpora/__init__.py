"""Parquet files that nobody here wrote, and generated ones with the same traps, compared with pyarrow."""
