"""The writer as Spark uses it, without Spark: made on a driver, pickled to tasks, committed or aborted."""

from __future__ import annotations

import logging
import pickle
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import coldparquet as cp
from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.spark.writer import ColdParquetWriter, StagedParts, WriterOptions, partition_expression, write
from tests.support.written_tables import in_order, names_in, overwritten, same_rows, ticks

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = (
    StructType()
    .add("ts", TimestampType())
    .add("side", StringType())
    .add("price", DoubleType())
    .add("number", LongType())
)


def on_driver(table: Path, *, overwrite: bool = False, **options: Any) -> ColdParquetWriter:
    return ColdParquetWriter({"path": str(table), "timestamp": "ts"} | options, SCHEMA, overwrite)


def in_task(writer: ColdParquetWriter, rows: pa.Table) -> StagedParts:
    """Run a task as Spark does: the writer arrives pickled, and what it returns leaves pickled."""
    pickled: bytes = cloudpickle.dumps(writer)  # type: ignore[no-untyped-call]
    sent: ColdParquetWriter = pickle.loads(pickled)  # noqa: S301 - as Spark does
    message: StagedParts = pickle.loads(pickle.dumps(sent.write(iter(rows.to_batches(max_chunksize=40)))))  # noqa: S301
    return message


def read(table: Path) -> pa.Table:
    with cp.sync.open_table(table) as opened:
        return opened.scan().to_arrow()


def test_tasks_write_and_the_driver_commits(tmp_path: Path) -> None:
    tables = [ticks(100, seed=seed, distinct=20) for seed in range(3)]
    writer = on_driver(tmp_path / "t", row_group_rows="50")
    writer.commit([in_task(writer, rows) for rows in tables])
    assert same_rows(read(tmp_path / "t"), in_order(tables))
    added = ticks(50, seed=9, days=1, first_day=1)
    writer = on_driver(tmp_path / "t", overwrite=True)
    writer.commit([in_task(writer, added), in_task(writer, added.slice(0, 0))])
    assert same_rows(read(tmp_path / "t"), overwritten(in_order(tables), added))


def test_of_speculative_copies_one_counts(tmp_path: Path) -> None:
    """As Spark would have it on several hosts: it runs no copy on the host of the original, and ``local-cluster`` has but one."""
    rows = ticks(100)
    writer = on_driver(tmp_path / "t", clustered="true")
    copies = [in_task(writer, rows) for _ in range(3)]
    writer.commit([copies[1]])
    assert same_rows(read(tmp_path / "t"), in_order([rows]))
    assert len([name for name in names_in(tmp_path / "t") if name.startswith("2024")]) == 3


def test_a_failed_job_leaves_nothing(tmp_path: Path) -> None:
    writer = on_driver(tmp_path / "t")
    message = in_task(writer, ticks(100))
    with pytest.raises(ColdParquetError, match=r"null.*\[NullValue\]"):
        in_task(
            writer,
            pa.table({"ts": pa.nulls(1, pa.timestamp("us", "UTC")), "side": ["a"], "price": [1.0], "number": [1]}),
        )
    writer.abort([message, None])
    assert not (tmp_path / "t").exists()


def test_what_could_not_be_removed_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def keep(*_: Any, **__: Any) -> None:
        raise AccessError("removing is not permitted", path="t/2024-03-01.7")

    rows = ticks(20)
    with caplog.at_level(logging.WARNING, "coldparquet"):
        writer = on_driver(tmp_path / "t")
        writer.commit([in_task(writer, rows)])
        assert not caplog.messages
        monkeypatch.setattr(import_module("coldparquet.write.table"), "release_versions", keep)
        writer = on_driver(tmp_path / "t", if_exists="append")
        writer.commit([in_task(writer, rows)])
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/t: the rows are written")
    assert message.endswith("t/2024-03-01.7: removing is not permitted")
    assert same_rows(read(tmp_path / "t"), in_order([rows, rows]))


