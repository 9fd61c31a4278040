"""A Hive lake of others: 365 days of three files each, ``date=2024-03-01/part-0.parquet``, as pyarrow writes them by default.

Asked are a week by the key and by the timestamp of the rows, which no name states; one trade by its id; the number of rows of
a day, and of all. We read the lake as it lies, and with the index that ``coldparquet index`` packs. Polars, DuckDB and pyarrow
are used as their documentation shows for Hive lakes; Spark is asked the same in :mod:`coldparquet_bench.hive_spark`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_bench.measurement import BUCKET, OURS, Benchmark, MakeReader, Reader, main
from coldparquet_bench.readers import OurWay, duckdb_connection, our_reader, polars_options, pyarrow_filesystem
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades
from coldparquet_testing.simulator import ColdStoreProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coldparquet.table import Table

DAYS, FILES, ROWS = 365, 3, 4_000
TABLE, INDEX = "lake", "indexes/lake"
WITH_INDEX = f"{OURS}, with its index"
WEEK = (date(2024, 3, 11), date(2024, 3, 18))
BY_KEY, BY_TIME = "a week of a Hive lake by its key", "the same week by the times of its rows"
NEEDLE = "one trade of a Hive lake by its id"
COUNT_DAY, COUNT = "number of rows of a day of a Hive lake", "number of rows of a Hive lake"
COLUMNS = ["ts", "symbol", "price"]


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    return Benchmark(
        module="coldparquet_bench.hive_lake",
        data=f"hive-{days}-days-of-{FILES}-files-of-{rows}-trades",
        make_data=partial(_make_lake, days=days, rows=rows),
        questions={question: _asked(question, where, _needle(rows)) for question, where in conditions(rows).items()},
        warm_calls=2,
    )


def conditions(rows: int) -> dict[str, str | None]:
    """Return what each question asks for, in SQL, of files of so many rows."""
    return {
        BY_KEY: f"date >= '{WEEK[0]}' AND date < '{WEEK[1]}'",
        BY_TIME: f"ts >= '{WEEK[0]}T00:00:00Z' AND ts < '{WEEK[1]}T00:00:00Z'",
        NEEDLE: f"id = {_needle(rows)}",
        COUNT_DAY: f"date = '{WEEK[0]}'",
        COUNT: None,
    }


def _needle(rows: int) -> int:
    wanted: int = trades(12, rows * FILES, columns=DAY_COLUMNS).column("id")[rows].as_py()
    return wanted


async def _make_lake(bucket: Path, *, days: int, rows: int) -> None:
    for day in range(days):
        of_day = trades(day, rows * FILES, columns=DAY_COLUMNS)
        directory = bucket / TABLE / f"date={day_name(day)}"
        directory.mkdir(parents=True)
        for part in range(FILES):
            pq.write_table(of_day.slice(part * rows, rows), directory / f"part-{part}.parquet")
    with ColdStoreProcess(bucket.parent) as server:
        place = f"s3://{bucket.name}/{INDEX}"
        await index_table(f"s3://{bucket.name}/{TABLE}", storage_options=server.storage_options, index=place)


def _asked(question: str, condition: str | None, needle: int) -> Mapping[str, MakeReader]:
    count_only = question in {COUNT, COUNT_DAY}
    return {
        WITH_INDEX: partial(_ours, condition, count_only, f"s3://{BUCKET}/{INDEX}"),
        OURS: partial(_ours, condition, count_only, None),
        "Polars": partial(_polars, question, needle, count_only),
        "DuckDB": partial(_duckdb, condition, count_only),
        "pyarrow": partial(_pyarrow, question, needle, count_only),
    }


def _ours(condition: str | None, count_only: bool, index: str | None, endpoint_url: str) -> Reader:
    async def ask(table: Table) -> Any:
        scan = table.scan(COLUMNS, where=condition)
        return await scan.count() if count_only else (await scan.to_arrow()).num_rows

    way = OurWay(options=cp.ReadOptions(index=index))
    return our_reader(f"{BUCKET}/{TABLE}", endpoint_url, ask, way=way)


def _times() -> tuple[datetime, datetime]:
    begin, end = (datetime(day.year, day.month, day.day, tzinfo=UTC) for day in WEEK)
    return begin, end


def _reader(ask: Callable[[], Any]) -> Reader:
    async def read() -> Any:
        return await asyncio.to_thread(ask)

    return Reader.that_keeps_nothing(read)


def _polars(question: str, needle: int, count_only: bool, endpoint_url: str) -> Reader:
    import polars as pl

    (begin, end), key = _times(), pl.col("date")
    conditions: dict[str, Any] = {
        BY_KEY: (key >= WEEK[0]) & (key < WEEK[1]),
        BY_TIME: (pl.col("ts") >= begin) & (pl.col("ts") < end),
        NEEDLE: pl.col("id") == needle,
        COUNT_DAY: key == WEEK[0],
    }

    def ask() -> int:
        frame: Any = pl.scan_parquet(
            f"s3://{BUCKET}/{TABLE}/", hive_partitioning=True, storage_options=polars_options(endpoint_url)
        )
        frame = frame.filter(conditions[question]) if question in conditions else frame
        found: int = frame.select(pl.len()).collect().item() if count_only else frame.select(COLUMNS).collect().height
        return found

    return _reader(ask)


def _duckdb(condition: str | None, count_only: bool, endpoint_url: str) -> Reader:
    connection = duckdb_connection(endpoint_url)
    source = f"read_parquet('s3://{BUCKET}/{TABLE}/*/*.parquet', hive_partitioning=true)"
    where = "" if condition is None else f" WHERE {condition}"

    def ask() -> int:
        if count_only:
            counted: int = connection.sql(f"SELECT count(*) FROM {source}{where}").fetchall()[0][0]
            return counted
        found: int = connection.sql(f"SELECT {', '.join(COLUMNS)} FROM {source}{where}").to_arrow_table().num_rows
        return found

    return _reader(ask)


def _pyarrow(question: str, needle: int, count_only: bool, endpoint_url: str) -> Reader:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    filesystem, key = pyarrow_filesystem(endpoint_url), pc.field("date")
    begin, end = _times()
    conditions: dict[str, Any] = {
        BY_KEY: (key >= str(WEEK[0])) & (key < str(WEEK[1])),
        BY_TIME: (pc.field("ts") >= pa.scalar(begin)) & (pc.field("ts") < pa.scalar(end)),
        NEEDLE: pc.field("id") == needle,
        COUNT_DAY: key == str(WEEK[0]),
    }

    def ask() -> int:
        dataset: Any = ds.dataset(f"{BUCKET}/{TABLE}", filesystem=filesystem, format="parquet", partitioning="hive")
        asked = conditions.get(question)
        rows: int = dataset.count_rows(filter=asked) if count_only else dataset.to_table(COLUMNS, filter=asked).num_rows
        return rows

    return _reader(ask)


if __name__ == "__main__":
    main(benchmark())
