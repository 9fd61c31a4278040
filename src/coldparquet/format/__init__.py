"""Bytes to models and back: sidecars, Parquet footers, type codes, partition names. No I/O, no pyarrow."""
