"""Translates Spark's filters to predicates of the library: only those that keep exactly the rows that Spark would keep.

Spark does not apply an accepted filter again, so an approximate translation would return wrong rows. The differences:

* NaN is a number greater than all others for Spark, and unequal to everything for the library. So ``x > 3`` becomes
  ``NOT (x <= 3)`` for floating-point columns, and a filter that names NaN stays with Spark.
* A TIMESTAMP_NS column that Spark sees in microseconds: ``ts = t`` means the thousand nanoseconds from ``t`` on.
* UUID and IPv4 are text for Spark. Only ``=`` and ``IN`` with the canonical text mean the same, not ``<``, nor other
  spellings.
* CHAR, geohashes, LONG128, LONG256, wide decimals and times of day stay with Spark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import datasource

from coldparquet.plan.predicate import And, Comparison, In, IsNull, Literal, Not, Operator, Or, Predicate, StartsWith
from coldparquet.spark.conversion import is_written_as_text, questdb_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

_MICROSECOND = timedelta(microseconds=1)
_OPERATORS = {
    datasource.EqualTo: Operator.EQUAL,
    datasource.GreaterThan: Operator.GREATER,
    datasource.GreaterThanOrEqual: Operator.GREATER_OR_EQUAL,
    datasource.LessThan: Operator.LESS,
    datasource.LessThanOrEqual: Operator.LESS_OR_EQUAL,
}
_OPPOSITES = {Operator.GREATER: Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL: Operator.LESS}


class Meaning(Enum):
    """How the values that Spark sees relate to those that the library compares."""

    SAME = "same"
    FLOATING = "floating"
    """The same, but they may include NaN."""
    TEXT = "text"
    """The same, ordered by UTF-8."""
    CUT = "cut"
    """Nanoseconds; Spark sees them in microseconds."""
    UUID = "uuid"
    IPV4 = "ipv4"
    NULLS = "nulls"
    """Only the presence of a value: nested columns, half floats, bytes of fixed length."""
    OTHER = "other"
    """Not comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMeanings:
    """The columns of a table, and which filters on them can be accepted."""

    by_name: Mapping[str, Meaning]

    @classmethod
    def of(cls, schema: pa.Schema, requested: StructType) -> ColumnMeanings:
        """Classify columns."""
        return cls(
            by_name={
                field.name: _meaning(field, is_bigint=seen.dataType.typeName() == "long")
                for field, seen in zip(schema, requested, strict=True)
            }
        )

    def predicate(self, spark_filter: datasource.Filter) -> Predicate | None:  # noqa: PLR0911 - one case per filter
        """Translate one filter."""
        match spark_filter:
            case datasource.Not(child=child):
                part = self.predicate(child)
                return None if part is None else Not(part)
            case datasource.IsNull(attribute=(name,)):
                return self._is_null(name)
            case datasource.IsNotNull(attribute=(name,)):
                missing = self._is_null(name)
                return None if missing is None else Not(missing)
            case datasource.EqualNullSafe(attribute=(name,), value=value):
                return self._equal_null_safe(name, value)
            case datasource.In(attribute=(name,), value=values):
                return self._one_of(name, values)
            case datasource.StringStartsWith(attribute=(name,), value=prefix):
                return StartsWith(name, prefix) if self._meaning(name) is Meaning.TEXT else None
        operator = _OPERATORS.get(type(spark_filter))
        path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
        if operator is None or len(path) != 1:
            return None
        return self._comparison(path[0], operator, getattr(spark_filter, "value", None))

    def _meaning(self, name: str) -> Meaning:
        return self.by_name.get(name, Meaning.OTHER)

    def _is_null(self, name: str) -> Predicate | None:
        # A stored 0 of IPv4 is null as text.
        return None if self._meaning(name) in (Meaning.OTHER, Meaning.IPV4) else IsNull(name)

    def _equal_null_safe(self, name: str, value: Any) -> Predicate | None:
        missing = self._is_null(name)
        if missing is None or value is None:
            return missing
        equal = self._comparison(name, Operator.EQUAL, value)
        return None if equal is None else And((Not(missing), equal))

    def _one_of(self, name: str, values: Iterable[Any]) -> Predicate | None:
        parts = [Literal(None) if value is None else self._comparison(name, Operator.EQUAL, value) for value in values]
        if not parts or any(part is None for part in parts):
            return None
        if self._meaning(name) is Meaning.CUT:
            return Or(tuple(part for part in parts if part is not None))
        return In(name, tuple(values))

    def _comparison(self, name: str, operator: Operator, value: Any) -> Predicate | None:
        """Translate a comparison with a value that is not NULL."""
        match self._meaning(name):
            case Meaning.SAME | Meaning.TEXT if value is not None:
                return Comparison(name, operator, value)
            case Meaning.FLOATING if isinstance(value, float) and not math.isnan(value):
                opposite = _OPPOSITES.get(operator)
                return Comparison(name, operator, value) if opposite is None else Not(Comparison(name, opposite, value))
            case Meaning.CUT if isinstance(value, datetime):
                return _cut_comparison(name, operator, value)
            case Meaning.UUID | Meaning.IPV4 as meaning if operator is Operator.EQUAL:
                return Comparison(name, operator, value) if _is_canonical(value, meaning) else None
        return None


def _meaning(field: pa.Field[Any], *, is_bigint: bool) -> Meaning:  # noqa: PLR0911 - one case per kind of type
    source: Any = field.type
    name = questdb_type(field)
    if name == "UUID":
        return Meaning.UUID
    if name == "IPv4":
        return Meaning.IPV4
    if is_written_as_text(field) or pa.types.is_time(source):
        return Meaning.OTHER
    if pa.types.is_nested(source) or pa.types.is_float16(source) or pa.types.is_fixed_size_binary(source):
        return Meaning.NULLS
    if pa.types.is_floating(source):
        return Meaning.FLOATING
    if pa.types.is_string(source):
        return Meaning.TEXT
    is_cut = pa.types.is_timestamp(source) and source.unit == "ns" and not is_bigint
    return Meaning.CUT if is_cut else Meaning.SAME


def _cut_comparison(name: str, operator: Operator, value: datetime) -> Predicate | None:
    """Convert a comparison of a column's microseconds to nanoseconds."""
    try:
        following = value + _MICROSECOND
    except OverflowError:  # the last microsecond that Python can represent
        return None
    match operator:
        case Operator.EQUAL:
            return And(
                (
                    Comparison(name, Operator.GREATER_OR_EQUAL, value),
                    Comparison(name, Operator.LESS, following),
                )
            )
        case Operator.GREATER:
            return Comparison(name, Operator.GREATER_OR_EQUAL, following)
        case Operator.LESS_OR_EQUAL:
            return Comparison(name, Operator.LESS, following)
    return Comparison(name, operator, value)


def _is_canonical(value: Any, meaning: Meaning) -> bool:
    """Tell whether a text has the same spelling as the values of the column."""
    if not isinstance(value, str):
        return False
    try:
        written = str(UUID(value)) if meaning is Meaning.UUID else str(IPv4Address(value))
    except (ValueError, AddressValueError):
        return False
    return written == value and value != "0.0.0.0"  # noqa: S104 - QuestDB's null, no address to listen on