def test_a_table_that_exists(tmp_path: Path) -> None:
    writer = on_driver(tmp_path / "t")
    writer.commit([in_task(writer, ticks(10))])
    with pytest.raises(InvalidInputError) as refused:
        on_driver(tmp_path / "t", if_exists="error")
    assert refused.value.kind == "AlreadyExists"
    ignoring = on_driver(tmp_path / "t", if_exists="ignore")
    message = in_task(ignoring, ticks(10, seed=1))
    ignoring.commit([message])
    ignoring.abort([message])
    assert same_rows(read(tmp_path / "t"), in_order([ticks(10)]))


def test_the_types_of_spark(tmp_path: Path) -> None:
    schema = (
        StructType()
        .add("ts", LongType())
        .add("ntz", TimestampNTZType())
        .add("day", DateType())
        .add("small", ShortType())
        .add("side", StringType())
        .add("id", StringType())
        .add("amount", DecimalType(12, 3))
        .add("raw", BinaryType())
        .add("vector", ArrayType(DoubleType()))
        .add("matrix", ArrayType(ArrayType(DoubleType())))
    )
    options = {"path": str(tmp_path / "t"), "timestamp": "ts", "symbols": "side", "types": '{"id": "UUID"}'}
    writer = ColdParquetWriter(options, schema, overwrite=False)
    writer.commit([])
    with cp.sync.open_table(tmp_path / "t") as opened:
        types = {field.name: (field.metadata or {})[b"questdb.type"].decode() for field in opened.schema}
    assert types == {
        "ts": "TIMESTAMP",
        "ntz": "TIMESTAMP",
        "day": "DATE",
        "small": "SHORT",
        "side": "SYMBOL",
        "id": "UUID",
        "amount": "DECIMAL(12,3)",
        "raw": "BINARY",
        "vector": "DOUBLE[]",
        "matrix": "DOUBLE[][]",
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "several tables": ({"path": "a,b"}, "2 tables"),
    "an unknown option": ({"symbol": "side"}, "did you mean 'symbols'"),
    "if_exists": ({"if_exists": "replace"}, "one of 'error', 'append', 'ignore'"),
    "an option of reading": ({"where": "price > 3"}, "no option 'where'"),
    "a number": ({"row_group_rows": "many"}, "whole number"),
    "a truth": ({"pages": "yes"}, "true or false"),
    "types": ({"types": "UUID"}, "JSON object"),
    "types of nothing": ({"types": '{"x": "UUID"}'}, "names a column 'x'"),
    "a codec": ({"codec": "zip"}, "WriteOptions.codec"),
    "no timestamp": ({"timestamp": ""}, "''"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    options, message = WRONG[name]
    with pytest.raises(InvalidInputError, match=message):
        on_driver(tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_a_wrong_mode_is_told_with_all_that_there_are(tmp_path: Path) -> None:
    mode: Any = "owerwrite"
    nothing: Any = None
    with pytest.raises(InvalidInputError, match="mode is 'owerwrite'; use one of error, append, overwrite, ignore"):
        write(nothing, str(tmp_path / "t"), timestamp="ts", mode=mode)
    assert not (tmp_path / "t").exists()


def test_columns_without_a_type_are_refused(tmp_path: Path) -> None:
    schema = StructType().add("ts", TimestampType()).add("m", MapType(StringType(), LongType()))
    with pytest.raises(InvalidInputError, match="column 'm'"):
        ColdParquetWriter({"path": str(tmp_path / "t"), "timestamp": "ts"}, schema, overwrite=False)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "t"), "timestamp": "ts", "storage.secret": "hush-hush"}
    parsed = WriterOptions.parse(options, overwrite=False)
    assert "hush-hush" not in repr(parsed)
    assert parsed.access()["storage_options"] == {"secret": "hush-hush"}
    writer = ColdParquetWriter(options, SCHEMA, overwrite=False)
    assert "hush-hush" not in repr(writer) + repr(vars(writer))
    writer.abort([])


@pytest.mark.parametrize(("column", "kind"), [("side", "NotATimestamp"), ("tz", "UnknownColumn")])
def test_only_timestamps_cluster(column: str, kind: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        partition_expression(SCHEMA, column, PartitionInterval.DAY)
    assert refused.value.kind == kind
