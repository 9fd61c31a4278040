"""Questions that metadata answers, and the newest rows, over 365 cold partitions, on one simulated store in one run.

    python -m tests.benchmarks.metadata_answers

365 days of 20,000 trades each in two row groups, about 130 MB in all. Asked are the number of rows with the first and the
last timestamp, the largest price, and the newest 1,000 rows of two columns. pyarrow's datasets have no way to the newest
rows but reading all of them, and so it is not asked for those.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from coldparquet.maintenance.index import index_table
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition_writer import write_partition
from tests.benchmarks.harness import BUCKET, OURS, Benchmark, MakeReader, Reader, main
from tests.benchmarks.peers import duckdb_connection, our_reader, polars_options, pyarrow_filesystem
from tests.benchmarks.trades import day_name, trades

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import coldparquet as cp

DAYS, ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 365, 20_000, 10_000, 2_000
TABLE = f"{BUCKET}/year"
FILES = f"s3://{TABLE}/*/data.parquet"
NEWEST = 1_000
COUNT, LARGEST, TAIL = "count, first and last timestamp", "largest price", "newest 1,000 rows of two columns"


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    return Benchmark(
        module="tests.benchmarks.metadata_answers",
        make_data=partial(_make_year, days=days, rows=rows),
        questions={question: _readers(question) for question in (COUNT, LARGEST, TAIL)},
    )


def _readers(question: str) -> Mapping[str, MakeReader]:
    peers = {"Polars": _polars, "pyarrow": _pyarrow, "DuckDB": _duckdb}
    if question == TAIL:
        del peers["pyarrow"]
    installed = {name: make for name, make in peers.items() if find_spec(name.lower())}
    return {name: partial(make, question) for name, make in {OURS: _ours, **installed}.items()}


async def _make_year(bucket: Path, *, days: int, rows: int) -> None:
    directory = bucket.parent / TABLE
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, page_rows=PAGE_ROWS)
    for day in range(days):
        of_day = trades(day, rows, columns=("ts", "symbol", "price", "amount"))
        await write_partition(directory / day_name(day), of_day, timestamp="ts", options=options)
    await index_table(directory, pages=True)


def _times(first: datetime, last: datetime) -> list[str]:
    return [f"{time:%Y-%m-%d %H:%M:%S.%f}" for time in (first, last)]


def _ours(question: str, endpoint_url: str) -> Reader:
    async def count(table: cp.Table) -> Any:
        scan = table.scan()
        rows, first, last = await scan.count(), await scan.first_timestamp(), await scan.last_timestamp()
        return [rows, *_times(first, last)]

    async def largest(table: cp.Table) -> Any:
        return await table.scan().max("price")

    async def newest(table: cp.Table) -> Any:
        return (await table.scan(["ts", "price"]).tail(NEWEST)).num_rows

    return our_reader(TABLE, endpoint_url, {COUNT: count, LARGEST: largest, TAIL: newest}[question])


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
        return asked[question](ds.dataset(TABLE, filesystem=filesystem, format="parquet"))

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
    main(__doc__, benchmark())
