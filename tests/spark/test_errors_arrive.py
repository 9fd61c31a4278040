"""Every error of the library, raised in every callback of the data source, arrives: PySpark swallows some, and plans no rows."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import coldparquet as cp
import coldparquet.spark as cold
from coldparquet import errors
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.spark.source import DefaultSource
from tests.spark.test_stream_query import await_end
from tests.support.failing_source import ERROR, ERRORS, FAIL_AT, NAME, FailingSource
from tests.support.spark_jobs import make_trades
from tests.support.written_tables import ticks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

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


@pytest.mark.spark
def test_a_query_that_cannot_be_planned_counts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """An order of booleans is not supported, which was taken for a table without rows."""
    schema = StructType().add("ts", "timestamp").add("flag", "boolean")
    rows = ticks(10).select(["ts"]).append_column("flag", pa.array([True, False] * 5))
    cp.sync.write_table(tmp_path / "flags", rows, timestamp="ts")
    reading = spark.read.format("coldparquet").option("where", "flag <= false").schema(schema)
    with pytest.raises(UnsupportedError), cold.own_errors():
        reading.load(str(tmp_path / "flags")).count()
