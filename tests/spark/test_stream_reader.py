"""The stream reader as Spark calls it, without Spark: offsets, limits, partitions, what travels to tasks."""

from __future__ import annotations

import json
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from coldparquet.errors import ColdParquetError, InvalidInputError, ObjectChangedError
from coldparquet.pieces import close_stores
from coldparquet.spark.options import STREAM_OPTIONS, StreamOptions
from coldparquet.spark.source import DefaultSource, RefusedStream
from coldparquet.spark.stream import ColdParquetStreamReader
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.growing_tables import GrowingTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBER = StructType([StructField("number", LongType())])


class Query:
    """What Spark does with a reader: offsets go through JSON, partitions and the reader itself through pickle."""

    def __init__(self, reader: ColdParquetStreamReader) -> None:
        self.reader = reader
        self.offset: dict[str, Any] = _through_json(reader.initialOffset())

    def batch(self) -> list[int]:
        start = self.offset
        end = _through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        self.offset = end
        return [] if end == start else self.rows(start, end)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        partitions = _through_pickle(self.reader.partitions(start, end))
        in_task = _through_pickle(self.reader)
        return [number for part in partitions for batch in in_task.read(part) for number in batch[0].to_pylist()]


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def _through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made here


@pytest.fixture(autouse=True)
def no_open_connections() -> Iterator[None]:
    """Tasks leave stores open for the next task of their process; here there is none."""
    yield
    close_stores()


@pytest.fixture
async def table(tmp_path: Path) -> GrowingTable:
    table = GrowingTable(tmp_path / "table")
    for day in (1, 2, 3):
        await table.publish(day, 4)
    return table


@pytest.fixture
def readers(table: GrowingTable) -> Iterator[Any]:
    made = []

    def make(**options: str) -> ColdParquetStreamReader:
        reader = ColdParquetStreamReader({"path": str(table.directory), "poll_seconds": "0", **options}, NUMBER)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()
        reader.stop()


async def test_batches_and_a_restart(table: GrowingTable, readers: Any) -> None:
    query = Query(readers())
    assert query.batch() == list(range(12))
    assert query.batch() == []
    await table.append(3, 2)
    await table.publish(4, 1)
    again = Query(readers())
    again.offset = query.offset
    assert again.batch() == [12, 13, 14]
    assert again.reader.partitions(again.offset, again.offset) == []


async def test_the_end_of_a_query_with_available_now(table: GrowingTable, readers: Any) -> None:
    reader = readers(maxPartitionsPerTrigger="1")
    query = Query(reader)
    reader.prepareForTriggerAvailableNow()
    await table.publish(4, 4)
    batches = [query.batch() for _ in range(4)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], []]
    following = Query(readers())
    following.offset = query.offset
    assert following.batch() == [12, 13, 14, 15]


def test_spark_may_ask_for_all_in_spite_of_the_limits(readers: Any) -> None:
    query = Query(readers(maxrowspertrigger="5"))
    end = query.reader.latestOffset(query.offset, ReadAllAvailable())
    assert query.rows(query.offset, end) == list(range(12))
    assert query.batch() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReadAllAvailable()),
        ({"maxPartitionsPerTrigger": "2", "maxRowsPerTrigger": "5"}, ReadMaxFiles(2)),
        ({"maxRowsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"MAXBYTESPERTRIGGER": "1.5kB"}, ReadMaxBytes(1_500)),
    ],
)
def test_limits_as_spark_knows_them(readers: Any, options: dict[str, str], expected: Any) -> None:
    assert readers(**options).getDefaultReadLimit() == expected


def test_all_limits_hold_together(readers: Any) -> None:
    query = Query(readers(maxPartitionsPerTrigger="2", maxRowsPerTrigger="5"))
    assert [len(query.batch()) for _ in range(4)] == [5, 5, 2, 0]


async def test_only_what_comes_later(table: GrowingTable, readers: Any) -> None:
    query = Query(readers(starting_from="latest"))
    assert query.batch() == []
    await table.append(3, 1)
    assert query.batch() == [12]


async def test_changes_are_told_in_one_sentence_with_their_kind(table: GrowingTable, readers: Any) -> None:
    query = Query(readers())
    query.batch()
    await table.rewrite(1, more=1)
    with pytest.raises(ObjectChangedError, match=r"on_change.*\[PartitionsRewritten\]$"):
        query.batch()


def test_progress_is_readable(readers: Any) -> None:
    reader = readers()
    assert reader.reportLatestOffset() is None
    query = Query(reader)
    query.batch()
    assert reader.reportLatestOffset() == {"txn": 4, "partitions": 3, "rows": 12}
    assert query.offset["rows"] == 12


def test_counting_needs_no_column(table: GrowingTable) -> None:
    reader = ColdParquetStreamReader({"path": str(table.directory)}, StructType([]))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    counts = [batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)]
    reader.stop()
    assert sum(counts) == 12


