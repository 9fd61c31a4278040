"""Defines QuestDB type codes: one ``i32`` per column, the tag in bits 0-7, parameters above.

On TIMESTAMP two bits only say that the column is the designated one and that it descends; they do not change its
values. DECIMAL keeps its scale in the same place.
"""

from __future__ import annotations

import re
from enum import IntEnum

from coldparquet.errors import InvalidInputError, UnsupportedError

DESIGNATED_BIT = 1 << 17
NANOSECOND_BIT = 1 << 18
DESCENDING_BIT = 1 << 20
_GEOHASH_BIT = 1 << 16
UNKNOWN_TYPE_CODE = -1
"""Written for a foreign column whose type could not be inferred."""

MAX_ARRAY_DIMENSIONS = 32
MAX_DECIMAL_PRECISION = 76
MAX_GEOHASH_BITS = 60


class TypeTag(IntEnum):
    """Bits 0-7 of a type code, for every type that QuestDB stores."""

    BOOLEAN = 1
    BYTE = 2
    SHORT = 3
    CHAR = 4
    INT = 5
    LONG = 6
    DATE = 7
    TIMESTAMP = 8
    FLOAT = 9
    DOUBLE = 10
    STRING = 11
    SYMBOL = 12
    LONG256 = 13
    GEOBYTE = 14
    GEOSHORT = 15
    GEOINT = 16
    GEOLONG = 17
    BINARY = 18
    UUID = 19
    LONG128 = 24
    IPV4 = 25
    VARCHAR = 26
    ARRAY = 27
    DECIMAL8 = 28
    DECIMAL16 = 29
    DECIMAL32 = 30
    DECIMAL64 = 31
    DECIMAL128 = 32
    DECIMAL256 = 33


_DECIMAL_TAGS = (
    (2, TypeTag.DECIMAL8),
    (4, TypeTag.DECIMAL16),
    (9, TypeTag.DECIMAL32),
    (18, TypeTag.DECIMAL64),
    (38, TypeTag.DECIMAL128),
    (MAX_DECIMAL_PRECISION, TypeTag.DECIMAL256),
)
"""Largest precision of each decimal tag."""
_GEOHASH_TAGS = ((7, TypeTag.GEOBYTE), (15, TypeTag.GEOSHORT), (31, TypeTag.GEOINT), (60, TypeTag.GEOLONG))
"""Largest number of bits of each geohash tag."""
_PARAMETERS = re.compile(
    r"(GEOHASH|DECIMAL|DOUBLE)\s*(?:\(\s*(\d{1,3})\s*(?:([bc])|,\s*(\d{1,3}))\s*\)|((?:\[\])+))", re.IGNORECASE
)
"""Names with parameters: ``GEOHASH(8c)``, ``DECIMAL(18,3)``, ``DOUBLE[][]``."""


def is_decimal(tag: TypeTag) -> bool:
    """Tell whether the tag is one of the six decimal widths."""
    return TypeTag.DECIMAL8 <= tag <= TypeTag.DECIMAL256


def is_geohash(tag: TypeTag) -> bool:
    """Tell whether the tag is one of the four geohash widths."""
    return TypeTag.GEOBYTE <= tag <= TypeTag.GEOLONG


def unsupported_type(type_code: int, why: str) -> UnsupportedError:
    """Return the error for a column whose type cannot be read; the caller adds path and column name."""
    return UnsupportedError(
        f"column type code {type_code}: {why}; leave the column out of the selection to read the others",
        kind="UnsupportedType",
        type_code=type_code,
    )


def tag_of(type_code: int) -> TypeTag:
    """Return the tag of a type code."""
    if type_code == UNKNOWN_TYPE_CODE:
        raise unsupported_type(type_code, "its Parquet type has no QuestDB counterpart")
    if type_code <= 0:
        raise unsupported_type(type_code, "type codes are positive")
    try:
        return TypeTag(type_code & 0xFF)
    except ValueError:
        raise unsupported_type(type_code, f"tag {type_code & 0xFF} is not a stored type") from None


def is_nanosecond(type_code: int) -> bool:
    """Tell whether a TIMESTAMP code means nanoseconds rather than microseconds."""
    return bool(type_code & NANOSECOND_BIT)


def timestamp_unit(type_code: int) -> str:
    """Return the unit of a TIMESTAMP code: ``us`` or ``ns``."""
    return "ns" if is_nanosecond(type_code) else "us"


def geohash_bits(type_code: int) -> int:
    """Return the number of bits of a GEOHASH code, 1 to 60."""
    bits = (type_code >> 8) & 0xFF
    if not 1 <= bits <= MAX_GEOHASH_BITS or _by_limit(_GEOHASH_TAGS, bits) != tag_of(type_code):
        raise unsupported_type(type_code, f"a geohash of {bits} bits does not fit its tag")
    return bits


