"""A year of days in a simulated cold store, for natural queries of Spark: 365 partitions of ten columns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer

if TYPE_CHECKING:
    from pathlib import Path

URL = "s3://cold/year"
DAYS = 365
DAY_US = 86_400_000_000
FIRST_DAY = np.datetime64("2025-01-01", "D")
SYMBOLS = ("ADA", "BTC", "ETH", "SOL", "XRP")


def make_year(root: Path, rows: int) -> Path:
    """Write the table of :data:`URL` below the root of a store: so many rows a day, with sidecars, and a catalogue as ``coldparquet index`` leaves it."""
    table = root / "cold" / "year"
    numbers = np.random.default_rng(18)
    for day in range(DAYS):
        date = FIRST_DAY + day
        partition = table / str(date)
        partition.mkdir(parents=True)
        pq.write_table(
            day_of_year(date, rows, numbers),
            partition / "data.parquet",
            row_group_size=rows,
            compression="zstd",
            sorting_columns=[pq.SortingColumn(0)],  # the designated timestamp
        )
    with ColdStoreServer(root) as server:  # a catalogue is for stores that list versions
        asyncio.run(index_table(URL, storage_options=server.storage_options, pack=None, pages=False))
    return table


def day_of_year(date: np.datetime64, rows: int, numbers: np.random.Generator) -> pa.Table:
    """Return the rows of one day: prices around the number of the day, NaN and nulls among them."""
    start = int(date.astype("datetime64[us]").astype(np.int64))
    day = int((date - FIRST_DAY).astype(np.int64))
    price = day + numbers.random(rows)
    missing = numbers.random(rows) < 0.01
    rows_of_day = pa.table(
        {
            "timestamp": pa.array(start + np.arange(rows) * (DAY_US // rows), pa.timestamp("us", "UTC")),
            "symbol": np.array(SYMBOLS)[numbers.integers(len(SYMBOLS), size=rows)],
            "price": pa.array(price, mask=missing),
            "size": pa.array(numbers.integers(0, 1000, size=rows), pa.int32()),
            "id": pa.array(np.arange(day * rows, (day + 1) * rows)),
            **{name: numbers.random(rows) for name in ("bid", "ask", "high", "low")},
            "is_buy": numbers.random(rows) < 0.5,
        }
    )
    never_null = rows_of_day.schema.field(0).with_nullable(False)
    return rows_of_day.cast(rows_of_day.schema.set(0, never_null))  # as QuestDB has its timestamp, and sorts by it
