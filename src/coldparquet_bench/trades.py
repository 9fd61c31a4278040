"""Trades for the benchmarks: the same rows in every run, in time order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01
COLUMNS = ("ts", "symbol", "side", "price", "amount", "id", "order_id", "venue", "bid", "ask")
DAY_COLUMNS = ("ts", "symbol", "side", "price", "amount", "id", "note", "venue", "bid", "ask")
"""Those of a day at an exchange; the note is never filled in."""


def day_name(day: int) -> str:
    """Return the name of the partition of one day, counted from 2024-03-01."""
    return str(np.datetime64("2024-03-01") + day)


def trades(day: int, rows: int, *, columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Make one day of trades."""
    random = np.random.default_rng(day)
    ts = FIRST_DAY_US + day * DAY_US + np.sort(random.integers(0, DAY_US, rows))
    price = 60_000 + np.cumsum(random.normal(0, 0.5, rows)).round(2)
    symbol = pa.DictionaryArray.from_arrays(
        random.integers(0, 500, rows).astype(np.int32), [f"SYM{number}" for number in range(500)]
    )
    uuids = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(random.bytes(16 * rows))])
    made = {
        "ts": pa.array(ts, pa.timestamp("us", "UTC")),
        "symbol": symbol,
        "side": pa.DictionaryArray.from_arrays(random.integers(0, 2, rows).astype(np.int32), ["buy", "sell"]),
        "price": pa.array(price),
        "amount": pa.array(random.exponential(1.0, rows)),
        "id": pa.array(random.integers(0, 2**62, rows)),
        "order_id": pa.ExtensionArray.from_storage(pa.uuid(), uuids),
        "note": pa.nulls(rows, pa.string()),
        "venue": pa.DictionaryArray.from_arrays(random.integers(0, 3, rows).astype(np.int32), ["XNAS", "XNYS", "BATS"]),
        "bid": pa.array(price - random.exponential(0.01, rows)),
        "ask": pa.array(price + random.exponential(0.01, rows)),
    }
    return pa.table({name: made[name] for name in columns})
