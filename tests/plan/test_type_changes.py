"""Which types become which: those that QuestDB accepts, and no others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import NANOSECOND_BIT, TypeTag, decimal_type_code, parse_type_name
from coldparquet.format.types import ColumnType, ForeignAnnotation, canonical_type, resolve_type
from coldparquet.plan.type_changes import can_convert, holds_same_values, type_in_table, unified_type, widens
from tests.support.golden_values import CONVERSIONS, REFUSED, GoldenConversion, type_named

INT32, INT64, BYTES, FIXED = (
    PhysicalType.INT32,
    PhysicalType.INT64,
    PhysicalType.BYTE_ARRAY,
    PhysicalType.FIXED_LEN_BYTE_ARRAY,
)
DATE_IN_DAYS = resolve_type(TypeTag.DATE, INT32, 0, 0)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=str)
def test_what_questdb_accepts_can_be_converted(conversion: GoldenConversion) -> None:
    possible = not all(map(conversion.fails, range(len(conversion.values))))
    assert can_convert(type_named(conversion.stored), type_named(conversion.wanted)) == possible


def test_what_questdb_refuses_cannot_be_converted() -> None:
    assert REFUSED
    for stored, wanted in REFUSED:
        assert not can_convert(type_named(stored), type_named(wanted)), (stored, wanted)


@pytest.mark.parametrize("name", ["LONG256", "LONG128", "BINARY", "GEOHASH(1c)", "GEOHASH(8c)", "DOUBLE[]"])
def test_types_without_conversions_only_stay_what_they_are(name: str) -> None:
    for other in ("LONG256", "LONG128", "BINARY", "GEOHASH(1c)", "GEOHASH(7b)", "GEOHASH(8c)", "DOUBLE[]", "DOUBLE[][]",
                  "BYTE", "INT", "LONG", "VARCHAR", "DECIMAL(9,3)"):  # fmt: skip
        assert can_convert(type_named(name), type_named(other)) == (name == other), other
        assert name == other or not can_convert(type_named(other), type_named(name)), other


@pytest.mark.parametrize(
    ("stored", "wanted", "same"),
    [
        (type_named("STRING"), type_named("SYMBOL"), True),
        (type_named("VARCHAR"), type_named("STRING"), True),
        (resolve_type(791_071, FIXED, 16, 0), type_named("DECIMAL(18,3)"), True),
        (resolve_type(791_071, INT64, 0, 0), type_named("DECIMAL(18,3)"), True),
        (type_named("DECIMAL(18,3)"), type_named("DECIMAL(18,2)"), False),
        (resolve_type(18_971, PhysicalType.DOUBLE, 0, 2), type_named("DOUBLE[][]"), True),
        (DATE_IN_DAYS, type_named("DATE"), True),
        (type_named("DATE"), DATE_IN_DAYS, False),
        (DATE_IN_DAYS, DATE_IN_DAYS, True),
        (type_named("TIMESTAMP"), type_named("TIMESTAMP_NS"), False),
        (canonical_type(131_080), type_named("TIMESTAMP"), True),
        (type_named("INT"), type_named("GEOHASH(20b)"), False),
        (type_named("GEOHASH(1c)"), type_named("GEOHASH(7b)"), False),
    ],
)
def test_same_values_in_another_storage(stored: ColumnType, wanted: ColumnType, *, same: bool) -> None:
    assert holds_same_values(stored, wanted) == same


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (resolve_type(TypeTag.INT, INT32, 0, 0, ForeignAnnotation.UINT_32), type_named("LONG")),
        (resolve_type(TypeTag.INT, INT32, 0, 0, ForeignAnnotation.UINT_32), type_named("INT")),
        (
            resolve_type(TypeTag.TIMESTAMP, INT64, 0, 0, ForeignAnnotation.TIMESTAMP_MICROS_LOCAL),
            type_named("TIMESTAMP"),
        ),
        (resolve_type(TypeTag.LONG, INT64, 0, 0, ForeignAnnotation.TIME_MICROS), type_named("LONG")),
        (type_named("TIMESTAMP"), DATE_IN_DAYS),
    ],
)
def test_what_only_foreign_files_hold_is_not_converted(stored: ColumnType, wanted: ColumnType) -> None:
    assert not can_convert(stored, wanted)


ANNOTATED = [
    (TypeTag.BYTE, PhysicalType.INT32, ForeignAnnotation.NULLABLE),
    (TypeTag.SHORT, PhysicalType.INT32, ForeignAnnotation.NULLABLE),
    (TypeTag.BOOLEAN, PhysicalType.BOOLEAN, ForeignAnnotation.NULLABLE),
    (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_8),
    (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_16),
    (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.UINT_32),
    (TypeTag.LONG, PhysicalType.INT64, ForeignAnnotation.UINT_64),
    (TypeTag.DATE, PhysicalType.INT64, ForeignAnnotation.TIMESTAMP_MILLIS_LOCAL),
    (TypeTag.TIMESTAMP, PhysicalType.INT64, ForeignAnnotation.TIMESTAMP_MICROS_LOCAL),
    (TypeTag.TIMESTAMP | NANOSECOND_BIT, PhysicalType.INT96, None),
    (TypeTag.INT, PhysicalType.INT32, ForeignAnnotation.TIME_MILLIS),
    (TypeTag.LONG, PhysicalType.INT64, ForeignAnnotation.TIME_MICROS),
    (TypeTag.LONG, PhysicalType.INT64, ForeignAnnotation.TIME_NANOS),
]
TYPES = [
    *(canonical_type(parse_type_name(name)) for name in ("INT", "LONG", "FLOAT", "DOUBLE", "VARCHAR", "BINARY")),
    *(canonical_type(parse_type_name(name)) for name in ("DATE", "TIMESTAMP", "TIMESTAMP_NS", "LONG128", "LONG256")),
    *(canonical_type(decimal_type_code(*digits)) for digits in ((4, 2), (9, 2), (18, 4), (38, 10), (76, 40))),
    *(resolve_type(code, physical, 0, 0, annotation) for code, physical, annotation in ANNOTATED),
    resolve_type(TypeTag.DATE, PhysicalType.INT32, 0, 0),
]


def shown(column_type: ColumnType) -> Any:
    return arrow_type(column_type, text=PLAIN_TEXT)


@pytest.mark.parametrize("first", TYPES, ids=lambda type_: str(shown(type_)))
def test_pairs_of_types_become_what_arrow_makes_of_them(first: ColumnType) -> None:
    for second in TYPES:
        one, other = shown(first), shown(second)
        try:
            schemas = [pa.schema([("x", type_)]) for type_ in (one, other)]
            expected = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except pa.ArrowTypeError:
            expected = None
        if expected is not None and pa.types.is_floating(expected) and any(map(pa.types.is_decimal, (one, other))):
            expected = None  # not silently rounded
        found = unified_type(type_in_table(first), second)
        assert (found and shown(found)) == expected, (one, other)
        assert widens(second, first) == (expected == one), (one, other)
        if found is not None:
            assert found.is_unified
            assert widens(first, found)
            assert widens(second, found)


def test_what_is_more_than_its_arrow_type_becomes_nothing_else() -> None:
    special = [canonical_type(parse_type_name(name)) for name in ("CHAR", "IPv4", "GEOHASH(4c)", "DOUBLE[]")]
    for one, other in product(special, TYPES):
        assert unified_type(type_in_table(one), other) is None
        assert unified_type(type_in_table(other), one) is None


def test_a_type_without_null_is_none_of_a_foreign_table() -> None:
    byte = canonical_type(TypeTag.BYTE)
    assert byte.never_null
    assert not type_in_table(byte).never_null
    assert not widens(type_in_table(byte), byte)
    assert widens(byte, type_in_table(byte))
