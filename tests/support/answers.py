"""Small tables of trades, and what tests of answers about them look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.storage.log import RequestRecord

DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01


def trades_of(day: int, rows: int, *, symbols: tuple[str | None, ...] = ("BTC", "ETH")) -> pa.Table:
    """Rows at equal distances over a day; price counts all rows of all days, symbols take turns, note is null."""
    numbers = day * rows + np.arange(rows)
    ts = FIRST_DAY_US + day * DAY_US + np.arange(rows) * (DAY_US // rows)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "symbol": pa.array([symbols[number % len(symbols)] for number in numbers.tolist()], pa.string()),
            "price": numbers.astype(np.float64),
            "size": pa.array([None if number % 10 == 9 else int(number) for number in numbers.tolist()], pa.int32()),
            "note": pa.nulls(rows, pa.string()),
        }
    )


def parquet_of(table: pa.Table, *, row_groups: int, **options: Any) -> bytes:
    """Write a table whose first column is its designated timestamp: never null, and sorted."""
    sink = pa.BufferOutputStream()
    field = table.schema.field(0).with_nullable(nullable=False)
    table = table.set_column(0, field, table.column(0))
    size = -(-table.num_rows // row_groups)
    pq.write_table(table, sink, row_group_size=size, sorting_columns=[pq.SortingColumn(0)], **options)
    return sink.getvalue().to_pybytes()


def day_of_trades(day: int, *, rows: int, row_groups: int) -> bytes:
    """One partition of trades."""
    return parquet_of(trades_of(day, rows), row_groups=row_groups)


async def store_of(days: Mapping[int, bytes]) -> MemoryStore:
    """Make a table ``trades`` of partitions by day, with sidecars."""
    store = MemoryStore()
    for day, data in days.items():
        name = np.datetime64(FIRST_DAY_US + day * DAY_US, "us").astype("datetime64[D]")
        await store.put(f"trades/{name}.7/data.parquet", data, overwrite=False)
    await index_table("trades", store=store)
    return store


def data_reasons(log: Iterable[RequestRecord]) -> list[str]:
    """Return the reasons of the requests for rows, in the order in which they were sent."""
    return [record.reason for record in log if record.operation == "get" and record.role == "data"]


def plain_column(rows: pa.Table, name: str) -> Any:
    """Return a column with its values in place of dictionary indices."""
    column = rows.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
