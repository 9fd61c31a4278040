"""Types of two partitions and the type that holds the values of both, compared with what pyarrow unifies."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import NANOSECOND_BIT, TypeTag, decimal_type_code, parse_type_name
from coldparquet.format.types import ColumnType, ForeignAnnotation, canonical_type, resolve_type
from coldparquet.plan.type_changes import type_in_table, unified_type, widens

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
