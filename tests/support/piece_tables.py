"""A small table of three days whose pieces tests take apart: ten columns, pages, values known by heart."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from tests.support.quoting_store import QuotingStore

DAYS, ROWS_OF_DAY, ROW_GROUPS_OF_DAY = 3, 4_000, 8
FIRST_DAY_US, DAY_US = 19_783 * 86_400_000_000, 86_400_000_000  # 2024-03-01


@cache
def day_of_rows(day: int) -> pa.Table:
    """Return the rows of one day, in order of time; ``key`` is spread over all row groups."""
    draw = np.random.default_rng(day)
    numbers = np.arange(ROWS_OF_DAY)
    ts = FIRST_DAY_US + day * DAY_US + numbers * (DAY_US // ROWS_OF_DAY)
    schema = pa.schema([pa.field("ts", pa.timestamp("us", "UTC"), nullable=False)])
    return pa.table(
        {
            "ts": pa.array(ts, schema.field("ts").type),
            "key": draw.permutation(ROWS_OF_DAY) + day * ROWS_OF_DAY,
            "symbol": pa.array(np.array(["BTC", "ETH", "SOL"])[draw.integers(0, 3, ROWS_OF_DAY)]).dictionary_encode(),
            "price": draw.normal(size=ROWS_OF_DAY),
            "payload": pa.array([f"payload of row {number} of day {day}" for number in numbers.tolist()]),
            "nothing": pa.nulls(ROWS_OF_DAY, pa.string()),
            "always": np.full(ROWS_OF_DAY, 7 + day),
            "word": pa.array([f"the same long word of day {day}"] * ROWS_OF_DAY),
            "list": pa.array([[float(number)] * (number % 4) for number in numbers.tolist()]),
            "small": draw.integers(0, 5, ROWS_OF_DAY).astype(np.int16),
        }
    ).set_column(0, schema.field("ts"), pa.array(ts, schema.field("ts").type))


@cache
def day_file(day: int) -> bytes:
    """Return the Parquet file of one day, with a page index."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        day_of_rows(day),
        sink,
        row_group_size=ROWS_OF_DAY // ROW_GROUPS_OF_DAY,
        write_batch_size=50,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["symbol"],  # type: ignore[arg-type]  # names of columns are allowed as well
        sorting_columns=[pq.SortingColumn(0)],
    )
    return sink.getvalue().to_pybytes()


def data_path(day: int) -> str:
    """Return where the file of a day lies."""
    return f"db/trades/2024-03-0{day + 1}/data.parquet"


async def store_of_days(*, is_indexed: bool = True) -> QuotingStore:
    """Return a store with the table ``db/trades``."""
    store = QuotingStore({data_path(day): day_file(day) for day in range(DAYS)})
    if is_indexed:
        await index_table("db/trades", store=store)
    return store
