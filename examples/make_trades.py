# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Make a small table of trades with sidecars, for the other examples: python examples/make_trades.py [DIRECTORY] [--plain]."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.write import WriteOptions, write_partition

ROWS_PER_DAY = 100_000
OPTIONS = WriteOptions(
    row_group_rows=25_000,
    page_rows=2_500,  # small pages: a question about minutes reads minutes
    pages=True,  # where they lie, in a file that is fetched along with the sidecar
    bloom_columns=("order_id",),  # unsorted and nearly unique: minima and maxima cannot find one, a bloom filter can
)
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),  # sorted and never null: the designated timestamp
        pa.field("symbol", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("amount", pa.float64()),
        pa.field("order_id", pa.int64()),
    ]
)


def make_day(day: datetime) -> pa.Table:
    random = np.random.default_rng(day.toordinal())
    seconds = np.sort(random.uniform(0, 86_400, ROWS_PER_DAY))
    columns = [
        pa.array(np.datetime64(day.replace(tzinfo=None), "us") + (seconds * 1e6).astype("timedelta64[us]")).cast(
            SCHEMA.field("ts").type
        ),
        np.array(["BTC", "ETH", "SOL"])[random.integers(0, 3, ROWS_PER_DAY)],
        100 + np.cumsum(random.normal(0, 0.01, ROWS_PER_DAY)),
        random.exponential(1.0, ROWS_PER_DAY),
        random.integers(1, 10**9, ROWS_PER_DAY),
    ]
    return pa.table(columns, schema=SCHEMA)


async def main() -> None:
    given = [argument for argument in sys.argv[1:] if argument != "--plain"]
    directory, is_plain = Path(given[0] if given else "trades"), "--plain" in sys.argv
    for number in range(3):
        day = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(days=number)
        partition = directory / f"{day:%Y-%m-%d}.1"
        if partition.exists():  # made by an earlier run; partitions are never replaced
            print(f"{partition}: kept")
            continue
        if is_plain:  # as other writers leave them
            partition.mkdir(parents=True)
            pq.write_table(make_day(day), partition / "data.parquet", sorting_columns=[pq.SortingColumn(0)])
            print(f"{partition}: {ROWS_PER_DAY:,} rows")
            continue
        written = await write_partition(partition, make_day(day), timestamp="ts", options=OPTIONS)
        print(f"{partition}: {written.row_count:,} rows, {written.parquet_size_bytes:,} bytes, with its sidecar")


if __name__ == "__main__":
    asyncio.run(main())
