# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet[s3,testing]"]
# ///
"""See what a read costs before and after it: python examples/06_what_it_costs.py.

The table is served by a simulated S3 on this machine, with the latency of a cold store.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import coldparquet as cp
from coldparquet.maintenance.pack import pack_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

COLD = ColdStoreOptions(first_byte_s=0.03, bandwidth_bytes_per_s=90e6, storage_classes={"bucket/*": "STANDARD_IA"})


async def main(table: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(table, Path(root) / "bucket" / "trades")
        with ColdStoreServer(Path(root), COLD) as store:
            await pack_table("s3://bucket/trades", storage_options=store.storage_options)
            async with cp.open_table("s3://bucket/trades", storage_options=store.storage_options) as opened:
                scan = opened.scan(["ts", "price"], "ts >= '2024-03-02' and symbol = 'BTC'")
                print((await scan.plan()).explain())  # prices of the class, and the four goals side by side
                try:
                    await opened.scan(options=cp.ReadOptions(max_usd=1e-9)).to_arrow()
                except cp.errors.BudgetExceededError as error:
                    print(f"\nrefused before the first request for data: {error}\n")
                rows = await scan.to_arrow()
                spent = scan.stats
                print(f"{rows.num_rows:,} rows: {spent.request_count} requests, ${spent.dollars:.9f}")
                again = opened.scan(["ts", "price"], "ts >= '2024-03-02' and symbol = 'BTC'")
                await again.to_arrow()
                print(
                    f"the same again: {again.stats.request_count} requests, {again.stats.cache_hits} answers were kept"
                )


asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "trades")))
