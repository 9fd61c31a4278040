"""Write a table from rows in any order, add to it, and replace one of its days.

    python examples/07_write_table.py

No reader of the table sees anything of a write before it is complete. The same steps, run in many tasks, are Spark's
writer: ``df.write.format("coldparquet")`` and ``coldparquet.spark.write``.
"""

import asyncio
import tempfile

import numpy as np
import pyarrow as pa

import coldparquet as cp
from coldparquet.write import WriteOptions, write_table

DAY_US = 86_400_000_000
START_US = 19_783 * DAY_US  # 2024-03-01


def trades(count: int, *, days: int, seed: int) -> pa.Table:
    """Trades of some days, in no order."""
    random = np.random.default_rng(seed)
    times = START_US + random.integers(0, days * DAY_US, count)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "symbol": pa.array(random.choice(["BTC", "ETH"], count)),
            "price": pa.array(random.uniform(10, 20, count)),
        }
    )


async def main() -> None:
    """Write the table and look at it."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"{directory}/trades"  # or s3://bucket/db/trades, with storage_options
        options = WriteOptions(row_group_rows=10_000, pages=True)
        made = await write_table(
            url, trades(50_000, days=3, seed=1), timestamp="ts", symbols=["symbol"], options=options
        )
        print(f"made: {made.new_rows:,} rows in {len(made.partitions)} partitions")
        more = await write_table(url, trades(1_000, days=2, seed=2), mode="append", options=options)
        print(f"added {more.new_rows:,} rows to {', '.join(partition.name for partition in more.partitions)}")
        replaced = await write_table(url, trades(500, days=1, seed=3), mode="overwrite", options=options)
        print(
            f"replaced {replaced.partitions[0].name.partition('.')[0]}, which has {replaced.partitions[0].row_count} rows now"
        )
        async with cp.open_table(url) as table:
            scan = table.scan(columns=["ts", "price"], where="ts < '2024-03-02' and symbol = 'BTC'")
            print(
                f"{await table.scan().count():,} rows in all; the first day's BTC: {(await scan.to_arrow()).num_rows}"
            )


asyncio.run(main())
