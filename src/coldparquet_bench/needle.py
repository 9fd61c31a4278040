"""W3: a needle, one random number or one UUID in 50 cold days with bloom filters.

50 days of 100,000 trades each in 20 row groups, with bloom filters on the columns ``id`` (random numbers of 62 bits) and
``order_id`` (random UUIDs), which no minimum and maximum can prune. Asked for is the one trade that has a given ``id``, then
the one that has a given ``order_id``. The table has a catalogue that holds the filters, too, as ``coldparquet
index`` makes it; ``unpacked`` is the same table without.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import Benchmark, main
from coldparquet_bench.packing import pack_through_store
from coldparquet_bench.readers import KEPT_OPEN, OurWay, Question, readers
from coldparquet_bench.trades import day_name, trades

if TYPE_CHECKING:
    from pathlib import Path

DAYS, ROWS, ROW_GROUP_ROWS = 50, 100_000, 5_000
TABLE, UNPACKED = "needles", "unpacked"
NEEDLE_DAY = 17
NEEDLE_ID, NEEDLE_ORDER = 3_141_592_653_589_793_238, UUID("27182818-2845-9045-2353-602874713526")
BY_ID, BY_UUID = "W3: one number of 62 bits in 50 days", "W3: one UUID in 50 days"


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    ways = {**KEPT_OPEN, "without a catalogue": OurWay(table=UNPACKED)}
    return Benchmark(
        module="coldparquet_bench.needle",
        data=f"packed-needles-in-{days}-days-of-{rows}-trades",
        make_data=partial(_make_table, days=days, rows=rows),
        warm_calls=1,
        questions={
            BY_ID: readers(_question("id", NEEDLE_ID), ways),
            BY_UUID: readers(_question("order_id", NEEDLE_ORDER), ways),
        },
    )


def _question(column: str, needle: int | UUID) -> Question:
    return Question(table=TABLE, columns=("ts", "price", "amount"), conditions=((column, "=", needle),))


async def _make_table(bucket: Path, *, days: int, rows: int) -> None:
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, bloom_columns=("id", "order_id"))
    for day in range(days):
        of_day = trades(day, rows, columns=("ts", "symbol", "price", "amount", "id", "order_id"))
        if day == NEEDLE_DAY % days:
            of_day = _with_needle(of_day, row=rows // 3)
        await write_partition(bucket / TABLE / day_name(day), of_day, timestamp="ts", options=options)
    shutil.copytree(bucket / TABLE, bucket / UNPACKED)
    await pack_through_store(bucket, TABLE)


def _with_needle(of_day: pa.Table, *, row: int) -> pa.Table:
    """Put the needle into one row."""
    here = np.arange(of_day.num_rows) == row
    orders: Any = of_day["order_id"].combine_chunks()
    ids = pc.if_else(here, pa.scalar(NEEDLE_ID, pa.int64()), of_day["id"])
    of_order = pc.if_else(here, pa.scalar(NEEDLE_ORDER.bytes, pa.binary(16)), orders.storage)
    of_day = of_day.set_column(of_day.schema.get_field_index("id"), "id", ids)
    order_index = of_day.schema.get_field_index("order_id")
    return of_day.set_column(order_index, "order_id", pa.ExtensionArray.from_storage(pa.uuid(), of_order))


if __name__ == "__main__":
    main(benchmark())
