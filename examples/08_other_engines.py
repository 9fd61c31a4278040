# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet", "duckdb", "polars"]
# ///
"""Ask a cold table with Polars and DuckDB, which push columns and filters down: python examples/08_other_engines.py."""

import sys

import duckdb
import polars as pl

import coldparquet as cp

table_url = sys.argv[1] if len(sys.argv) > 1 else "trades"

names = pl.LazyFrame({"symbol": ["BTC", "ETH"], "name": ["Bitcoin", "Ether"]})

with cp.sync.open_table(table_url) as table:
    dear = table.lazy().filter(pl.col("price") > 150).select("ts", "price", pl.col("symbol").cast(pl.String))
    print(dear.join(names, on="symbol").group_by("name").agg(pl.len(), pl.col("price").mean()).sort("name").collect())
    print(len(table.request_log), "requests so far")

    con = duckdb.connect()
    con.register("names", names.collect())
    cp.duckdb.register(con, "trades", table)
    print(
        con.sql("""
            SELECT name, count(*) AS trades, max(price) AS dearest
            FROM trades JOIN names USING (symbol)
            WHERE ts >= TIMESTAMPTZ '2024-03-02 00:00:00+00'
            GROUP BY name ORDER BY name
        """).to_arrow_table()
    )
