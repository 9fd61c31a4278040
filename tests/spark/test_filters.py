"""Filters that are taken over from Spark keep exactly the rows that Spark would keep. Needs no JVM."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import coldparquet as cp
from coldparquet.errors import UnsupportedError
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.filters import ColumnMeanings
from coldparquet.spark.types import spark_schema
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.types import StructType

COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualNullSafe)
STAYING_COLUMNS = {"letter", "hash", "g8", "g16", "g32", "g64", "dec256"}
ROWS = {
    "number": pa.array([-1.0, 0.0, -0.0, 3.0, math.nan, math.inf, None, 7.5]),
    "narrow": pa.array([-1.0, 0.1, -0.0, 3.0, math.nan, -math.inf, None, 7.5], pa.float32()),
    "count": pa.array([2**63 - 1, -(2**63) + 1, 0, 1, None, 5, 6, 7]),
    "large": pa.array([2**64 - 1, 0, 1, 2**63, None, 5, 6, 7], pa.uint64()),
    "text": pa.array(["", "a", "ab", "abc", "b", None, "\ud7ff\uffff", "\U0010ffff"]),
    "nanos": pa.array([-1, 0, 999, 1_000, 1_001, 1_999, 2_000, None], pa.timestamp("ns", "UTC")),
    "local": pa.array([-1, 0, 999, 1_000, 1_001, 1_999, 2_000, None], pa.timestamp("us")),
    "day": pa.array([-1, 0, 1, 2, 3, 19_000, None, 5], pa.date32()),
    "blob": pa.array([b"", b"\x00", b"\xff", None, b"a", b"ab", b"b", b"c"]),
    "flag": pa.array([True, False, None, True, False, None, True, False]),
}


class Rows:
    """A table, as the library scans it and as Spark sees it."""

    def __init__(self, table: cp.sync.Table, columns: list[str]) -> None:
        self._table = table
        scan = table.scan(columns)
        self.schema: StructType = spark_schema(scan.schema)
        self.meanings = ColumnMeanings.of(scan.schema, self.schema)
        self._columns = columns
        self.seen = self._rows(None)

    def kept(self, spark_filter: Filter) -> list[dict[str, Any]] | None:
        """Return the rows that the library keeps; None if the filter stays with Spark."""
        predicate = self.meanings.predicate(spark_filter)
        try:
            return None if predicate is None else self._rows(predicate)
        except UnsupportedError:  # an order of booleans: the reader leaves it to Spark, too
            return None

    def _rows(self, where: cp.Predicate | None) -> list[dict[str, Any]]:
        target = arrow_schema_of(self.schema)
        batches = [to_spark(batch, target) for batch in self._table.scan(self._columns, where).batches()]
        return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    path = tmp_path_factory.mktemp("filters") / "rows.parquet"
    pq.write_table(pa.table(ROWS), path)
    with cp.sync.open_table(path, options=cp.ReadOptions(symbols="string")) as table:
        yield Rows(table, list(ROWS))


@pytest.fixture(scope="module")
def genuine() -> Iterator[Rows]:
    partition = next(partition for partition in PARTITIONS if partition.table == "types_all")
    with cp.sync.open_partition(partition.directory, options=cp.ReadOptions(symbols="string")) as table:
        # ``day`` holds a DATE that no timestamp of Spark can be.
        yield Rows(table, [name for name in table.schema.names if name != "day"])


def order_of(value: Any) -> Any:
    """Return what Spark orders a value by: NaN is the greatest number, text compares by its bytes."""
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value)
        case str():
            return value.encode("utf-8", "surrogatepass")
    return value


def outcome(spark_filter: Filter, row: dict[str, Any]) -> bool | None:  # noqa: PLR0911 - one case per filter
    """Evaluate a filter as Spark does."""
    match spark_filter:
        case Not(child=child):
            found = outcome(child, row)
            return None if found is None else not found
        case IsNull(attribute=(name,)):
            return row[name] is None
        case IsNotNull(attribute=(name,)):
            return row[name] is not None
        case EqualNullSafe(attribute=(name,), value=value):
            return (row[name] is None) == (value is None) and (value is None or order_of(row[name]) == order_of(value))
        case In(attribute=(name,), value=values):
            if row[name] is None:
                return None
            found = any(order_of(row[name]) == order_of(value) for value in values if value is not None)
            return found or (None if None in values else False)
    name, value = spark_filter.attribute[0], spark_filter.value  # type: ignore[attr-defined]
    if row[name] is None or value is None:
        return None
    if isinstance(spark_filter, StringStartsWith):
        return bool(row[name].startswith(value))
    have, want = order_of(row[name]), order_of(value)
    compare: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: have == want,
        GreaterThan: lambda: have > want,
        GreaterThanOrEqual: lambda: have >= want,
        LessThan: lambda: have < want,
        LessThanOrEqual: lambda: have <= want,
    }
    return compare[type(spark_filter)]()


def filters_on(name: str, values: list[Any]) -> Iterator[Filter]:
    for spark_filter in _positive_filters((name,), values):
        yield spark_filter
        yield Not(spark_filter)


def _positive_filters(path: tuple[str], values: list[Any]) -> Iterator[Filter]:
    yield IsNull(path)
    yield IsNotNull(path)
    yield EqualNullSafe(path, None)
    yield In(path, (*values[:2], None))
    yield In(path, tuple(values[:3]))
    for value in values:
        yield from (kind(path, value) for kind in COMPARISONS)
        if isinstance(value, str):
            yield StringStartsWith(path, value[:2])


def literals_of(rows: Rows, name: str, count: int) -> list[Any]:
    present = [row[name] for row in rows.seen if row[name] is not None]
    chosen = present[:: max(1, len(present) // count)]
    return [neighbour for value in chosen for neighbour in _neighbours(value)]


def _neighbours(value: Any) -> list[Any]:
    match value:
        case bool() | bytes() | list():
            return [value]
        case datetime():
            return [value, value + timedelta(microseconds=1), value - timedelta(microseconds=1)]
        case float():
            return [value, value + 0.5, math.nan]
        case str():
            return [value, value.upper(), value + "0"]
    return [value]


@pytest.mark.parametrize("name", ROWS)
def test_exact_on_a_foreign_file(foreign: Rows, name: str) -> None:
    taken = 0
    for spark_filter in filters_on(name, literals_of(foreign, name, 8)[:12]):
        kept = foreign.kept(spark_filter)
        if kept is None:
            continue
        taken += 1
        expected = [row for row in foreign.seen if outcome(spark_filter, row)]
        assert repr(kept) == repr(expected), spark_filter
    assert taken >= 10


@pytest.mark.slow
def test_exact_on_every_type_of_questdb(genuine: Rows) -> None:
    taken: dict[str, int] = {}
    for field in genuine.schema:
        for spark_filter in filters_on(field.name, literals_of(genuine, field.name, 1)[:2]):
            kept = genuine.kept(spark_filter)
            if kept is None:
                continue
            taken[field.name] = taken.get(field.name, 0) + 1
            expected = [row["ts"] for row in genuine.seen if outcome(spark_filter, row)]
            assert [row["ts"] for row in kept] == expected, spark_filter
    assert set(genuine.schema.names) - set(taken) == STAYING_COLUMNS


@pytest.mark.parametrize(
    "spark_filter",
    [
        StringEndsWith(("text",), "a"),
        StringContains(("text",), "a"),
        EqualTo(("number",), math.nan),
        In(("number",), (1.0, math.nan)),
        EqualTo(("text", "inner"), "a"),
        EqualTo(("elsewhere",), 3),
        EqualTo(("nanos",), datetime.max.replace(tzinfo=UTC)),
    ],
    ids=repr,
)
def test_these_stay_with_spark(foreign: Rows, spark_filter: Filter) -> None:
    assert foreign.kept(spark_filter) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", "no uuid"), ("ip", "194.205.182.0126"), ("ip", "0.0.0.0"), ("letter", "a"), ("hash", "0x1")],  # noqa: S104
)
def test_other_spellings_stay_with_spark(genuine: Rows, column: str, value: str) -> None:
    assert genuine.kept(EqualTo((column,), value)) is None


def test_uuids_are_taken_as_they_are_spelled(genuine: Rows) -> None:
    known = next(row for row in genuine.seen if row["id"] is not None)
    [row] = genuine.kept(EqualTo(("id",), known["id"])) or []
    assert row["ts"] == known["ts"]
    assert genuine.kept(EqualTo(("id",), known["id"].upper())) is None
