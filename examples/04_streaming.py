# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Go through a table in bounded memory, batch by batch: python examples/04_streaming.py."""

import asyncio
import sys

import pyarrow.compute as pc

import coldparquet as cp


async def main(table_url: str) -> None:
    options = cp.ReadOptions(memory_limit_bytes=8 * 1024 * 1024, batch_rows=10_000)
    async with cp.open_table(table_url, options=options) as table:
        rows, volume = 0, 0.0
        async with table.scan(["amount"]).batches() as batches:
            async for batch in batches:
                rows += batch.num_rows
                volume += pc.sum(batch.column("amount")).as_py()
        print(f"{rows:,} trades, {volume:,.0f} traded")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "trades"))
