"""A table whose values tell engines apart: NaN, NULL, both zeros, floats that round, 2^53, nanoseconds, decimals of all widths."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.maintenance.index import index_table
from coldparquet.sync import run

ROWS = 600
FIRST_US = int(np.datetime64("2024-03-01", "us").astype(np.int64))
FLOATS = (0.1, 1.0, 2.5, -3.0, 0.0, -0.0, float("nan"), float("inf"))


def odd_rows(seed: int = 3) -> pa.Table:
    """Two days of rows, every column but the timestamp with NULLs."""
    rng = np.random.default_rng(seed)

    def some(values: Sequence[Any], type_: Any) -> Any:
        chosen = [values[index] for index in rng.integers(0, len(values), ROWS).tolist()]
        return pa.array(
            [None if missing else value for missing, value in zip(rng.random(ROWS) < 0.15, chosen, strict=True)], type_
        )

    return pa.table(
        {
            "ts": pa.array(FIRST_US + np.arange(ROWS) * 240_000_000, pa.timestamp("us")),
            "zoned": some([FIRST_US + step for step in (0, 1, 10**9)], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "d": some(FLOATS, pa.float64()),
            "f": some([float(np.float32(value)) for value in FLOATS], pa.float32()),
            "i": some(range(-5, 5), pa.int64()),
            "small": some(range(-3, 3), pa.int16()),
            "big": some([2**53 + step for step in range(-2, 3)], pa.int64()),
            "s": some(["a", "B", "é", "", "zz", "z\U0010ffff"], pa.string()),
            "symbol": some(["BTC", "ETH", "SOL"], pa.string()),
            "b": some([True, False], pa.bool_()),
            "n": some([FIRST_US * 1000 + step for step in (0, 500, 1000)], pa.int64()).cast(pa.timestamp("ns")),
            "day": some([19783, 19784, 20000], pa.int32()).cast(pa.date32()),
            "m": some([Decimal(number) / 100 for number in range(-300, 300, 25)], pa.decimal128(10, 2)),
            "wide": some([Decimal(number) for number in (1, 10**50, -(10**50))], pa.decimal256(60, 0)),
            "raw": some([b"a", b"\x00", b""], pa.binary()),
        }
    )


def write_odd_table(path: Path, *, indexed: bool = True) -> None:
    """Write the rows as a partition for each day, in row groups of 100."""
    rows = odd_rows()
    required = rows.schema.set(0, pa.field("ts", pa.timestamp("us"), nullable=False))
    for name, part in (("2024-03-01", rows.slice(0, 360)), ("2024-03-02", rows.slice(360))):
        (path / name).mkdir(parents=True)
        pq.write_table(
            part.cast(required), path / name / "data.parquet", row_group_size=100, sorting_columns=[pq.SortingColumn(0)]
        )
    if indexed:
        run(index_table(str(path), pages=False, pack=False))
