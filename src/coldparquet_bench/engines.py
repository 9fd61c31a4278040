"""The same engines on the files, and on our table: an hour of a year of days, a count, and the first five rows.

Polars, DuckDB and pyarrow read the files of the year of :mod:`coldparquet_bench.year_of_trades` by themselves; then they ask
our table, which is opened by its URL for every call and left to them to push their columns, filters and limits into. And pyarrow
reads the files by the ``_metadata`` of ``coldparquet pack --parquet-metadata``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from coldparquet_bench import year_of_trades
from coldparquet_bench.measurement import BUCKET, OURS, Benchmark, Reader, main
from coldparquet_bench.readers import duckdb_connection, polars_options, pyarrow_filesystem
from coldparquet_bench.year_of_trades import DAYS, FILES, ROWS, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coldparquet_bench.measurement import MakeData, MakeReader

BEGIN, END = datetime(2024, 3, 11, 2, tzinfo=UTC), datetime(2024, 3, 11, 3, tzinfo=UTC)
LEAST_PRICE = 60_000.0
HOUR = "an hour of two columns out of a year of days"
COUNT = "number of rows of a year of days"
HEAD, FILTER_HEAD = "the first five rows", "the first five rows above a price"


class _Engine(Protocol):
    def hour(self, source: Any) -> int: ...

    def count(self, source: Any) -> int: ...

    def head(self, source: Any) -> int: ...

    def filter_head(self, source: Any) -> int: ...


_ASKS = {HOUR: "hour", COUNT: "count", HEAD: "head", FILTER_HEAD: "filter_head"}


class _Polars:
    def hour(self, frame: Any) -> int:
        import polars as pl

        asked = frame.filter(pl.col("ts") >= BEGIN, pl.col("ts") < END).select("ts", "price")
        rows: int = asked.collect().height
        return rows

    def count(self, frame: Any) -> int:
        import polars as pl

        rows: int = frame.select(pl.len()).collect().item()
        return rows

    def head(self, frame: Any) -> int:
        rows: int = frame.head(5).collect().height
        return rows

    def filter_head(self, frame: Any) -> int:
        import polars as pl

        rows: int = frame.filter(pl.col("price") >= LEAST_PRICE).head(5).collect().height
        return rows


class _DuckDB:
    def hour(self, relation: Any) -> int:
        return self._rows(relation.filter(f"ts >= '{BEGIN}' AND ts < '{END}'").select("ts", "price"))

    def count(self, relation: Any) -> int:
        rows: int = relation.count("*").fetchall()[0][0]
        return rows

    def head(self, relation: Any) -> int:
        return self._rows(relation.limit(5))

    def filter_head(self, relation: Any) -> int:
        return self._rows(relation.filter(f"price >= {LEAST_PRICE}").limit(5))

    def _rows(self, relation: Any) -> int:
        rows: int = relation.to_arrow_table().num_rows
        return rows


class _PyArrow:
    def hour(self, dataset: Any) -> int:
        import pyarrow.compute as pc

        rows: int = dataset.to_table(
            ["ts", "price"], filter=(pc.field("ts") >= BEGIN) & (pc.field("ts") < END)
        ).num_rows
        return rows

    def count(self, dataset: Any) -> int:
        rows: int = dataset.count_rows()
        return rows

    def head(self, dataset: Any) -> int:
        rows: int = dataset.head(5).num_rows
        return rows

    def filter_head(self, dataset: Any) -> int:
        import pyarrow.compute as pc

        rows: int = dataset.head(5, filter=pc.field("price") >= LEAST_PRICE).num_rows
        return rows


def benchmark(*, days: int = DAYS, rows: int = ROWS) -> Benchmark:
    """Make the benchmark; a smoke test asks for fewer days of fewer rows."""
    year = year_of_trades.benchmark(days=days, rows=rows)
    return Benchmark(
        module="coldparquet_bench.engines",
        data=f"{year.data}-with-metadata",
        make_data=partial(_make_data, year.make_data),
        questions={question: _engines(question) for question in _ASKS},
        warm_calls=2,
    )


async def _make_data(make_year: MakeData, bucket: Path) -> None:
    from coldparquet_bench.packing import pack_through_store

    await make_year(bucket)
    await pack_through_store(bucket, TABLE, parquet_metadata=True)


def _engines(question: str) -> Mapping[str, MakeReader]:
    return {
        name: partial(make, question)
        for name, make in {
            f"{OURS} in Polars": _our_polars,
            "Polars": _polars,
            f"{OURS} in DuckDB": _our_duckdb,
            "DuckDB": _duckdb,
            f"{OURS} in pyarrow": _our_pyarrow,
            "pyarrow": _pyarrow,
            "pyarrow with our _metadata": _pyarrow_with_metadata,
        }.items()
    }


def _asking(question: str, engine: _Engine, source: Callable[[], Any]) -> Reader:
    ask = getattr(engine, _ASKS[question])

    async def read() -> Any:
        return await asyncio.to_thread(lambda: ask(source()))

    return Reader.that_keeps_nothing(read)


def _polars(question: str, endpoint_url: str) -> Reader:
    import polars as pl

    return _asking(question, _Polars(), lambda: pl.scan_parquet(FILES, storage_options=polars_options(endpoint_url)))


def _duckdb(question: str, endpoint_url: str) -> Reader:
    connection = duckdb_connection(endpoint_url)
    return _asking(question, _DuckDB(), lambda: connection.sql(f"FROM read_parquet('{FILES}')"))


def _pyarrow(question: str, endpoint_url: str) -> Reader:
    import pyarrow.dataset as ds

    filesystem = pyarrow_filesystem(endpoint_url)
    return _asking(
        question, _PyArrow(), lambda: ds.dataset(f"{BUCKET}/{TABLE}", filesystem=filesystem, format="parquet")
    )


def _pyarrow_with_metadata(question: str, endpoint_url: str) -> Reader:
    import pyarrow.dataset as ds

    filesystem = pyarrow_filesystem(endpoint_url)
    return _asking(
        question, _PyArrow(), lambda: ds.parquet_dataset(f"{BUCKET}/{TABLE}/_metadata", filesystem=filesystem)
    )


def _ours(endpoint_url: str) -> Callable[[], Any]:
    import coldparquet.storage.s3.store
    import coldparquet.sync

    options = {"endpoint_url": endpoint_url, "key": "x", "secret": "x"}
    return lambda: coldparquet.sync.open_table(f"s3://{BUCKET}/{TABLE}", storage_options=options)


def _our_polars(question: str, endpoint_url: str) -> Reader:
    import coldparquet.polars as _  # noqa: F401 - before the clock, as the others' imports

    opened = _ours(endpoint_url)
    return _asking(question, _Polars(), lambda: opened().lazy())


def _our_duckdb(question: str, endpoint_url: str) -> Reader:
    import duckdb

    import coldparquet.duckdb

    opened, connection = _ours(endpoint_url), duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")

    def source() -> Any:
        coldparquet.duckdb.register(connection, "trades", opened())
        return connection.table("trades")

    return _asking(question, _DuckDB(), source)


def _our_pyarrow(question: str, endpoint_url: str) -> Reader:
    import coldparquet.dataset as _  # noqa: F401 - before the clock, as the others' imports

    opened = _ours(endpoint_url)
    return _asking(question, _PyArrow(), lambda: opened().to_pyarrow_dataset())


if __name__ == "__main__":
    main(benchmark())
