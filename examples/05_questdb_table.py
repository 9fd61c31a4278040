# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Query the directory of a QuestDB table, without the database: python examples/05_questdb_table.py [DIRECTORY]."""

import asyncio
import sys

import coldparquet as cp


async def main(directory: str) -> None:
    async with cp.open_table(directory) as table:
        print(f"transaction {table.txn}, columns {', '.join(table.schema.names)}")
        for partition in table.partitions:
            print(f"  {partition.name:14} {partition.format:8} {partition.rows:7,} rows")

        scan = table.scan(["ts", "sym", "price"], "ts >= '2024-01-02T12:00' and price > 100")
        print((await scan.plan()).explain())
        print(f"{await scan.count():,} rows")

        # The table stays at its transaction, whatever a server commits meanwhile, until you ask for the newest.
        moved = await table.refresh()
        print(f"transaction {table.txn}{'' if moved else ', still the newest'}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "quotes"))
