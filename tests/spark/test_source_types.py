"""Every column type on its way to Spark. Needs no JVM."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StructField, StructType, TimestampType

import coldparquet as cp
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.types import check_requested, spark_schema
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions, expected_rows

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.spark.options import NanosecondsAs

TEXT = cp.ReadOptions(symbols="string")
GENUINE = (
    "flag boolean, tiny tinyint, small smallint, letter string, num int, big bigint, day timestamp, at timestamp, at_ns"
    " timestamp, ratio float, price double, label string, sym string, hash string, g8 string, g16 string, g32 string, g64 string,"
    " blob binary, id string, ip string, text string, arr array<double>, grid array<array<double>>, dec8 decimal(2,1), dec16"
    " decimal(4,2), dec32 decimal(9,3), dec64 decimal(18,6), dec128 decimal(38,10), dec256 string, ts timestamp"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def converted(
    path: Path, columns: list[str] | None = None, *, nanoseconds: NanosecondsAs = "timestamp"
) -> tuple[StructType, pa.Table]:
    """Read a table as a task does."""
    with cp.sync.open_table(path, options=TEXT) as table:
        scan = table.scan(columns)
        schema = spark_schema(scan.schema, nanoseconds=nanoseconds)
        target = arrow_schema_of(schema)
        return schema, pa.Table.from_batches([to_spark(batch, target) for batch in scan.batches()], schema=target)


def ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def asking(**types: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])


def as_spark_shows(name: str, field: pa.Field[Any], value: Any) -> Any:  # noqa: PLR0911 - one case per type
    """Write a value as QuestDB answered it in the way that the table of types says."""
    kind = (field.metadata or {})[b"questdb.type"].decode()
    if value is None:
        return None
    match kind:
        case "CHAR":
            return (chr(value) if not 0xD800 <= value < 0xE000 else "\ufffd") if value else None
        case "UUID":
            return str(UUID(bytes=value))
        case "LONG256":
            return hex(int.from_bytes(value, "little"))
        case "IPv4":
            return ".".join(str(value >> bits & 255) for bits in (24, 16, 8, 0))
        case "GEOHASH(1c)" | "GEOHASH(5c)" | "GEOHASH(12c)":
            length = int(kind[8:-2])
            return "".join(
                "0123456789bcdefghjkmnpqrstuvwxyz"[value >> 5 * place & 31] for place in reversed(range(length))
            )
        case _ if kind.startswith("GEOHASH"):
            return f"{value:0{int(kind[8:-2])}b}"
    return str(value) if name == "dec256" else value


def test_genuine_values() -> None:
    """What QuestDB answered, converted by hand."""
    expected = expected_rows("types_all")
    for partition in (partition for partition in PARTITIONS if partition.table == "types_all"):
        names = [name for name in expected.schema.names if name not in ("day", "at", "at_ns", "ts", "ratio", "price")]
        _, found = converted(partition.directory, names)
        answered = partition.expected()
        for name in names:
            field = answered.schema.field(name)
            written = [as_spark_shows(name, field, value) for value in answered[name].to_pylist()]
            assert found[name].to_pylist() == written, name
        assert len(found) == len(answered) > 0


def test_schema_of_every_type_of_questdb(tmp_path: Path) -> None:
    with cp.sync.open_table(copy_parquet_partitions("types_all", tmp_path), options=TEXT) as table:
        assert ddl(spark_schema(table.schema)) == GENUINE


def test_times(tmp_path: Path) -> None:
    nanoseconds = [-2_000, -1_999, -1, 0, 1_999, None]
    path = tmp_path / "times.parquet"
    pq.write_table(
        pa.table(
            {
                "nanos": pa.array(nanoseconds, pa.timestamp("ns", "UTC")),
                "millis": pa.array([-1, 0, 1, None, 5, 6], pa.timestamp("ms", "UTC")),
                "local": pa.array([-1, 0, 1, None, 5, 6], pa.timestamp("us")),
                "time": pa.array([0, 1, 2, None, 4, 5], pa.time64("us")),
                "time_ms": pa.array([0, 1, 2, None, 4, 5], pa.time32("ms")),
                "day": pa.array([-1, 0, 1, None, 5, 6], pa.date32()),
            }
        ),
        path,
    )
    schema, found = converted(path)
    assert ddl(schema) == (
        "nanos timestamp, millis timestamp, local timestamp_ntz, time bigint, time_ms bigint, day date"
    )
    microseconds = [-2, -2, -1, 0, 1, None]
    assert found["nanos"].to_pylist() == [
        None if us is None else EPOCH + timedelta(microseconds=us) for us in microseconds
    ]
    assert found["millis"].to_pylist()[0] == EPOCH - timedelta(milliseconds=1)
    assert found["local"].to_pylist()[0] == datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - it has no zone
    assert found["time"].to_pylist() == found["time_ms"].to_pylist() == [0, 1, 2, None, 4, 5]
    assert found["day"].to_pylist()[0] == date(1969, 12, 31)
    schema, found = converted(path, ["nanos"], nanoseconds="long")
    assert ddl(schema) == "nanos bigint"
    assert found["nanos"].to_pylist() == nanoseconds


def test_unsigned_and_wide_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.parquet"
    numbers = {f"u{bits}": pa.array([0, 2**bits - 1, None], getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)}
    wide = pa.array([Decimal("-1.5"), Decimal(10) ** 50, None], pa.decimal256(60, 2))
    pq.write_table(pa.table({**numbers, "wide": wide}), path)
    schema, found = converted(path)
    assert ddl(schema) == "u8 smallint, u16 int, u32 bigint, u64 decimal(20,0), wide string"
    for bits in (8, 16, 32, 64):
        assert found[f"u{bits}"].to_pylist() == [0, 2**bits - 1, None]
    assert found["wide"].to_pylist() == ["-1.50", f"1{'0' * 50}.00", None]


def test_sliced_batches_are_converted_from_their_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"nanos": pa.array([1_000, None, 3_000, 4_000], pa.timestamp("ns", "UTC"))}), path)
    with cp.sync.open_table(path, options=TEXT) as table:
        [batch] = table.scan().batches()
        target = arrow_schema_of(spark_schema(table.schema))
    found = to_spark(batch.slice(1, 2), target)
    found.validate(full=True)
    assert found.column(0).cast(pa.int64()).to_pylist() == [None, 3]
    assert to_spark(batch.slice(4), target).num_rows == 0


def test_dates_beyond_spark_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "far.parquet"
    pq.write_table(pa.table({"day": pa.array([2**63 - 1], pa.timestamp("ms", "UTC"))}), path)
    with pytest.raises(UnsupportedError, match="column 'day' holds DATE values that Spark's"):
        converted(path)


@pytest.mark.parametrize("asked", [TimestampType(), LongType()])
def test_a_schema_that_fits(tmp_path: Path, asked: DataType) -> None:
    with cp.sync.open_table(copy_parquet_partitions("types_all", tmp_path), options=TEXT) as table:
        check_requested(asking(price=DoubleType(), at_ns=asked), table.scan(["price", "at_ns"]).schema)


def test_a_schema_that_does_not_fit_names_column_and_types(tmp_path: Path) -> None:
    with cp.sync.open_table(copy_parquet_partitions("types_all", tmp_path), options=TEXT) as table:
        schema = table.scan(["ts", "price"]).schema
    words = "'price' is DOUBLE, which Spark reads as double, but the schema says int"
    with pytest.raises(InvalidInputError, match=words) as caught:
        check_requested(asking(ts=TimestampType(), price=IntegerType()), schema)
    assert caught.value.kind == "SchemaMismatch"


def test_nested_columns(tmp_path: Path) -> None:
    times = pa.array([0, None, -1], pa.timestamp("ns"))
    rows = pa.table(
        {
            "id": [0, 1, 2, 3],
            "s": pa.StructArray.from_arrays(
                [times, pa.array([1, 2**64 - 1, None], pa.uint64()), pa.array([[1], None, []], pa.list_(pa.uint16()))],
                ["at", "big", "list"],
            ).take(pa.array([0, 1, 2, None])),
            "m": pa.array(
                [[("a", {"x": 1.5})], [], None, [("b", None)]], pa.map_(pa.string(), pa.struct([("x", pa.float16())]))
            ),
            "wide": pa.array([[Decimal("1.5")], None, [None], []], pa.list_(pa.decimal256(60, 2))),
            "raw": pa.array([b"12345", None, b"     ", b"abcde"], pa.binary(5)),
        }
    )
    (tmp_path / "2024-03-01").mkdir()
    pq.write_table(rows, tmp_path / "2024-03-01" / "data.parquet", row_group_size=3)
    schema, found = converted(tmp_path)
    assert ddl(schema) == (
        "id bigint, s struct<at:timestamp_ntz,big:decimal(20,0),list:array<int>>, m map<string,struct<x:float>>,"
        " wide array<string>, raw binary"
    )
    found.validate(full=True)
    begin = datetime(1970, 1, 1)  # noqa: DTZ001 - it has no zone
    assert found.column("s").to_pylist() == [
        {"at": begin, "big": 1, "list": [1]},
        {"at": None, "big": 2**64 - 1, "list": None},
        {"at": begin - timedelta(microseconds=1), "big": None, "list": []},
        None,
    ]
    assert found.column("m").to_pylist() == rows.column("m").to_pylist()
    assert found.column("wide").to_pylist() == [["1.50"], None, [None], []]
    assert found.column("raw").to_pylist() == rows.column("raw").to_pylist()
