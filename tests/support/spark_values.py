"""Values as Spark is to have them, made one by one from what QuestDB answered, and rows of Spark for comparing."""

from __future__ import annotations

import ipaddress
import math
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


def as_spark_shows(answered: pa.Table) -> dict[str, list[Any]]:
    """Turn the rows that QuestDB answered into those of Spark, times as microseconds."""
    return {
        field.name: [None if value is None else _writer(field)(value) for value in _plain(column)]
        for field, column in zip(answered.schema, answered.columns, strict=True)
    }


def collected(frame: DataFrame) -> dict[str, list[Any]]:
    """Collect a DataFrame, in the order of its partitions, times as microseconds."""
    table = frame.toArrow()
    return {name: _plain(column) for name, column in zip(table.schema.names, table.columns, strict=True)}


def without_infinities(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Show NaN and infinities as QuestDB does: as null, but for those within arrays."""
    return {
        name: [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
        for name, values in columns.items()
    }


def in_any_order(columns: dict[str, list[Any]]) -> list[str]:
    """Return the rows as sorted text, in which NaN equals NaN."""
    names = sorted(columns)
    return sorted(repr(row) for row in zip(*(columns[name] for name in names), strict=True))


def shown_metrics(spark: SparkSession, frame: DataFrame) -> dict[str, str]:
    """Collect a DataFrame; return the metrics that Spark's UI shows of it."""
    bus: Any = spark.sparkContext._jsc.sc().listenerBus()
    frame.collect()
    bus.waitUntilEmpty()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    metrics, values = last.metrics(), store.executionMetrics(last.executionId())
    every = [metrics.apply(number) for number in range(metrics.size())]
    return {one.name(): values.apply(one.accumulatorId()) for one in every if values.contains(one.accumulatorId())}


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _writer(field: pa.Field[Any]) -> Callable[[Any], Any]:
    name = (field.metadata or {})[b"questdb.type"].decode()
    if name.startswith("GEOHASH"):
        return _geohash_writer(name)
    if pa.types.is_decimal256(field.type):
        return str
    return _WRITERS.get(name, lambda value: value)


def _geohash_writer(name: str) -> Callable[[Any], Any]:
    length, unit = int(name[len("GEOHASH(") : -2]), name[-2]
    if unit == "b":
        return lambda value: f"{value:0{length}b}"
    return lambda value: "".join(_BASE32[value >> 5 * place & 31] for place in reversed(range(length)))


def _character(value: int) -> str | None:
    if _FIRST_SURROGATE <= value <= _LAST_SURROGATE:
        return "\ufffd"
    return chr(value) if value else None


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "CHAR": _character,
    "DATE": lambda milliseconds: milliseconds * 1000,
    "IPv4": lambda value: str(ipaddress.IPv4Address(value)),
    "LONG128": lambda value: hex(int.from_bytes(value, "little")),
    "LONG256": lambda value: hex(int.from_bytes(value, "little")),
    "TIMESTAMP_NS": lambda nanoseconds: nanoseconds // 1000,
    "UUID": lambda value: str(uuid.UUID(bytes=value)),
}
