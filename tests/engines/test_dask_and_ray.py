"""Dask and Ray read the rows of a table, in the pieces of a plan; each is skipped where it is not installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.small_tables import trades_of

ROWS = 1_000
HIGH = 2_500
"""Prices that begin in the middle of the third day."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    for day in range(4):
        path = tmp_path / "bucket" / "trades" / f"2024-03-0{day + 1}" / "data.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(trades_of(day, ROWS), path, row_group_size=250)
    asyncio.run(index_table(tmp_path / "bucket" / "trades", pages=False, pack=False))
    with ColdStoreServer(tmp_path) as started:
        yield started


def days_read(server: ColdStoreServer) -> set[str]:
    """The partitions of which data was fetched since the last call."""
    found = {
        request.path.split("/")[-2]
        for request in server.requests
        if request.path.endswith("data.parquet") and request.operation == "GetObject"
    }
    server.reset()
    return found


def expected(columns: list[str], least_price: int) -> pa.Table:
    rows = pa.concat_tables([trades_of(day, ROWS) for day in range(4)])
    return rows.slice(least_price).select(columns).combine_chunks()


def test_dask(server: ColdStoreServer) -> None:
    pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    from_table = import_module("coldparquet.dask").from_table
    url, access = "s3://bucket/trades", {"storage_options": server.storage_options}
    frame = from_table(url, ["ts", "symbol", "size"], cp.col("price") >= HIGH, most_pieces=3, **access)
    assert (frame.npartitions, frame.columns.tolist()) == (3, ["ts", "symbol", "size"])
    days_read(server)
    found = frame.compute(scheduler="synchronous").reset_index(drop=True)
    assert {request.operation for request in server.requests} == {"GetObject"}
    assert days_read(server) == {"2024-03-03", "2024-03-04"}
    rows = expected(["ts", "symbol", "size"], HIGH)
    pandas.testing.assert_frame_equal(found, rows.to_pandas(types_mapper=pandas.ArrowDtype))
    assert frame["size"].sum().compute(scheduler="synchronous") == pc.sum(rows["size"]).as_py()
    nothing = from_table(url, ["ts"], cp.col("price") < 0, **access)
    assert nothing.compute(scheduler="synchronous").shape == (0, 1)
    assert nothing.dtypes.equals(frame.dtypes[["ts"]])
    no_columns = from_table(url, [], cp.col("price") >= HIGH, **access)
    assert len(no_columns.compute(scheduler="synchronous")) == rows.num_rows


@pytest.fixture
def _ray() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    source = str(Path(__file__).resolve().parents[2] / "src")
    environment = {"env_vars": {"PYTHONPATH": ":".join([source, *sys.path])}}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("_ray")
def test_ray(server: ColdStoreServer) -> None:
    """Not part of the packages for tests: Ray takes 240 MB."""
    col = import_module("ray.data.expressions").col
    rows = import_module("coldparquet.ray").read("s3://bucket/trades", storage_options=server.storage_options)
    late = rows.filter(expr=col("price") >= HIGH)
    found = pa.concat_tables(
        pa.table(block) for block in late.select_columns(["ts", "size"]).iter_batches(batch_format="pyarrow")
    )
    assert (
        found.sort_by("ts").cast(trades_of(0, 1).select(["ts", "size"]).schema).equals(expected(["ts", "size"], HIGH))
    )
    assert days_read(server) == {"2024-03-03", "2024-03-04"}
    assert rows.count() == 4 * ROWS
    assert late.count() == 1_500
    # What has no translation is applied in the tasks.
    assert rows.filter(expr=(col("price") >= HIGH) & (col("price") + col("size") > 7_000)).count() == sum(
        row["price"] + row["size"] > 7_000
        for row in expected(["price", "size"], HIGH).to_pylist()
        if row["size"] is not None
    )
    assert rows.filter(expr=col("price") < 0).count() == 0
