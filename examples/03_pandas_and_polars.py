# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet", "pandas", "polars"]
# ///
"""Downsample with pandas and with Polars, without an event loop: python examples/03_pandas_and_polars.py."""

import sys

import polars as pl

import coldparquet as cp

table_url = sys.argv[1] if len(sys.argv) > 1 else "trades"

with cp.sync.open_table(table_url) as table:
    scan = table.scan(["ts", "price"], "symbol = 'BTC' and ts >= '2024-03-03'")

    hourly = scan.to_pandas().set_index("ts")["price"].resample("1h").ohlc()
    print(hourly.head(3).to_string())

    frame = pl.DataFrame(scan)  # through the Arrow PyCapsule interface
    print(frame.group_by_dynamic("ts", every="6h").agg(pl.col("price").mean()))
