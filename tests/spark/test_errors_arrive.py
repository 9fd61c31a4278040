"""Every error of the library, raised in every callback of the data source, arrives: PySpark swallows some, and plans no rows."""

from __future__ import annotations

import json
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import DoubleType, LongType, StringType, StructType, TimestampType

import coldparquet as cp
import coldparquet.spark as cold
from coldparquet import errors
from coldparquet.errors import (
    ArchivedObjectError,
    BudgetExceededError,
    ColdParquetError,
    InternalError,
    UnsupportedError,
)
from coldparquet.options import MIB
from coldparquet.pieces import ScanPiece
from coldparquet.spark.reader import PiecesPartition, TableReader
from coldparquet.spark.source import DefaultSource
from coldparquet.spark.task_settings import TaskSettings
from coldparquet.spark.writer import ColdParquetWriter
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, ServedRequest
from tests.spark.test_stream_query import await_end
from tests.support.failing_source import ERROR, ERRORS, FAIL_AT, NAME, FailingSource
from tests.support.spark_jobs import make_trades
from tests.support.spark_readers import DAYS, ROWS, remote, sent
from tests.support.spark_readers import reader_of as reader_of_source
from tests.support.written_tables import ticks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
if TYPE_CHECKING:
    from pathlib import Path

READING = ("schema", "reader", "partitions", "pushFilters", "read")
STREAMING = (
    "schema",
    "streamReader",
    "initialOffset",
    "latestOffset",
    "prepareForTriggerAvailableNow",
    "partitions",
    "read",
)
WRITING = ("writer", "write", "commit")
SWALLOWED = ("UnsupportedError", "NotImplementedError")


def check_arrived(raised: BaseException, name: str, text: str | None = None) -> None:
    found = cold.error_of(RuntimeError(text or "".join(traceback.format_exception(raised))))
    expected: type[errors.ColdParquetError] = getattr(errors, name, UnsupportedError)
    assert type(found) is expected, text or raised
    assert found.kind == expected.default_kind
    assert f"this is the {name} of a test" in str(found)
    assert not isinstance(raised, NotImplementedError | StopIteration)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("callback", READING)
def test_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback: str, name: str) -> None:
    table = make_trades(tmp_path)
    monkeypatch.setattr("coldparquet.spark.source._pushes_filters", lambda: True)
    source = FailingSource({"path": str(table), FAIL_AT: callback, ERROR: name, "push_filters": "true"})
    with pytest.raises(Exception, match="of a test") as caught:
        _query(source)
    check_arrived(caught.value, name)


def _query(source: DefaultSource) -> None:
    reader: Any = source.reader(source.schema())
    reader.pushFilters([])
    list(reader.read(reader.partitions()[0]))


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("callback", STREAMING)
def test_of_a_stream(tmp_path: Path, callback: str, name: str) -> None:
    source = FailingSource({"path": str(make_trades(tmp_path)), FAIL_AT: callback, ERROR: name})
    with pytest.raises(Exception, match="of a test") as caught:
        _follow(source)
    check_arrived(caught.value, name)


def _follow(source: DefaultSource) -> None:
    stream: Any = source.streamReader(source.schema())
    try:
        start = stream.initialOffset()
        stream.prepareForTriggerAvailableNow()
        end = stream.latestOffset(start, ReadAllAvailable())
        list(stream.read(stream.partitions(start, end)[0]))
    finally:
        stream.stop()


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("callback", [*WRITING, "abort"])
def test_of_a_write(tmp_path: Path, callback: str, name: str) -> None:
    rows = ticks(10)
    schema = DefaultSource.schema(DefaultSource({"path": str(make_trades(tmp_path))}))
    rows = pa.table({"ts": rows["ts"], "symbol": rows["side"], "price": rows["price"]})
    schema = StructType([schema["ts"], schema["symbol"], schema["price"]])
    told = {"path": str(tmp_path / "new"), "timestamp": "ts", FAIL_AT: callback, ERROR: name}
    with pytest.raises(Exception, match="of a test") as caught:
        _write(FailingSource(told), schema, rows)
    check_arrived(caught.value, name)


