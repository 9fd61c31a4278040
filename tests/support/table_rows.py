"""Rows for tables, and what a table holds after a sequence of writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.format.partition_names import PartitionInterval, partition_floor_ns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coldparquet.storage.base import ObjectStore

DAY_US = 86_400_000_000
START_US = 19_723 * DAY_US
"""2024-01-01."""


def ticks(count: int, *, seed: int = 0, days: int = 3, first_day: int = 0, distinct: int = 10**9) -> pa.Table:
    """Rows at random times of some days, in no order; each row is unlike every other.

    Args:
        count: Number of rows.
        seed: Of the random numbers.
        days: Number of days.
        first_day: After 2024-01-01.
        distinct: Timestamps of a day differ in at most so many ways.
    """
    random = np.random.default_rng(seed)
    steps = random.integers(0, distinct, count) * (DAY_US // distinct)
    times = START_US + (first_day + random.integers(0, days, count)) * DAY_US + steps
    numbers = np.arange(count) + 1_000_000 * seed
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "side": pa.array([("buy", "sell", None)[number % 3] for number in numbers]),
            "price": pa.array(random.random(count)),
            "number": pa.array(numbers),
        }
    )


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows by time, those of one time in the order in which they were written."""
    rows = pa.concat_tables(tables)
    return rows.take(pc.sort_indices(rows.column("ts"))).combine_chunks()


def overwritten(before: pa.Table, rows: pa.Table, interval: PartitionInterval = PartitionInterval.DAY) -> pa.Table:
    """Return what is left of a table, and the rows that have replaced their partitions."""
    touched = pa.array(sorted(set(floors(rows, interval))), pa.int64())
    stays = pc.invert(pc.is_in(pa.array(floors(before, interval), pa.int64()), touched))
    return in_order([before.filter(stays), rows])


def floors(rows: pa.Table, interval: PartitionInterval) -> list[int]:
    """Return for each row when its partition begins, in nanoseconds."""
    times: Any = rows.column("ts").cast(pa.int64()).to_pylist()
    return [partition_floor_ns(time * 1000, interval) for time in times]


async def read_table(url: object, *, store: ObjectStore | None = None, **options: Any) -> pa.Table:
    """Read all rows of a table as any user does, text as plain strings."""
    read_options = cp.ReadOptions(symbols="string")
    async with cp.open_table(str(url), store=store, options=read_options, **options) as table:
        return await table.scan().to_arrow()


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Tell whether two tables have the same columns and values in the same order."""
    return bool(found.replace_schema_metadata().cast(expected.schema).combine_chunks().equals(expected))


def read_with_pyarrow(table: Path, names: Sequence[str]) -> pa.Table:
    """Read the Parquet files of these partitions with pyarrow alone."""
    return pa.concat_tables([pq.read_table(table / name / "data.parquet") for name in names])


def names_in(directory: Path) -> list[str]:
    """Return the names of what lies in a directory."""
    return sorted(path.name for path in directory.iterdir())
