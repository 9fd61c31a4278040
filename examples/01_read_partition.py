# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Read two hours of one partition and look at the requests that it took: python examples/01_read_partition.py."""

import asyncio
import sys

import coldparquet as cp


async def main(table_url: str) -> None:
    async with cp.open_partition(f"{table_url}/2024-03-02.1") as partition:
        rows = await partition.scan(
            columns=["ts", "price"],
            where="ts >= '2024-03-02T06' and ts < '2024-03-02T08'",
        ).to_arrow()
        print(f"{rows.num_rows:,} of {partition.partitions[0].rows:,} rows")
        for request in partition.request_log:
            print(f"  {request.reason:<32} {request.fetched_bytes:>8,} bytes")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "trades"))