def _write(source: DefaultSource, schema: StructType, rows: pa.Table) -> None:
    writer: Any = source.writer(schema, overwrite=False)
    message = writer.write(iter(rows.to_batches()))
    writer.abort([message])
    writer.commit([message])


@pytest.mark.parametrize("streams", [False, True])
def test_a_partition_that_is_not_ours_is_refused(tmp_path: Path, streams: bool) -> None:
    source = DefaultSource({"path": str(make_trades(tmp_path))})
    reader: Any = source.streamReader(source.schema()) if streams else source.reader(source.schema())
    with pytest.raises(InternalError, match=r"did not plan, .*\[ForeignPartition\]$"):
        list(reader.read(InputPartition(None)))


@pytest.mark.parametrize("message", [None, "rows"])
def test_a_message_of_a_task_that_is_not_ours_is_refused(tmp_path: Path, message: Any) -> None:
    schema = StructType().add("ts", "timestamp").add("number", "long")
    writer: Any = DefaultSource({"path": str(tmp_path / "new"), "timestamp": "ts"}).writer(schema, overwrite=False)
    with pytest.raises(InternalError, match=r"nothing is committed.*\[ForeignMessage\]$"):
        writer.commit([message])


@pytest.fixture(scope="session")
def failing(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(FailingSource)
    return spark


@contextmanager
def arrives(name: str) -> Iterator[None]:
    with pytest.raises(Exception, match="of a test") as caught:
        yield
    check_arrived(caught.value, name, str(caught.value))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("callback", READING)
def test_of_a_batch_in_spark(failing: SparkSession, tmp_path: Path, callback: str) -> None:
    table = make_trades(tmp_path)
    for (
        name
    ) in SWALLOWED:  # what leaves a callback is tested above for all of them, and PySpark treats the others alike
        pushing = {"push_filters": "true"} if callback == "pushFilters" else {}
        reading = failing.read.format(NAME).options(**{FAIL_AT: callback, ERROR: name}, **pushing)
        if callback == "partitions":  # `load` would plan before that
            reading = reading.schema("price double")
        with arrives(name):
            reading.load(str(table)).where("price > 3").count()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("callback", STREAMING)
def test_of_a_stream_in_spark(failing: SparkSession, tmp_path: Path, callback: str) -> None:
    reading = failing.readStream.format(NAME).options(**{FAIL_AT: callback, ERROR: SWALLOWED[0], "columns": "price"})
    if callback != "schema":
        reading = reading.schema("price double")
    with arrives(SWALLOWED[0]):
        writing = reading.load(str(make_trades(tmp_path))).writeStream.format("noop")
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        await_end(writing.trigger(availableNow=True).start)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("callback", WRITING)
def test_of_a_write_in_spark(failing: SparkSession, tmp_path: Path, callback: str) -> None:
    writing = failing.createDataFrame(ticks(10)).write.format(NAME)
    writing = writing.options(**{FAIL_AT: callback, ERROR: SWALLOWED[0], "timestamp": "ts"}).mode("append")
    with arrives(SWALLOWED[0]):
        writing.save(str(tmp_path / "new"))
    assert not (tmp_path / "new" / "_txn").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_that_cannot_be_planned_counts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """An order of booleans is not supported, which was taken for a table without rows."""
    schema = StructType().add("ts", "timestamp").add("flag", "boolean")
    rows = ticks(10).select(["ts"]).append_column("flag", pa.array([True, False] * 5))
    cp.sync.write_table(tmp_path / "flags", rows, timestamp="ts")
    reading = spark.read.format("coldparquet").option("where", "flag <= false").schema(schema)
    with pytest.raises(UnsupportedError), cold.own_errors():
        reading.load(str(tmp_path / "flags")).count()


# --- What options of the data source and of the writer do, on a simulated store, without a JVM ------------------------


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
