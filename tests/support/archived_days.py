"""A table of four days in a store that plays archives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from tests.support.archive_store import ArchiveStore

ROWS = 2_400
DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01
DAYS = ["2024-03-01.1", "2024-03-02.1", "2024-03-03.1", "2024-03-04.1"]


def make_day(day: int) -> bytes:
    """Write the Parquet file of one of the days, in four row groups."""
    ts = FIRST_DAY_US + day * DAY_US + np.arange(ROWS) * (DAY_US // ROWS)
    table = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "price": np.random.default_rng(day).normal(size=ROWS),
            "day": np.full(ROWS, day),
        }
    )
    table = table.set_column(0, pa.field("ts", table.schema.field("ts").type, nullable=False), table.column("ts"))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROWS // 4, sorting_columns=[pq.SortingColumn(0)])
    return sink.getvalue().to_pybytes()


def data_path(day: str) -> str:
    """Return where the data of a day lies."""
    return f"trades/{day}/data.parquet"


async def make_store(*archived: str, storage_class: str = "GLACIER", looks_until_restored: int = 1) -> ArchiveStore:
    """Make the table, with some of its days in an archive."""
    store = ArchiveStore(looks_until_restored=looks_until_restored)
    await fill(store)
    store.archive(*map(data_path, archived), storage_class=storage_class)
    return store


async def fill(store: ArchiveStore) -> None:
    """Make the table; none of it is archived."""
    for number, day in enumerate(DAYS):
        await store.put(data_path(day), make_day(number), overwrite=False)
    await index_table("trades", store=store)


def opened(store: ArchiveStore, **options: object) -> cp.opening.Opening:
    """Open the table with these options for reading."""
    return cp.open_table("trades", store=store, options=cp.ReadOptions(**options))  # type: ignore[arg-type]
