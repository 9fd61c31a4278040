"""Parses and writes file formats: sidecars, Parquet footers, type codes, partition names. No I/O, no pyarrow."""
