"""A small table is planned where its columns are looked up; the plan travels with the source, cut into tasks, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DoubleType, StructField, StructType

from coldparquet.errors import BudgetExceededError
from coldparquet.maintenance.index import index_table
from coldparquet.pieces.frame import PieceNumbers
from coldparquet.pieces.read import ScanPiece
from coldparquet.spark.early_plan import BYTES_PER_TASK, default_task_count, shares_of
from coldparquet.spark.reader import PiecesPartition
from coldparquet.spark.source import DefaultSource
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.spark_readers import directly, remote, same_rows
from tests.support.written_tables import trades

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader

SECRET = "planted-77ab"  # noqa: S105 - planted, to be looked for

PLANNING_WORKER = """
import pathlib, pickle, sys
given = pathlib.Path(sys.argv[1])
source, schema = (pickle.loads((given / name).read_bytes()) for name in ("source", "schema"))
print(len(source.reader(schema).partitions()), *sys.modules)
"""
"""What Spark's own worker does with a source that was looked up in another one."""


def loaded(table_source: DefaultSource) -> tuple[DefaultSource, StructType]:
    """Look the columns up, and send the source to where it plans, as Spark does."""
    schema = table_source.schema()
    return pickle.loads(pickle.dumps(table_source)), schema  # noqa: S301 - our own bytes


def rows_of(reader: DataSourceReader) -> pa.Table:
    batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches)


def test_a_loaded_file_is_planned_without_another_request(server: ColdStoreServer, store: Path) -> None:
    url = "s3://bucket/trades/2024-03-02/data.parquet"
    where = "price > 10"
    there, schema = loaded(remote(server, url, columns="ts,price", where=where))
    assert Counter(request.method for request in server.requests) == {"GET": 2, "HEAD": 1}  # `_pm`, `_pages`
    server.reset()
    reader = there.reader(schema)
    partitions = reader.partitions()
    assert not server.requests
    found = pa.Table.from_batches([batch for partition in partitions for batch in reader.read(partition)])  # type: ignore[misc]
    assert {(request.method, request.path) for request in server.requests} == {
        ("GET", "bucket/trades/2024-03-02/data.parquet")
    }
    times = pq.read_table(store / url.removeprefix("s3://"))["ts"]
    assert found.num_rows == sum(
        1
        for row in directly(store / "bucket" / "trades", ["ts"], where)["ts"].to_pylist()
        if times[0].as_py() <= row <= times[-1].as_py()
    )


def test_rows_of_an_early_plan(server: ColdStoreServer, store: Path) -> None:
    there, schema = loaded(remote(server, columns="price,symbol", where="price > 10", pieces="2"))
    server.reset()
    assert same_rows(
        rows_of(there.reader(schema)), directly(store / "bucket" / "trades", ["price", "symbol"], "price > 10")
    )
    assert all(request.path.endswith("data.parquet") and request.method == "GET" for request in server.requests)


