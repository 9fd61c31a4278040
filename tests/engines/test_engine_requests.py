"""What engines cost that ask our tables: the requests of the plan, and few where they stop early."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

import coldparquet as cp
import coldparquet.duckdb
from coldparquet.cli.commands import app
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.small_tables import trades_of

DAYS, ROWS = 120, 2_000
FROM, TO = dt.datetime(2024, 4, 10, 2, tzinfo=dt.UTC), dt.datetime(2024, 4, 10, 3, tzinfo=dt.UTC)
_HOUR_IN_SQL = "SELECT ts, price FROM trades WHERE ts >= TIMESTAMPTZ '2024-04-10 02:00:00+00' AND ts < TIMESTAMPTZ '2024-04-10 03:00:00+00' AND symbol IN ('BTC', 'XRP')"
_IN_ARROW = (pc.field("ts") >= FROM) & (pc.field("ts") < TO) & pc.field("symbol").isin(["BTC", "XRP"])
_IN_POLARS = (pl.col("ts") >= FROM, pl.col("ts") < TO, pl.col("symbol").is_in(["BTC", "XRP"]))
EXPECTED_ROWS = trades_of(40, ROWS).filter(_IN_ARROW).num_rows
OPENING = 6
"""The listing, _txn, _meta and _catalogue; then the newest _pm and _pages."""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engines")
    for number in range(DAYS):
        rows = trades_of(number, ROWS)
        path = root / "bucket" / "trades" / f"{dt.date(2024, 3, 1) + dt.timedelta(days=number)}"
        path.mkdir(parents=True)
        pq.write_table(rows, path / "data.parquet", row_group_size=500)
    with ColdStoreServer(root) as server:
        options = [f"{name}={server.storage_options[name]}" for name in ("key", "secret", "endpoint_url")]
        flags = [word for option in options for word in ("--storage-option", option)]
        for command in (["index"], ["pack", "--parquet-metadata"]):
            done = CliRunner().invoke(app, [*command, "s3://bucket/trades", *flags])
            assert done.exit_code == 0, done.output
    return root


@pytest.fixture
def server(bucket: Path) -> Iterator[ColdStoreServer]:
    cp.clear_caches()
    with ColdStoreServer(bucket) as server:
        yield server


def open_trades(server: ColdStoreServer) -> cp.sync.Table:
    return cp.sync.open_table("s3://bucket/trades", storage_options=server.storage_options)


def by_pyarrow(table: cp.sync.Table) -> int:
    return table.to_pyarrow_dataset().to_table(["ts", "price"], filter=_IN_ARROW).num_rows


def by_polars(table: cp.sync.Table) -> int:
    return table.lazy().filter(*_IN_POLARS).select("ts", "price").collect().height


def by_duckdb(table: cp.sync.Table) -> int:
    return _in_duckdb(table, _HOUR_IN_SQL)


def by_datafusion(table: cp.sync.Table) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("trades", table.to_pyarrow_dataset(nan="largest"))
    return context.sql(_HOUR_IN_SQL.replace("TIMESTAMPTZ", "TIMESTAMP")).to_arrow_table().num_rows


def _in_duckdb(table: cp.sync.Table, query: str) -> int:
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    cp.duckdb.register(connection, "trades", table)
    return connection.sql(query).to_arrow_table().num_rows


@pytest.mark.parametrize("ask", [by_pyarrow, by_polars, by_duckdb, by_datafusion])
def test_an_hour_of_one_day(server: ColdStoreServer, ask: Callable[[cp.sync.Table], int]) -> None:
    with open_trades(server) as table:
        assert len(server.requests) == OPENING
        assert ask(table) == EXPECTED_ROWS
        asked = Counter(Path(request.path).name for request in server.requests[OPENING:])
        assert asked["data.parquet"] == 1
        assert len(server.requests) <= 10
        before = len(server.requests)
        assert ask(table) == EXPECTED_ROWS
        assert len(server.requests) == before


def test_pyarrow_alone_plans_from_one_object(server: ColdStoreServer) -> None:
    options = server.storage_options
    store = fs.S3FileSystem(
        access_key=options["key"],
        secret_key=options["secret"],
        endpoint_override=options["endpoint_url"].removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    dataset = ds.parquet_dataset("bucket/trades/_metadata", filesystem=store)
    assert dataset.to_table(columns=["ts", "price"], filter=_IN_ARROW).num_rows == EXPECTED_ROWS
    asked = Counter(Path(request.path).name for request in server.requests)
    assert asked["data.parquet"] <= 3
    assert len(server.requests) <= 6, [(request.operation, request.path) for request in server.requests]


def _counted_by_datafusion(table: cp.sync.Table) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("trades", table.to_pyarrow_dataset(nan="largest"))
    counted: dict[str, list[int]] = context.sql("SELECT count(*) AS n FROM trades").to_pydict()
    return counted["n"][0]


@pytest.mark.parametrize(
    "count",
    [
        lambda table: table.to_pyarrow_dataset().count_rows(),
        lambda table: table.scan([]).to_arrow().num_rows,
        _counted_by_datafusion,
    ],
    ids=["pyarrow", "scan([])", "DataFusion"],
)
def test_counting_reads_no_data(server: ColdStoreServer, count: Callable[[cp.sync.Table], int]) -> None:
    with open_trades(server) as table:
        assert count(table) == DAYS * ROWS
        assert not any(request.path.endswith("data.parquet") and request.method == "GET" for request in server.requests)
        assert len(server.requests) <= 8


STOPS_EARLY: dict[str, tuple[Callable[[cp.sync.Table], Any], int]] = {
    "DuckDB: LIMIT": (lambda table: _in_duckdb(table, "SELECT * FROM trades LIMIT 5"), 3),
    "DuckDB: WHERE, LIMIT": (lambda table: _in_duckdb(table, "SELECT * FROM trades WHERE price >= 0 LIMIT 5"), 3),
    "Polars: head": (lambda table: table.lazy().head(5).collect().height, 1),
    "Polars: filter, head": (lambda table: table.lazy().filter(pl.col("price") >= 0).head(5).collect().height, 16),
    "pyarrow: head": (lambda table: table.to_pyarrow_dataset().head(5).num_rows, 1),
    "pyarrow: filter, head": (
        lambda table: table.to_pyarrow_dataset().head(5, filter=pc.field("price") >= 0).num_rows,
        1,
    ),
}


@pytest.mark.parametrize("name", STOPS_EARLY)
def test_who_stops_early_pays_for_the_beginning(server: ColdStoreServer, name: str) -> None:
    ask, most = STOPS_EARLY[name]
    with open_trades(server) as table:
        assert ask(table) == 5
        data = [
            request for request in server.requests if request.path.endswith("data.parquet") and request.method == "GET"
        ]
        assert len(data) <= most, [request.path for request in data]


def test_a_slow_stream_reads_four_times_as_much_each_time(server: ColdStoreServer) -> None:
    with open_trades(server) as table, table.scan(["price"]).batches(slow_start=True) as batches:
        fetched = []
        for _ in range(4):
            next(batches)
            fetched.append(sum(request.path.endswith("data.parquet") for request in server.requests))
        rest = sum(batch.num_rows for batch in batches)
    assert rest == DAYS * ROWS - 4 * 500
    assert fetched[0] == 1
    assert fetched[-1] <= 16
