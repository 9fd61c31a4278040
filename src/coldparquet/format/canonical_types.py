"""The type of a column by its type code alone: as it is when QuestDB itself stores it.

`_meta` states type codes and nothing about Parquet, whose files may store the same type in several ways: arrays raw or
nested, dates as days, decimals in any width.
"""

from __future__ import annotations

from coldparquet.format.column_types import ColumnType, resolve_type
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import TypeTag, is_decimal, is_geohash, tag_of, unsupported_type

_STORAGE: dict[TypeTag, tuple[PhysicalType, int]] = {
    TypeTag.BOOLEAN: (PhysicalType.BOOLEAN, 0),
    **dict.fromkeys(
        (
            TypeTag.BYTE,
            TypeTag.SHORT,
            TypeTag.CHAR,
            TypeTag.INT,
            TypeTag.IPV4,
            TypeTag.GEOBYTE,
            TypeTag.GEOSHORT,
            TypeTag.GEOINT,
        ),
        (PhysicalType.INT32, 0),
    ),
    **dict.fromkeys(
        (TypeTag.LONG, TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.GEOLONG),
        (PhysicalType.INT64, 0),
    ),
    TypeTag.FLOAT: (PhysicalType.FLOAT, 0),
    TypeTag.DOUBLE: (PhysicalType.DOUBLE, 0),
    **dict.fromkeys(
        (TypeTag.STRING, TypeTag.VARCHAR, TypeTag.SYMBOL, TypeTag.BINARY, TypeTag.ARRAY),
        (PhysicalType.BYTE_ARRAY, 0),
    ),
    TypeTag.UUID: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.LONG128: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.LONG256: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 32),
    TypeTag.DECIMAL8: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 1),
    TypeTag.DECIMAL16: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 2),
    TypeTag.DECIMAL32: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 4),
    TypeTag.DECIMAL64: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 8),
    TypeTag.DECIMAL128: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 16),
    TypeTag.DECIMAL256: (PhysicalType.FIXED_LEN_BYTE_ARRAY, 32),
}
"""Parquet's physical type, and bytes per value of the fixed-length ones, by tag."""


def canonical_type(type_code: int) -> ColumnType:
    """Return the type of a column that QuestDB stores: its Arrow type, its order, and the Parquet storage it gets.

    Args:
        type_code: QuestDB's code; designated and descending bits do not matter.

    Raises:
        UnsupportedError: The code names no stored type, or its parameters are out of range or of no known meaning.
    """
    tag = tag_of(type_code)
    has_parameters = tag in (TypeTag.TIMESTAMP, TypeTag.ARRAY) or is_decimal(tag) or is_geohash(tag)
    if type_code != tag and not has_parameters:
        raise unsupported_type(type_code, f"{tag.name} has no parameters, so this is another, unknown type")
    physical_type, fixed_byte_length = _STORAGE[tag]
    return resolve_type(type_code, physical_type, fixed_byte_length, max_rep_level=0)