def test_an_old_plan_is_made_anew(server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    table_source = remote(server, columns="price")
    there, schema = loaded(table_source)
    later = pickle.loads(pickle.dumps(table_source))  # noqa: S301 - our own bytes
    server.reset()
    loaded_s = time.time()
    monkeypatch.setattr(time, "time", lambda: loaded_s + 59)
    there.reader(schema).partitions()
    assert not server.requests
    monkeypatch.setattr(time, "time", lambda: loaded_s + 61)
    later.reader(schema).partitions()
    assert server.requests


def test_an_early_plan_goes_no_further_than_to_the_reader(server: ColdStoreServer) -> None:
    """Spark sends the source itself along with every task."""
    there, schema = loaded(remote(server, columns="price"))
    with_plan = len(pickle.dumps(there))
    [partition, *_] = there.reader(schema).partitions()
    assert isinstance(partition, PiecesPartition)
    assert len(pickle.dumps(there)) < with_plan - sum(map(len, partition.pieces))


def test_a_worker_that_is_given_a_plan_loads_nothing_that_plans(server: ColdStoreServer, tmp_path: Path) -> None:
    """Spark ends idle workers after a minute, so that most queries pay for what each of them imports."""
    table_source = remote(server, columns="price")
    schema = table_source.schema()
    (tmp_path / "source").write_bytes(pickle.dumps(table_source))
    (tmp_path / "schema").write_bytes(pickle.dumps(schema))
    planned = subprocess.run(
        [sys.executable, "-c", PLANNING_WORKER, tmp_path], check=True, capture_output=True, text=True, timeout=60
    )
    tasks, *loaded_modules = planned.stdout.split()
    assert int(tasks) == len(table_source.reader(schema).partitions())
    for heavy in ("coldparquet.spark.planning", "coldparquet.table", "coldparquet.decode", "pyarrow.compute", "pandas"):
        assert heavy not in loaded_modules


def test_other_columns_are_planned_anew(server: ColdStoreServer, store: Path) -> None:
    there, _ = loaded(remote(server))
    asked = StructType([StructField("price", DoubleType())])
    assert same_rows(rows_of(there.reader(asked)), directly(store / "bucket" / "trades", ["price"]))


def test_what_stands_against_a_query_is_said_by_the_query(server: ColdStoreServer) -> None:
    there, schema = loaded(remote(server, max_bytes="10"))
    reader = there.reader(schema)
    with pytest.raises(BudgetExceededError, match="max_bytes is 10"):
        reader.partitions()


@pytest.mark.parametrize(("options", "looked_into"), [({}, 1), ({"where": "price > 10"}, 17)])
async def test_many_partitions_wait_for_a_question(tmp_path: Path, options: dict[str, str], looked_into: int) -> None:
    """Without a condition, the sidecars of a larger table are not read in order to know its columns."""
    table = tmp_path / "bucket" / "days"
    for day in range(1, 18):
        (table / f"2024-03-{day:02}").mkdir(parents=True)
        pq.write_table(trades(day * 10, 10), table / f"2024-03-{day:02}" / "data.parquet")
    await index_table(table, pages=False, pack=False)
    with ColdStoreServer(tmp_path) as server:
        await asyncio.to_thread(remote(server, "s3://bucket/days", columns="price", **options).schema)
        asked = {request.path for request in server.requests if request.path.endswith("_pm")}
    assert len(asked) == looked_into


def test_no_credential_travels_with_an_early_plan(server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", json.dumps({**server.storage_options, "secret": SECRET}))
    table_source = DefaultSource({"path": "s3://bucket/trades", "credentials": "env:STORE_SECRET"})
    before = len(pickle.dumps(table_source))
    schema = table_source.schema()
    data = pickle.dumps(table_source)
    assert len(data) > before + 500  # the plan is in it
    assert SECRET.encode() not in data
    assert rows_of(pickle.loads(data).reader(schema)).num_rows == 3_000  # noqa: S301 - our own bytes


def pieces_of(*fetched_bytes: int) -> list[ScanPiece]:
    return [
        ScanPiece(
            table="t",
            numbers=PieceNumbers(row_group_count=1, rows_at_most=1, fetched_bytes=size_bytes, request_count=1),
            encoded=str(number).encode(),
        )
        for number, size_bytes in enumerate(fetched_bytes)
    ]


@pytest.mark.parametrize(
    ("worthwhile", "count"), [(1, 1), (128, 128), (129, 128), (512, 256), (3_200, 640), (1 << 21, 16_384)]
)
def test_large_scans_get_larger_tasks_not_only_more_of_them(worthwhile: int, count: int) -> None:
    assert default_task_count(worthwhile) == count


def test_pieces_of_a_large_scan_are_shared_out_evenly_and_in_order() -> None:
    pieces = pieces_of(*[1_000 + number % 7 for number in range(800)])
    shares = shares_of(pieces, most=None)
    assert len(shares) == default_task_count(800) == 320
    assert [piece for share in shares for piece in share] == pieces
    assert {len(share) for share in shares} <= {2, 3}
    assert [len(share) for share in shares_of(pieces[:128], most=None)] == [1] * 128


def test_as_many_tasks_as_were_asked_for() -> None:
    pieces = pieces_of(*[BYTES_PER_TASK] * 100)
    assert len(shares_of(pieces, most=100)) == 100
    assert len(shares_of(pieces, most=7)) == 7


def test_small_tables_share_tasks() -> None:
    small = pieces_of(*[1_000] * 50)
    assert len(shares_of(small, most=None, together=True)) == 1
    large = pieces_of(*[BYTES_PER_TASK // 4] * 50)
    assert len(shares_of(large, most=None, together=True)) == 50
    assert len(shares_of(large, most=6, together=True)) == 6
