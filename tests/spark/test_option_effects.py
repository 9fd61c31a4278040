"""What options of the data source and of the writer do, on a simulated store. Needs no JVM: readers and writers as Spark uses them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructType, TimestampType

import coldparquet as cp
from coldparquet.errors import ArchivedObjectError, BudgetExceededError, ColdParquetError
from coldparquet.options import MIB
from coldparquet.pieces import ScanPiece
from coldparquet.spark.reader import PiecesPartition, TableReader
from coldparquet.spark.task_settings import TaskSettings
from coldparquet.spark.writer import ColdParquetWriter
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, ServedRequest
from tests.support.spark_readers import DAYS, ROWS, remote, sent
from tests.support.spark_readers import reader_of as reader_of_source
from tests.support.written_tables import ticks

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVED_DAY = "2024-03-02"


def archive(store: Path, *, clock_speed: float = 1.0) -> ColdStoreServer:
    """The same store, with one of the days in an archive."""
    classes = {f"*/{ARCHIVED_DAY}/data.parquet": "GLACIER"}
    return ColdStoreServer(store, ColdStoreOptions(storage_classes=classes, clock_speed=clock_speed))


def reader_of(server: ColdStoreServer, **options: str) -> TableReader:
    return reader_of_source(remote(server, **options))


def shares_of(reader: TableReader) -> list[PiecesPartition]:
    return [partition for partition in reader.partitions() if isinstance(partition, PiecesPartition)]


def row_count(reader: TableReader) -> int:
    task = sent(reader)
    return sum(batch.num_rows for share in shares_of(reader) for batch in task.read(share))


def data_requests(server: ColdStoreServer) -> list[ServedRequest]:
    return [served for served in server.requests if served.path.endswith("data.parquet") and served.method == "GET"]


def test_counting_without_columns_asks_for_no_data(server: ColdStoreServer) -> None:
    assert row_count(reader_of(server, columns="")) == DAYS * ROWS
    assert server.requests
    assert not data_requests(server)


def test_a_budget_in_dollars_by_the_prices_of_a_file(server: ColdStoreServer, tmp_path: Path) -> None:
    dear = {
        "based_on": "default",
        "name": "dear",
        "as_of": "2026-11",
        "classes": {"STANDARD": {"gb_retrieved": 10_000}},
    }
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(dear))
    assert shares_of(reader_of(server, max_usd="0.01"))
    with pytest.raises(BudgetExceededError, match=r"max_usd is.* \[BudgetExceeded\]$"):
        reader_of(server, max_usd="0.01", prices=str(prices)).partitions()
    assert not data_requests(server)


def test_goal_and_memory_limit_travel_to_the_tasks(server: ColdStoreServer) -> None:
    reader = reader_of(server, goal="few-requests", memory_limit="64MiB", batch_rows="100", pieces="1")
    [share] = shares_of(reader)
    [piece] = share.pieces
    assert ScanPiece.from_bytes(piece).content().options.goal == "few-requests"
    settings = TaskSettings.from_dict(sent(reader).__getstate__()["_settings"])
    assert settings.memory_limit_bytes == 64 * MIB
    batches = list(sent(reader).read(share))
    assert max(batch.num_rows for batch in batches) == 100
    assert pa.Table.from_batches(batches).num_rows == DAYS * ROWS


def test_archived_partitions_are_left_out_or_restored(store: Path) -> None:
    with archive(store) as server:
        with pytest.raises(ArchivedObjectError, match=r"option\('archived', 'restore'\).* \[ObjectArchived\]$"):
            reader_of(server).partitions()
        assert row_count(reader_of(server, archived="skip")) == (DAYS - 1) * ROWS
        with pytest.raises(ArchivedObjectError, match=r"option\('restore_wait', 'true'\) \[RestoreRequested\]$"):
            reader_of(server, archived="restore", restore_tier="Expedited", restore_days="2").partitions()
        restores = [request for request in server.requests if request.operation == "RestoreObject"]
        assert [ARCHIVED_DAY in request.path for request in restores] == [True]


def test_a_restore_is_waited_for(store: Path) -> None:
    with archive(store, clock_speed=3_600.0) as server:
        waiting = reader_of(server, archived="restore", restore_tier="Expedited", restore_wait="true")
        assert row_count(waiting) == DAYS * ROWS
        assert "RestoreObject" in {request.operation for request in server.requests}


def test_settings_of_another_release_say_what_to_install(server: ColdStoreServer) -> None:
    reader = reader_of(server, pieces="1")
    [share] = shares_of(reader)
    task = sent(reader)
    task._settings = {**task._settings, "version": 99, "new_in_it": True}
    with pytest.raises(ColdParquetError, match=r"settings of version 99.*install the same release.* \[OtherRelease\]$"):
        list(task.read(share))


def test_a_writer_of_another_release_says_what_to_install(tmp_path: Path) -> None:
    state = writer(tmp_path / "new").__getstate__()
    with pytest.raises(ColdParquetError, match=r"writes with coldparquet 9\.9\.9.* \[OtherRelease\]$"):
        ColdParquetWriter.__new__(ColdParquetWriter).__setstate__({**state, "release": "9.9.9", "pickled": b"unknown"})


@pytest.mark.parametrize("pages", ["true", "false"])
def test_page_indexes_and_bloom_filters_are_written_where_asked_for(tmp_path: Path, pages: str) -> None:
    table, rows = tmp_path / "table", ticks(400, days=1)
    writing = writer(table, pages=pages, bloom_columns="number", page_rows="100")
    writing.commit([sent(writing).write(iter(rows.to_batches()))])
    [partition] = [path for path in table.iterdir() if path.is_dir()]
    assert (partition / "_pages").exists() == (pages == "true")
    sidecar = cp.parse_sidecar((partition / "_pm").read_bytes())
    assert [sidecar.column(column).name for column in sidecar.header.bloom_columns] == ["number"]


def writer(table: Path, **options: str) -> ColdParquetWriter:
    schema = StructType().add("ts", TimestampType()).add("side", StringType()).add("price", DoubleType())
    told = {"path": str(table), "timestamp": "ts", **options}
    return ColdParquetWriter(told, schema.add("number", LongType()), overwrite=False)
