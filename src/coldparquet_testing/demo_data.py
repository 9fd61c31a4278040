"""The data of the demo: trades on an exchange, one Parquet file per day, the same in every run."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

FIRST_DAY = date(2024, 1, 1)
ROWS_PER_DAY = 20_000
_ROW_GROUP_ROWS = 5_000
_DAY_US = 86_400 * 1_000_000
_SEED = 2024

_PRICES = {"BTC-USD": 43_000.0, "ETH-USD": 2_300.0, "SOL-USD": 100.0, "XRP-USD": 0.6, "ADA-USD": 0.5, "DOGE-USD": 0.09}
SYMBOLS = tuple(_PRICES)
_VENUES = ("binance", "coinbase", "kraken", "okx")

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("symbol", pa.dictionary(pa.int32(), pa.string())),
        pa.field("side", pa.dictionary(pa.int32(), pa.string())),
        pa.field("price", pa.float64()),
        pa.field("amount", pa.float64()),
        pa.field("venue", pa.dictionary(pa.int32(), pa.string())),
        pa.field("bid", pa.float64()),
        pa.field("ask", pa.float64()),
    ]
)


def write_trades(table_path: Path, *, days: int, on_day: Callable[[], None]) -> int:
    """Write one partition directory per day, without sidecars, and return the number of bytes."""
    written_bytes = 0
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for day_bytes in executor.map(lambda number: _write_day(table_path, number), range(days)):
            written_bytes += day_bytes
            on_day()
    return written_bytes


def _write_day(table_path: Path, number: int) -> int:
    day = FIRST_DAY + timedelta(days=number)
    path = partition_path(table_path, day)
    path.parent.mkdir(parents=True)
    pq.write_table(
        _trades(day, np.random.default_rng(_SEED + number)),
        path,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        use_dictionary=["symbol", "side", "venue"],  # type: ignore[arg-type]  # the stubs know only bool
        sorting_columns=[pq.SortingColumn(0)],
    )
    return path.stat().st_size


def partition_path(table_path: Path, day: date) -> Path:
    """Return the path of one day's Parquet file."""
    return table_path / f"{day.isoformat()}.0" / "data.parquet"


def _trades(day: date, random: np.random.Generator) -> pa.Table:
    rows = ROWS_PER_DAY
    midnight_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    weights = 1 / np.arange(1, len(SYMBOLS) + 1)  # few symbols make most trades
    symbol = random.choice(len(SYMBOLS), rows, p=weights / weights.sum())
    drift = np.cumsum(random.normal(0, 1e-4, rows))
    price = np.array(list(_PRICES.values()))[symbol] * (1 + drift)
    half_spread = price * random.uniform(1e-5, 2e-4, rows)
    columns = [
        pa.array(np.sort(random.integers(0, _DAY_US, rows)) + midnight_us, SCHEMA.field("ts").type),
        _labels(symbol, SYMBOLS),
        _labels(random.integers(0, 2, rows), ("buy", "sell")),
        pa.array(np.round(price, 4)),
        pa.array(np.round(random.lognormal(-1, 1.5, rows), 6)),
        _labels(random.integers(0, len(_VENUES), rows), _VENUES),
        pa.array(np.round(price - half_spread, 4)),
        pa.array(np.round(price + half_spread, 4)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _labels(numbers: npt.NDArray[np.int64], names: tuple[str, ...]) -> pa.DictionaryArray[Any, Any]:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(names))
