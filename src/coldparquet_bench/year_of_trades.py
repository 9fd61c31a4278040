"""W2 and W6: one week, and the extremes, of a year of cold days.

365 days of 20,000 trades each in 4 row groups, about 0.9 MB a day. A week of three columns is asked of the whole table, and
then of exactly the seven right files, which every reader is told. Then the number of rows, with the first and the last
timestamp; the largest price; and the newest 1,000 rows. The table has a catalogue, as ``coldparquet
index`` makes it; ``unpacked`` is the same table without. pyarrow has no way to the newest rows but reading all of them, and so it is not asked for those.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from coldparquet.maintenance.index import index_table
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_bench.measurement import BUCKET, OURS, Benchmark, MakeReader, Reader, main
from coldparquet_bench.packing import pack_through_store
from coldparquet_bench.readers import (
    KEPT_OPEN,
    OurWay,
    Question,
    duckdb_connection,
    our_reader,
    polars_options,
    pyarrow_filesystem,
    readers,
)
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import coldparquet as cp

DAYS, ROWS, ROW_GROUPS, PAGE_ROWS = 365, 20_000, 4, 2_500
TABLE, UNPACKED = "year", "unpacked"
FILES = f"s3://{BUCKET}/{TABLE}/*/data.parquet"
FIRST_DAY, DAYS_ASKED = 10, 7
NEWEST = 1_000
W2, W2X = "W2: one week out of a year of days", "W2x: the same week, with its seven files given"
COUNT = "W6: number of rows, first and last timestamp of a year of days"
LARGEST, TAIL = "W6: largest price of a year of days", "W6: newest 1,000 rows of a year of days"


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    week = _week()
    ways = {**KEPT_OPEN, "without a catalogue": OurWay(table=UNPACKED)}
    return Benchmark(
        module="coldparquet_bench.year_of_trades",
        data=f"packed-{days}-days-of-{rows}-trades",
        make_data=partial(_make_year, days=days, rows=rows),
        questions={
            W2: readers(week, ways),
            W2X: readers(_week(given=True)),
            **{question: _answering(question) for question in (COUNT, LARGEST, TAIL)},
        },
        warm_calls=2,
    )


def _week(*, given: bool = False) -> Question:
    begin, end = (_midnight(FIRST_DAY + day) for day in (0, DAYS_ASKED))
    return Question(
        table=TABLE,
        columns=("ts", "symbol", "price"),
        conditions=(("ts", ">=", begin), ("ts", "<", end)),
        partitions=tuple(day_name(FIRST_DAY + day) for day in range(DAYS_ASKED)) if given else (),
    )


def _midnight(day: int) -> datetime:
    return datetime.fromisoformat(day_name(day))


async def _make_year(bucket: Path, *, days: int, rows: int) -> None:
    directory = bucket / TABLE
    options = WriteOptions(row_group_rows=rows // ROW_GROUPS, page_rows=PAGE_ROWS)
    for day in range(days):
        of_day = trades(day, rows, columns=DAY_COLUMNS)
        await write_partition(directory / day_name(day), of_day, timestamp="ts", options=options)
    await index_table(directory)
    shutil.copytree(directory, bucket / UNPACKED)
    await pack_through_store(bucket, TABLE)


def _answering(question: str) -> Mapping[str, MakeReader]:
    ours: dict[str, MakeReader] = {
        OURS: partial(_ours, question, OurWay()),
        f"{OURS}, kept open": partial(_ours, question, OurWay(is_kept_open=True)),
        f"{OURS}, without a catalogue": partial(_ours, question, OurWay(table=UNPACKED)),
    }
    peers = {"Polars": _polars, "pyarrow": _pyarrow, "DuckDB": _duckdb}
    if question == TAIL:
        del peers["pyarrow"]
    return ours | {name: partial(make, question) for name, make in peers.items() if find_spec(name.lower())}


def _times(first: datetime, last: datetime) -> list[str]:
    return [f"{time:%Y-%m-%d %H:%M:%S.%f}" for time in (first, last)]


def _ours(question: str, way: OurWay, endpoint_url: str) -> Reader:
    async def count(table: cp.Table) -> Any:
        scan = table.scan()
        rows, first, last = await scan.count(), await scan.first_timestamp(), await scan.last_timestamp()
        return [rows, *_times(first, last)]

    async def largest(table: cp.Table) -> Any:
        return await table.scan().max("price")

    async def newest(table: cp.Table) -> Any:
        return (await table.scan(["ts", "price"]).tail(NEWEST)).num_rows

    ask = {COUNT: count, LARGEST: largest, TAIL: newest}[question]
    return our_reader(f"{BUCKET}/{way.table or TABLE}", endpoint_url, ask, way=way)


def _polars(question: str, endpoint_url: str) -> Reader:
    import polars as pl

    def count(frame: Any) -> Any:
        rows, first, last = (
            frame.select(rows=pl.len(), first=pl.col("ts").min(), last=pl.col("ts").max()).collect().row(0)
        )
        return [rows, *_times(first, last)]

    asked: Mapping[str, Callable[[Any], Any]] = {
        COUNT: count,
        LARGEST: lambda frame: frame.select(pl.col("price").max()).collect().item(),
        TAIL: lambda frame: frame.select("ts", "price").tail(NEWEST).collect().height,
    }

    async def read() -> Any:
        return asked[question](pl.scan_parquet(FILES, storage_options=polars_options(endpoint_url)))

    return Reader.that_keeps_nothing(read)


def _pyarrow(question: str, endpoint_url: str) -> Reader:
    import pyarrow.dataset as ds

    filesystem = pyarrow_filesystem(endpoint_url)

    def count(dataset: Any) -> Any:
        bounds: Any = pc.min_max(dataset.to_table(columns=["ts"])["ts"])
        return [dataset.count_rows(), *_times(bounds["min"].as_py(), bounds["max"].as_py())]

    def largest(dataset: Any) -> Any:
        found: Any = pc.max(dataset.to_table(columns=["price"])["price"])
        return found.as_py()

    asked: Mapping[str, Callable[[Any], Any]] = {COUNT: count, LARGEST: largest}

    async def read() -> Any:
        return asked[question](ds.dataset(f"{BUCKET}/{TABLE}", filesystem=filesystem, format="parquet"))

    return Reader.that_keeps_nothing(read)


def _duckdb(question: str, endpoint_url: str) -> Reader:
    connection = duckdb_connection(endpoint_url)
    source = f"FROM read_parquet('{FILES}')"

    def count() -> Any:
        statement = f"SELECT count(*), epoch_us(min(ts)), epoch_us(max(ts)) {source}"
        rows, first_us, last_us = connection.sql(statement).fetchall()[0]
        return [rows, *_times(_utc(first_us), _utc(last_us))]

    asked: Mapping[str, Callable[[], Any]] = {
        COUNT: count,
        LARGEST: lambda: connection.sql(f"SELECT max(price) {source}").fetchall()[0][0],
        TAIL: lambda: len(
            connection.sql(f"SELECT ts, price {source} ORDER BY ts DESC LIMIT {NEWEST}").to_arrow_table()
        ),
    }

    async def read() -> Any:
        return asked[question]()

    return Reader.that_keeps_nothing(read)


def _utc(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, tz=UTC) + timedelta(microseconds=microseconds)


if __name__ == "__main__":
    main(benchmark())
