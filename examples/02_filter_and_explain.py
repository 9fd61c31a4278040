# /// script
# requires-python = ">=3.11"
# dependencies = ["coldparquet"]
# ///
"""Ask the same question in three ways, and see what it will cost first: python examples/02_filter_and_explain.py."""

import asyncio
import sys
from datetime import UTC, datetime

import coldparquet as cp

BEGIN = datetime(2024, 3, 2, 6, tzinfo=UTC)
QUESTIONS = {
    "SQL text": "ts >= '2024-03-02T06:00:00Z' and symbol in ('BTC', 'ETH') and price is not null",
    "tuples": [("ts", ">=", BEGIN), ("symbol", "in", ["BTC", "ETH"]), ("price", "is not null", None)],
    "expressions": (cp.col("ts") >= BEGIN) & cp.col("symbol").is_in(["BTC", "ETH"]) & cp.col("price").is_not_null(),
}


async def main(table_url: str) -> None:
    async with cp.open_table(table_url) as table:
        for name, where in QUESTIONS.items():
            print(f"{name}: {await table.scan(where=where).count():,} rows")
        plan = await table.scan(["ts", "price"], QUESTIONS["expressions"]).plan()
        print()
        print(plan.explain())


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "trades"))
