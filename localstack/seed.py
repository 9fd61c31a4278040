"""Put a table of trades, indexed, to where a URL says, such as ``seed.py s3://bucket/trades 7`` for seven days.

Endpoint and credentials of S3 come from the environment, as AWS's own tools take them. With a storage class as the third
argument the data lies in that class; sidecars stay in S3 Standard, where they belong.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from coldparquet.maintenance.index import index_table
from coldparquet.storage.open import open_store
from coldparquet_testing.demo_data import write_trades


async def main(url: str, days: int, storage_class: str | None) -> None:
    """Make the table in a temporary directory, and copy it."""
    store, root = open_store(url)
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "trades"
        write_trades(table, days=days, on_day=lambda: None)
        await index_table(table)
        for file in sorted(path for path in table.rglob("*") if path.is_file()):
            is_data = file.name == "data.parquet"
            await store.put(
                f"{root}/{file.relative_to(table).as_posix()}",
                file.read_bytes(),
                overwrite=True,
                storage_class=storage_class if is_data else None,
            )
    await store.aclose()
    print(f"{days} days of trades are in {url}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