def test_a_wrong_schema_is_told(table: GrowingTable) -> None:
    wrong = StructType([StructField("number", StringType())])
    reader = ColdParquetStreamReader({"path": str(table.directory)}, wrong)
    with pytest.raises(InvalidInputError, match="column 'number' is LONG") as caught:
        reader.initialOffset()
    reader.stop()
    assert caught.value.kind == "SchemaMismatch"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_change": "panic"}, "on_change is 'panic'; it must be one of 'error', 'ignore', 'reread', 'append'"),
        ({"starting_from": "noon"}, "starting_from is 'noon'"),
        ({"maxRowsPerTrigger": "0"}, "it must be at least 1"),
        ({"maxBytesPerTrigger": "many"}, "it must be a number of bytes"),
        ({"maxBytesPerTrigger": "0"}, "at least 1 byte"),
        ({"poll_seconds": "-1"}, "a number of seconds, 0 or more"),
        ({"poll_seconds": "often"}, "a number of seconds, 0 or more"),
        ({"maxFilesPerTrigger": "3"}, "there is no option 'maxfilespertrigger'; did you mean"),
        ({"path": "a,b"}, "a stream follows one table"),
        ({"path": "lake/*"}, "a stream follows one table"),
        ({"path": "lake/t?"}, "a stream follows one table"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ColdParquetStreamReader({"path": "table", **options}, NUMBER)
    refused = DefaultSource({"path": "table", **options}).streamReader(NUMBER)
    assert isinstance(refused, RefusedStream)
    questions = (
        refused.initialOffset,
        refused.getDefaultReadLimit,
        lambda: refused.latestOffset({}, ReadAllAvailable()),
        lambda: refused.partitions({}, {}),
        lambda: next(refused.read(InputPartition(None))),
    )
    for ask in questions:
        with pytest.raises(InvalidInputError, match=message):
            ask()
    refused.stop()


def test_a_spark_without_limits_for_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "coldparquet.spark.stream")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    refused = DefaultSource({"path": "table"}).streamReader(NUMBER)
    with pytest.raises(ColdParquetError, match=r"streams need a later one.*\[OldSpark\]$"):
        refused.initialOffset()


def test_wrong_values_are_refused_by_load(table: GrowingTable) -> None:
    with pytest.raises(InvalidInputError, match=r"on_change is 'panic'.*\[InvalidOption\]$"):
        DefaultSource({"path": str(table.directory), "on_change": "panic"}).schema()


def test_the_source_knows_the_options_of_streams(table: GrowingTable) -> None:
    source = DefaultSource({"path": str(table.directory), "columns": "number", "maxRowsPerTrigger": "5"})
    schema = source.schema()
    assert schema == NUMBER
    assert isinstance(source.streamReader(schema), ColdParquetStreamReader)
    assert StreamOptions.parse({}).limit.rows is None
    assert all(name == name.lower() for name in STREAM_OPTIONS)


async def test_which_requests_a_stream_sends(tmp_path: Path) -> None:
    """A look costs what opening the table costs; of a grown partition one sidecar tells; tasks only fetch data."""
    (tmp_path / "bucket").mkdir()
    table = GrowingTable(tmp_path / "bucket" / "table")
    for day in (1, 2, 3):
        await table.publish(day, 8)
    look = ["_meta", "_txn", "list"]  # that there is no catalogue is known from the listing
    with ColdStoreServer(tmp_path) as server:
        named = {"path": "s3://bucket/table", "storage_options": json.dumps(server.storage_options)}
        reader = ColdParquetStreamReader({**named, "poll_seconds": "0"}, NUMBER)
        query = Query(reader)
        assert requests_since(server) == ["_catalogue", *look]
        start = query.offset
        end = reader.latestOffset(start, ReadAllAvailable())
        assert requests_since(server) == look
        partitions = reader.partitions(start, end)
        assert requests_since(server) == sorted(["_pm", "data.parquet HEAD"] * 3)
        assert len([batch for part in partitions for batch in reader.read(part)]) > 0
        assert set(requests_since(server)) == {"data.parquet"}
        await table.append(2, 3)
        grown = reader.latestOffset(end, ReadAllAvailable())
        assert requests_since(server) == sorted([*look, "_pm"])
        partitions = reader.partitions(end, grown)
        assert requests_since(server) == ["data.parquet HEAD"]
        assert [value for part in partitions for batch in reader.read(part) for value in batch[0].to_pylist()] == [
            24, 25, 26,
        ]  # fmt: skip
        assert requests_since(server) == ["data.parquet"]
        assert reader.latestOffset(grown, ReadAllAvailable()) == grown
        assert requests_since(server) == look
        reader.stop()


async def test_the_table_is_not_looked_at_too_often(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    table = GrowingTable(tmp_path / "bucket" / "table")
    await table.publish(1, 4)
    with ColdStoreServer(tmp_path) as server:
        named = {"path": "s3://bucket/table", "storage_options": json.dumps(server.storage_options)}
        query = Query(ColdParquetStreamReader({**named, "poll_seconds": "3600"}, NUMBER))
        assert query.batch() == [0, 1, 2, 3]
        requests_since(server)
        assert [query.batch() for _ in range(5)] == [[]] * 5
        assert requests_since(server) == []
        query.reader.stop()


def requests_since(server: ColdStoreServer) -> list[str]:
    """Return what was asked for since the last time: names of files, and listings."""
    requests = server.requests
    server.reset()
    names = {request: request.path.rpartition("/")[2] for request in requests}
    return sorted(
        "list" if request.operation.startswith("List") else names[request] + (" HEAD" * (request.method == "HEAD"))
        for request in requests
    )


async def test_nothing_that_is_kept_holds_a_secret(tmp_path: Path) -> None:
    secret = "do-not-show-this"  # noqa: S105 - planted
    (tmp_path / "bucket").mkdir()
    table = GrowingTable(tmp_path / "bucket" / "table")
    await table.publish(1, 4)
    with ColdStoreServer(tmp_path, ColdStoreOptions(secret_key=secret)) as server:
        named = {"path": "s3://bucket/table", "storage_options": json.dumps(server.storage_options)}
        reader = ColdParquetStreamReader({**named, "poll_seconds": "0"}, NUMBER)
        query = Query(reader)
        assert query.batch() == [0, 1, 2, 3]
        await table.rewrite(1)
        with pytest.raises(ObjectChangedError) as caught:
            query.batch()
        planned = pickle.dumps(reader.partitions(reader.initialOffset(), query.offset))
        reader.stop()
    for kept in (json.dumps(query.offset), repr(reader), str(caught.value), repr(planned)):
        assert secret not in kept