def array_dimensions(type_code: int) -> int:
    """Return the number of dimensions of an ARRAY code, 1 to 32."""
    element = (type_code >> 8) & 0x3F
    if element != TypeTag.DOUBLE:
        raise unsupported_type(type_code, f"arrays of element type {element} are not stored; only DOUBLE is")
    return ((type_code >> 14) & 0x1F) + 1


def decimal_precision_scale(type_code: int) -> tuple[int, int]:
    """Return precision (bits 8-15) and scale (from bit 18) of a DECIMAL code."""
    precision = (type_code >> 8) & 0xFF
    scale = (type_code >> 18) & 0xFF
    if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
        raise unsupported_type(type_code, f"DECIMAL({precision},{scale}) is not a valid decimal")
    return precision, scale


def decimal_type_code(precision: int, scale: int) -> int:
    """Return the code of DECIMAL(precision, scale), or ``UNKNOWN_TYPE_CODE`` where QuestDB has no such type."""
    if not 1 <= precision <= MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        return UNKNOWN_TYPE_CODE
    return _by_limit(_DECIMAL_TAGS, precision) | precision << 8 | scale << 18


def geohash_type_code(bits: int) -> int:
    """Return the code of a geohash of this many bits, or ``UNKNOWN_TYPE_CODE`` where QuestDB has no such type."""
    if not 1 <= bits <= MAX_GEOHASH_BITS:
        return UNKNOWN_TYPE_CODE
    return _by_limit(_GEOHASH_TAGS, bits) | bits << 8 | _GEOHASH_BIT


def array_type_code(dimensions: int) -> int:
    """Return the code of a DOUBLE array with this many dimensions, 1 to 32."""
    return TypeTag.ARRAY | TypeTag.DOUBLE << 8 | (dimensions - 1) << 14


def _by_limit(limits: tuple[tuple[int, TypeTag], ...], value: int) -> TypeTag:
    return next(tag for largest, tag in limits if value <= largest)


def type_name(type_code: int) -> str:
    """Return the type's name as ``SHOW COLUMNS`` prints it; ``UNKNOWN(code)`` for codes that name no type."""
    try:
        tag = tag_of(type_code)
        if is_geohash(tag):
            bits = geohash_bits(type_code)
            return f"GEOHASH({bits}b)" if bits % 5 else f"GEOHASH({bits // 5}c)"
        if is_decimal(tag):
            precision, scale = decimal_precision_scale(type_code)
            return f"DECIMAL({precision},{scale})"
        if tag is TypeTag.ARRAY:
            return "DOUBLE" + "[]" * array_dimensions(type_code)
    except UnsupportedError:
        return f"UNKNOWN({type_code})"
    if tag is TypeTag.TIMESTAMP and is_nanosecond(type_code):
        return "TIMESTAMP_NS"
    return "IPv4" if tag is TypeTag.IPV4 else tag.name


def parse_type_name(name: str) -> int:
    """Return the code of a type by its name as ``SHOW COLUMNS`` prints it; the inverse of ``type_name``."""
    name = name.strip()
    code = _PLAIN_CODES.get(name.upper(), UNKNOWN_TYPE_CODE)
    if match := _PARAMETERS.fullmatch(name):
        code = _code_of_parameters(*match.groups())
    if code == UNKNOWN_TYPE_CODE:
        raise InvalidInputError(
            f"{name!r} is not the name of a QuestDB type; write it as SHOW COLUMNS prints it, for example SYMBOL,"
            " GEOHASH(8c) or DECIMAL(18,3)",
            kind="UnknownType",
        )
    return code


_PLAIN_CODES = {
    type_name(code): int(code)
    for code in (*TypeTag, TypeTag.TIMESTAMP | NANOSECOND_BIT)
    if not (is_decimal(TypeTag(code & 0xFF)) or is_geohash(TypeTag(code & 0xFF)) or code == TypeTag.ARRAY)
}
"""Codes of the types without parameters, by name in capitals."""
_PLAIN_CODES["IPV4"] = _PLAIN_CODES.pop("IPv4")


def _code_of_parameters(
    kind: str, first: str | None, unit: str | None, second: str | None, brackets: str | None
) -> int:
    """Return the code of a type with parameters, or ``UNKNOWN_TYPE_CODE`` where they do not fit the type."""
    if brackets is not None:
        dimensions = len(brackets) // 2
        is_array = kind.upper() == "DOUBLE" and dimensions <= MAX_ARRAY_DIMENSIONS
        return array_type_code(dimensions) if is_array else UNKNOWN_TYPE_CODE
    if unit is not None and kind.upper() == "GEOHASH":
        bits = int(first or 0) * (5 if unit.lower() == "c" else 1)
        return geohash_type_code(bits)
    if second is not None and kind.upper() == "DECIMAL":
        return decimal_type_code(int(first or 0), int(second))
    return UNKNOWN_TYPE_CODE
