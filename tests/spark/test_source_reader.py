"""The data source without Spark around it: planned here, pickled, read as a task does."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import datasource
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

import coldparquet.spark
from coldparquet.errors import (
    BudgetExceededError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.spark.early_plan import explanation_text
from coldparquet.spark.reader import FilteringReader, PiecesPartition
from coldparquet.spark.source import DefaultSource
from coldparquet.spark.tables import close_tables
from coldparquet.table import Table
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.spark_readers import directly, pickled, read, reader_of, remote, same_rows, sent
from tests.support.written_tables import trades

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coldparquet_testing.simulator import ColdStoreServer

SECRET = "planted-9b1c"  # noqa: S105 - planted, to be looked for
PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_parquet_partitions("interval_day", tmp_path)


def source(path: Path | str, **options: str) -> DefaultSource:
    return DefaultSource({"path": str(path), **options})


@pytest.mark.parametrize(
    ("options", "columns", "where"),
    [
        ({}, None, None),
        ({"columns": "ts,price"}, ["ts", "price"], None),
        ({"where": "price > 300 or sym = 'ADA-USD'"}, None, "price > 300 or sym = 'ADA-USD'"),
        ({"columns": "note", "where": "side = 'buy'", "pieces": "2"}, ["note"], "side = 'buy'"),
        ({"pieces": "100", "batch_rows": "7"}, None, None),
    ],
)
def test_rows_are_those_of_a_scan(
    table: Path, options: dict[str, str], columns: list[str] | None, where: str | None
) -> None:
    expected = directly(table, columns, where)
    assert expected.num_rows > 0
    assert same_rows(read(reader_of(source(table, **options))), expected)


@pytest.mark.parametrize(("pieces", "tasks"), [(None, 1), ("1", 1), ("3", 3), ("100", 4)])
def test_how_many_tasks(table: Path, pieces: str | None, tasks: int) -> None:
    options = {} if pieces is None else {"pieces": pieces}
    assert len(reader_of(source(table, **options)).partitions()) == tasks


def test_a_schema_of_some_columns_prunes_the_others(table: Path) -> None:
    schema = StructType([StructField("price", DoubleType())])
    assert same_rows(read(reader_of(source(table), schema)), directly(table, ["price"]))


@pytest.mark.parametrize(
    ("options", "schema", "kind", "words"),
    [
        ({}, StructType([StructField("price", IntegerType())]), "SchemaMismatch", "'price' is DOUBLE"),
        ({}, StructType([StructField("price", DoubleType(), nullable=False)]), "SchemaMismatch", "leave NOT NULL out"),
        ({}, StructType([StructField("prize", DoubleType())]), "UnknownColumn", "did you mean 'price'"),
        ({"where": "prize > 3"}, None, "UnknownColumn", "did you mean 'price'"),
        ({"where": "price >"}, None, "InvalidPredicate", "price >"),
    ],
)
def test_wrong_questions_are_refused_on_the_driver(
    table: Path, options: dict[str, str], schema: StructType | None, kind: str, words: str
) -> None:
    seen = schema or source(table).schema()
    with pytest.raises(InvalidInputError, match=words) as caught:
        reader_of(source(table, **options), seen).partitions()
    assert caught.value.kind == kind
    assert str(caught.value).endswith(f"[{kind}]")


@pytest.mark.parametrize("columns", ["", "side", "price,side"])
@pytest.mark.parametrize(
    ("where", "kind"), [("prize > 3", "UnknownColumn"), ("price >", "InvalidPredicate"), ("price > 'x'", None)]
)
def test_a_wrong_condition_is_refused_by_load(table: Path, where: str, kind: str | None, columns: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        source(table, where=where, columns=columns).schema()
    assert kind in (None, caught.value.kind)
    assert source(table, where="price > 3", columns=columns).schema() == source(table, columns=columns).schema()


def test_explain_says_what_to_ask_instead() -> None:
    """A DataFrame of ``coldparquet.spark.read`` has a plan in which Spark scans nothing."""
    frame: Any = MagicMock()
    frame._jdf.queryExecution().optimizedPlan().collectLeaves().size.return_value = 0
    with pytest.raises(InvalidInputError, match=r"explain_read\(spark, url, columns=") as caught:
        coldparquet.spark.explain(frame)
    assert caught.value.kind == "NoColdParquetScan"


def test_a_missing_package_is_told_with_what_to_set() -> None:
    found = coldparquet.spark.error_of(
        RuntimeError("...\nModuleNotFoundError: No module named 'coldparquet'\n\tat ...")
    )
    assert isinstance(found, UnsupportedError)
    assert found.kind == "MissingPackage"
    assert "let PYSPARK_PYTHON name its interpreter" in str(found)


def test_budgets_are_kept_on_the_driver(table: Path) -> None:
    with pytest.raises(BudgetExceededError, match="max_bytes is 10"):
        reader_of(source(table, max_bytes="10")).partitions()


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        source(tmp_path / "nowhere").schema()


def test_no_column_counts_rows(table: Path) -> None:
    reader = reader_of(source(table, columns="", where="sym = 'ADA-USD'"))
    task = sent(reader)
    batches = [batch for partition in reader.partitions() for batch in task.read(partition)]
    assert all(batch.num_columns == 0 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == directly(table, where="sym = 'ADA-USD'").num_rows > 0


def test_several_tables_and_patterns(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        shutil.copytree(copy_parquet_partitions("interval_day", tmp_path / "originals"), tmp_path / "db" / name)
        shutil.rmtree(tmp_path / "originals")
    one = directly(tmp_path / "db" / "a1", ["ts", "id"])
    for options, times in (
        ({"path": f"{tmp_path}/db/a*"}, 2),
        ({"path": f"{tmp_path}/db/a1/,{tmp_path}/db/a*"}, 2),
        ({"path": f"{tmp_path}/db/a1,{tmp_path}/db/b1,{tmp_path}/db/a2"}, 3),
        ({"paths": json.dumps([f"{tmp_path}/db/[ab]1"])}, 2),
    ):
        reader = reader_of(DefaultSource({**options, "columns": "ts,id"}))
        assert same_rows(read(reader), pa.concat_tables([one] * times))
        assert len(reader.partitions()) == 1


def test_tables_with_other_columns_are_refused(tmp_path: Path, table: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"price": [1, 2]}), other)
    with pytest.raises(InvalidInputError, match="has not the columns of") as caught:
        source(f"{table},{other}").schema()
    assert caught.value.kind == "SchemaMismatch"


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHING_WORKER, sys.modules[__name__])


@pytest.mark.parametrize(("option", "taken"), [({}, False), ({"push_filters": "true"}, True)])
@pytest.mark.usefixtures("pushing")
def test_filters_are_taken_only_where_that_is_wanted(table: Path, option: dict[str, str], taken: bool) -> None:
    assert isinstance(reader_of(source(table, **option)), FilteringReader) is taken


def test_filters_are_not_taken_where_spark_does_not_push(table: Path) -> None:
    assert not isinstance(reader_of(source(table, push_filters="true")), FilteringReader)


@pytest.mark.usefixtures("pushing")
def test_filters_that_are_taken_and_left(table: Path) -> None:
    reader = reader_of(source(table, push_filters="true", columns="ts,price,sym", where="side = 'buy'"))
    assert isinstance(reader, FilteringReader)
    left = [datasource.StringEndsWith(("sym",), "USD"), datasource.LessThan(("sym",), None)]
    taken = [datasource.EqualTo(("sym",), "ADA-USD"), datasource.GreaterThan(("price",), 0.25)]
    assert list(reader.pushFilters([*left, *taken])) == left
    where = "side = 'buy' and sym = 'ADA-USD' and price > 0.25"
    assert same_rows(read(reader), directly(table, ["ts", "price", "sym"], where))
    [partition, *_] = reader.partitions()
    assert isinstance(partition, PiecesPartition)
    text = explanation_text(partition.explanation or b"")
    assert "filter, taken over from Spark: sym = 'ADA-USD'" in text
    assert "filter, left to Spark: StringEndsWith(attribute=('sym',), value='USD')" in text
    assert "where, by option: side = 'buy'" in text


def test_the_driver_plans_and_tasks_fetch_data_alone(server: ColdStoreServer, store: Path) -> None:
    reader = reader_of(remote(server, columns="ts", pieces="3"))
    partitions = reader.partitions()
    planned = server.requests
    assert planned
    assert not [request for request in planned if request.path.endswith("data.parquet") and request.method == "GET"]
    server.reset()
    task = sent(reader)
    found = pa.Table.from_batches([batch for partition in partitions for batch in task.read(sent(partition))])
    assert same_rows(found, directly(store / "bucket" / "trades", ["ts"]))
    assert {(request.operation, request.path.rpartition("/")[2]) for request in server.requests} == {
        ("GetObject", "data.parquet")
    }
    assert len(server.requests) == 3


def test_a_retried_task_gives_the_same_rows(server: ColdStoreServer) -> None:
    reader = reader_of(remote(server))
    [partition] = reader.partitions()
    first, second = (pa.Table.from_batches(sent(reader).read(partition)) for _ in range(2))
    assert first.equals(second)


def test_a_table_that_changes_after_planning(server: ColdStoreServer, store: Path) -> None:
    reader = reader_of(remote(server))
    partitions = reader.partitions()
    pq.write_table(trades(0, 1_000, venue="other"), store / "bucket/trades/2024-03-02/data.parquet")
    with pytest.raises(ObjectChangedError, match=r"2024-03-02.* \[ObjectChanged\]$"):
        list(sent(reader).read(partitions[0]))


def test_a_partition_that_vanishes_after_planning(server: ColdStoreServer, store: Path) -> None:
    reader = reader_of(remote(server))
    partitions = reader.partitions()
    shutil.rmtree(store / "bucket/trades/2024-03-03")
    with pytest.raises(NotFoundError, match=r"2024-03-03.* \[PartitionMissing\]$"):
        list(sent(reader).read(partitions[0]))


def test_credentials_travel_only_where_they_are_written_out(
    server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**server.storage_options, "secret": SECRET}
    monkeypatch.setenv("STORE_SECRET", json.dumps(settings))
    written_out = reader_of(source("s3://bucket/trades", storage_options=json.dumps(settings)))
    referred_to = reader_of(source("s3://bucket/trades", credentials="env:STORE_SECRET"))
    assert SECRET.encode() in pickled(written_out)
    assert SECRET.encode() not in pickled(referred_to)
    for reader in (written_out, referred_to):
        [partition] = reader.partitions()
        assert isinstance(partition, PiecesPartition)
        assert SECRET.encode() not in pickle.dumps(partition)
        assert SECRET not in explanation_text(partition.explanation or b"")
        assert SECRET not in repr(partition)
        assert sum(batch.num_rows for batch in sent(reader).read(partition)) == 3_000


def test_tasks_are_small(server: ColdStoreServer) -> None:
    reader = reader_of(remote(server))
    assert len(pickled(reader)) < 3_000
    [partition] = reader.partitions()
    assert isinstance(partition, PiecesPartition)
    assert sum(map(len, partition.pieces)) < 12 * 1_024


def test_count_and_extremes_cost_no_data_request(server: ColdStoreServer, store: Path) -> None:
    no_session: Any = None  # none is needed
    rows = directly(store / "bucket" / "trades")
    options = server.storage_options
    assert coldparquet.spark.count(no_session, "s3://bucket/trades", storage_options=options) == 3_000
    least, greatest = coldparquet.spark.min_max(no_session, "s3://bucket/trades", "ts", storage_options=options)
    assert (least, greatest) == (rows["ts"][0].as_py(), rows["ts"][-1].as_py())
    assert not [request for request in server.requests if request.path.endswith(".parquet") and request.method == "GET"]


def test_what_read_will_cost(table: Path) -> None:
    no_session: Any = None  # none is needed where the number of tasks is given
    where = "price > 300 or sym = 'ADA-USD'"
    told = coldparquet.spark.explain_read(no_session, str(table), columns=["id"], where=where, pieces=2)
    assert f"where, by option: {where}" in told
    assert "columns       id" in told
    assert told.startswith("2 tasks")


def spark_error(text: str) -> RuntimeError:
    return RuntimeError(f"Traceback (most recent call last):\n  File ...\n{text}\n SQLSTATE: 38000")


@pytest.mark.parametrize(
    ("text", "error_class", "kind"),
    [
        ("coldparquet.errors.NotFoundError: a/b: gone [PartitionMissing]", NotFoundError, "PartitionMissing"),
        ("coldparquet.errors.BudgetExceededError: two\nlines [BudgetExceeded]", BudgetExceededError, "BudgetExceeded"),
        ("ModuleNotFoundError: No module named 'coldparquet'", UnsupportedError, "MissingPackage"),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: coldparquet.", UnsupportedError, "MissingPackage"),
        ("[DATA_SOURCE_NOT_EXIST] Data source 'coldparquet' not found.", UnsupportedError, "MissingPackage"),
        (
            "[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.",
            UnsupportedError,
            "MissingPackage",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark ...",
            UnsupportedError,
            "OtherPython",
        ),
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "coldparquet" cannot be written in the "Ignore" mode.',
            InvalidInputError,
            "UnsupportedMode",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", UnsupportedError, "NoJava"),
    ],
)
def test_errors_are_found_again(text: str, error_class: type[ColdParquetError], kind: str) -> None:
    error = coldparquet.spark.error_of(spark_error(text))
    assert type(error) is error_class
    assert error.kind == kind
    assert "Traceback" not in str(error)


def test_errors_of_others_are_left_alone() -> None:
    assert coldparquet.spark.error_of(spark_error("ValueError: no")) is None
    ours = NotFoundError("gone")
    assert coldparquet.spark.error_of(ours) is ours


def test_own_errors_come_in_place_of_sparks() -> None:
    with pytest.raises(NotFoundError, match="gone") as caught, coldparquet.spark.own_errors():
        raise spark_error("coldparquet.errors.NotFoundError: gone [PartitionMissing]")
    assert caught.value.kind == "PartitionMissing"
    assert caught.value.__suppress_context__  # no stack of Java is printed
    of_another = spark_error("ValueError: no")
    with pytest.raises(RuntimeError) as passed, coldparquet.spark.own_errors():
        raise of_another
    assert passed.value is of_another


ROWS_OF_DAY = 1_000


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of tables in the order in which they are closed."""
    urls: list[str] = []
    close = Table.aclose

    async def noted(table: Table) -> None:
        urls.append(table.url)
        await close(table)

    monkeypatch.setattr(Table, "aclose", noted)
    return urls


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[list[Path]]:
    """Two tables of one partition; this process knows of no others."""
    close_tables()
    roots = [tmp_path / "first", tmp_path / "second"]
    for root in roots:
        (root / "2024-03-01").mkdir(parents=True)
        pq.write_table(trades(0, ROWS_OF_DAY), root / "2024-03-01" / "data.parquet")
    yield roots
    close_tables()


def row_count_of(*tables: Path) -> int:
    source = DefaultSource({"path": ",".join(map(str, tables)), "columns": "price"})
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sum(batch.num_rows for batch in batches)


def test_a_table_that_cannot_be_refreshed_is_closed(tables: list[Path], closed: list[str]) -> None:
    first, second = tables
    assert row_count_of(first, second) == 2 * ROWS_OF_DAY
    assert closed == []
    shutil.move(second, second.with_name("gone"))
    with pytest.raises(NotFoundError, match="second"):
        row_count_of(first, second)
    assert str(second) in closed
    shutil.move(second.with_name("gone"), second)
    assert row_count_of(first, second) == 2 * ROWS_OF_DAY
    closed_before = list(closed)
    close_tables()
    assert sorted(closed[len(closed_before) :]) == sorted(map(str, tables)), "each is open once"
