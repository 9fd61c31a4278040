"""Converts the literals of a predicate exactly into the domain of the column that they are compared with.

Each column type has its own domain: whole numbers in the column's unit, floats, bytes. A literal need not be a value of
that domain (3.5 is no INT, 1 ns is no step of a microsecond timestamp). But it always has a definite place in it, and
that place decides every comparison. So nothing is ever rounded, with one exception that SQL has as well: beside a FLOAT
or DOUBLE column, a number with a point or an exponent stands for the nearest double.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

import numpy as np
from msgspec import Struct

from coldparquet.errors import InvalidInputError
from coldparquet.format.types import TypeTag
from coldparquet.plan.predicate import (
    NANOSECONDS_PER_UNIT,
    Instant,
    Operator,
    Value,
    format_instant,
    format_time_of_day,
    instant_of,
    instant_of_date,
    parse_instant,
    parse_time_of_day,
    quote_name,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.format.types import ColumnType

DomainValue: TypeAlias = bool | int | float | bytes
"""A value as columns hold it: integers in the column's own unit (unscaled for decimals), text as UTF-8."""


class DomainPlace(Enum):
    """The place of a literal among the values that a column can hold."""

    AT = "at"
    """It is the value."""
    AFTER = "after"
    """Strictly between the value and the next one that the column can hold."""
    BELOW_ALL = "below all"
    ABOVE_ALL = "above all"
    NULL = "null"
    """The literal is NULL: no comparison with it is ever true."""


class PlacedLiteral(Struct, frozen=True):
    """A literal in a column's domain."""

    place: DomainPlace
    value: DomainValue | None = None
    """Set for ``AT`` and ``AFTER``."""


NULL = PlacedLiteral(DomainPlace.NULL)
_BELOW_ALL = PlacedLiteral(DomainPlace.BELOW_ALL)
_ABOVE_ALL = PlacedLiteral(DomainPlace.ABOVE_ALL)

_INTEGER_RANGES = {
    **{f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    "timestamp": (-(1 << 63), (1 << 63) - 1),
    "time64": (-(1 << 63), (1 << 63) - 1),
    "time32": (-(1 << 31), (1 << 31) - 1),
    "date32": (-(1 << 31), (1 << 31) - 1),
}
"""Smallest and largest value of the Arrow types whose domain is whole numbers."""

_EXTREME_EXPONENT = 400
"""Decimals with more digits than this before or after the point are outside of every domain, or next to 0."""

_GEOHASH_DIGITS = "0123456789bcdefghjkmnpqrstuvwxyz"
_GEOHASH_OF_CHARACTERS = re.compile(r"GEOHASH\((\d+)c\)")
_NUMBER_TEXT = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_LONG256_TEXT = re.compile(r"0[xX][0-9a-fA-F]{1,64}")

# Steps of numpy's datetime64 units: nanoseconds in one, or how many make one.
_NANOSECONDS_PER_NUMPY_UNIT = {
    "W": 7 * NANOSECONDS_PER_UNIT["d"],
    "D": NANOSECONDS_PER_UNIT["d"],
    "h": 3_600 * NANOSECONDS_PER_UNIT["s"],
    "m": 60 * NANOSECONDS_PER_UNIT["s"],
    **{unit: NANOSECONDS_PER_UNIT[unit] for unit in ("s", "ms", "us", "ns")},
}
_NUMPY_UNITS_PER_NANOSECOND = {"ps": 10**3, "fs": 10**6, "as": 10**9}


def place_literal(
    value: Value, column_type: ColumnType, column: str, operator: Operator = Operator.EQUAL
) -> PlacedLiteral:
    """Find the place of a literal in the domain of a column."""
    if value is None:
        return NULL
    placed = _conversion(column_type).convert(value, column_type)
    if placed is None:
        raise _mismatch(value, column_type, column, operator)
    return placed


def place_literals(values: Sequence[Value], column_type: ColumnType, column: str) -> tuple[set[DomainValue], bool]:
    """Return which values of a column's domain a list of literals contains, and whether it contains NULL."""
    kinds = set(map(type, values))
    if kinds == {int} and column_type.arrow.name in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[column_type.arrow.name]
        return {value for value in values if isinstance(value, int) and low <= value <= high}, False
    if kinds == {str} and _conversion(column_type) is _TEXT:
        with suppress(UnicodeEncodeError):
            return {value.encode() for value in values if isinstance(value, str)}, False
    placed = [place_literal(value, column_type, column) for value in values]
    found = {literal.value for literal in placed if literal.place is DomainPlace.AT and literal.value is not None}
    return found, any(literal.place is DomainPlace.NULL for literal in placed)


def format_value(value: DomainValue, column_type: ColumnType) -> str:
    """Write a value of a column's domain as SQL literal, for people: ``'2024-03-01T00:00:00.000000Z'``."""
    return _conversion(column_type).write(value, column_type)


def _place_number(value: Value, low: int, high: int, scale: int = 0) -> PlacedLiteral | None:
    """Place a number among whole numbers of ``10 ** -scale``; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _EXTREME_EXPONENT and value:
        value = math.copysign(math.inf if value.adjusted() > 0 else math.ulp(0.0), value)
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return _ABOVE_ALL if value > 0 else _BELOW_ALL
    numerator, denominator = value.as_integer_ratio()
    floor, rest = divmod(numerator * 10**scale, denominator)
    return _place_whole(floor, has_rest=rest != 0, low=low, high=high)


def _place_whole(floor: int, *, has_rest: bool, low: int, high: int) -> PlacedLiteral:
    if floor < low:
        return _BELOW_ALL
    if floor > high or (floor == high and has_rest):
        return _ABOVE_ALL
    return PlacedLiteral(DomainPlace.AFTER if has_rest else DomainPlace.AT, floor)


def _integer(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    return _place_number(value, *_INTEGER_RANGES[column_type.arrow.name])


def _float(value: Value, _column_type: ColumnType) -> PlacedLiteral | None:
    """Place a number among the doubles: integers exactly, decimals at the nearest double."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if math.isinf(nearest) and value != nearest:
        # Finite, but beyond the largest double: only an infinity is on its other side.
        return PlacedLiteral(DomainPlace.AFTER, math.nextafter(math.inf, 0) if value > 0 else -math.inf)
    if isinstance(value, int) and nearest != value:
        return PlacedLiteral(DomainPlace.AFTER, nearest if nearest < value else math.nextafter(nearest, -math.inf))
    return PlacedLiteral(DomainPlace.AT, nearest)


def _decimal(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except ArithmeticError:
            return None
    largest = 10**column_type.arrow.precision - 1
    return _place_number(value, -largest, largest, column_type.arrow.scale)


def _boolean(value: Value, _column_type: ColumnType) -> PlacedLiteral | None:
    return PlacedLiteral(DomainPlace.AT, value) if isinstance(value, bool) else None


def _point_in_time(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    arrow = column_type.arrow
    instant = _instant(value)
    if instant is None:
        return _integer(value, column_type)
    low, high = _INTEGER_RANGES[arrow.name]
    steps, has_rest = instant.in_unit(arrow.unit or "d")
    return _place_whole(steps, has_rest=has_rest, low=low, high=high)


def _instant(value: Value) -> Instant | None:
    match value:
        case Instant():
            return value
        case str():
            return parse_instant(value)
        case datetime():
            return instant_of(value)
        case date():
            return instant_of_date(value)
        case np.datetime64():
            return _instant_of_numpy(value)
    return None


def _instant_of_numpy(value: np.datetime64) -> Instant:
    unit, step = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):
        return _instant_of_numpy(value.astype("datetime64[D]"))
    count = int(value.astype(np.int64)) * step
    if unit in _NANOSECONDS_PER_NUMPY_UNIT:
        return Instant(count * _NANOSECONDS_PER_NUMPY_UNIT[unit])
    nanoseconds, rest = divmod(count, _NUMPY_UNITS_PER_NANOSECOND[unit])
    return Instant(nanoseconds, has_rest=rest != 0)


def _time_of_day(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    if isinstance(value, time):
        value = value.isoformat() if value.tzinfo is None else None
    if not isinstance(value, str):
        return _integer(value, column_type)
    instant = parse_time_of_day(value)
    if instant is None:
        return None
    steps, has_rest = instant.in_unit(str(column_type.arrow.unit))
    low, high = _INTEGER_RANGES[column_type.arrow.name]
    return _place_whole(steps, has_rest=has_rest, low=low, high=high)


def _text(value: Value, _column_type: ColumnType) -> PlacedLiteral | None:
    if not isinstance(value, str):
        return None
    try:
        return PlacedLiteral(DomainPlace.AT, value.encode())
    except UnicodeEncodeError:
        return None


def _bytes(value: Value, _column_type: ColumnType) -> PlacedLiteral | None:
    return PlacedLiteral(DomainPlace.AT, value) if isinstance(value, bytes) else None


def _uuid(value: Value, _column_type: ColumnType) -> PlacedLiteral | None:
    if isinstance(value, str):
        try:
            value = UUID(value)
        except ValueError:
            return None
    if isinstance(value, UUID):
        value = value.bytes
    return PlacedLiteral(DomainPlace.AT, value) if isinstance(value, bytes) and len(value) == 16 else None


def _wide_integer(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    """LONG128 and LONG256 are stored as little-endian bytes and compare only for equality."""
    width = column_type.arrow.width
    if isinstance(value, str) and _LONG256_TEXT.fullmatch(value):
        value = int(value, 16)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 8 * width:
        value = value.to_bytes(width, "little")
    return PlacedLiteral(DomainPlace.AT, value) if isinstance(value, bytes) and len(value) == width else None


def _character(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    if isinstance(value, str):
        # A CHAR is one UTF-16 unit; characters beyond U+FFFF take two and are never equal to one.
        return PlacedLiteral(DomainPlace.AT, ord(value)) if len(value) == 1 and ord(value) <= 0xFFFF else None
    return _integer(value, column_type)


def _ipv4(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    if isinstance(value, str):
        try:
            value = IPv4Address(value)
        except AddressValueError:
            return None
    return _integer(int(value) if isinstance(value, IPv4Address) else value, column_type)


def _geohash(value: Value, column_type: ColumnType) -> PlacedLiteral | None:
    if not isinstance(value, str):
        return _integer(value, column_type)
    characters = _GEOHASH_OF_CHARACTERS.fullmatch(column_type.name)
    text = value.lower().removeprefix("#")
    if characters is None or len(text) != int(characters[1]) or not set(text) <= set(_GEOHASH_DIGITS):
        return None
    number = 0
    for character in text:
        number = number * 32 + _GEOHASH_DIGITS.index(character)
    return PlacedLiteral(DomainPlace.AT, number)


def _write_plain(value: DomainValue, _column_type: ColumnType) -> str:
    return value_text(value)


def _write_text(value: DomainValue, _column_type: ColumnType) -> str:
    # The end of a range of prefixes need not be UTF-8.
    return value_text(value.decode(errors="backslashreplace") if isinstance(value, bytes) else value)


def _write_point_in_time(value: DomainValue, column_type: ColumnType) -> str:
    text = format_instant(int(value), column_type.arrow.unit or "d")
    return text if text == str(value) else f"'{text}'"


def _write_time_of_day(value: DomainValue, column_type: ColumnType) -> str:
    return f"'{format_time_of_day(int(value), str(column_type.arrow.unit))}'"


def _write_decimal(value: DomainValue, column_type: ColumnType) -> str:
    unscaled = int(value)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return str(Decimal((int(unscaled < 0), digits, -column_type.arrow.scale)))


def _write_uuid(value: DomainValue, _column_type: ColumnType) -> str:
    return f"'{UUID(bytes=value)}'" if isinstance(value, bytes) else value_text(value)


def _write_wide_integer(value: DomainValue, _column_type: ColumnType) -> str:
    return f"'{int.from_bytes(value, 'little'):#x}'" if isinstance(value, bytes) else value_text(value)


def _write_character(value: DomainValue, _column_type: ColumnType) -> str:
    return value_text(chr(int(value)))


def _write_ipv4(value: DomainValue, _column_type: ColumnType) -> str:
    return f"'{IPv4Address(int(value))}'"


class _Conversion(Struct, frozen=True):
    """How literals become values of a type and back, and the spelling that an error message suggests."""

    convert: Callable[[Value, ColumnType], PlacedLiteral | None]
    write: Callable[[DomainValue, ColumnType], str]
    example: str
    wrong_text: str | None = None
    """The hint if text is right but needs a certain spelling; an example follows."""


_NO_TIME = "is no time; write times as 2024-03-01 or 2024-03-01T12:30:00, for example"
_NO_TIME_OF_DAY = "is no time of day; write times of day as 12:30 or 12:30:00.123, for example"

_WIDE_INTEGER = _Conversion(_wide_integer, _write_wide_integer, "'0x1f'")
_GEOHASH = _Conversion(_geohash, _write_plain, "12345, or 'u33d8b12' if the column counts whole characters")
_INTEGER = _Conversion(_integer, _write_plain, "42")
_FLOAT = _Conversion(_float, _write_plain, "1.5")
_DECIMAL = _Conversion(_decimal, _write_decimal, "12.34")
_TEXT = _Conversion(_text, _write_text, "'text'")
_TIME_OF_DAY = _Conversion(_time_of_day, _write_time_of_day, "'12:30:00'", _NO_TIME_OF_DAY)

_BY_TAG = {
    TypeTag.CHAR: _Conversion(_character, _write_character, "'A'"),
    TypeTag.IPV4: _Conversion(_ipv4, _write_ipv4, "'192.168.0.1'"),
    TypeTag.UUID: _Conversion(_uuid, _write_uuid, "'11111111-2222-3333-4444-555555555555'"),
    TypeTag.LONG128: _WIDE_INTEGER,
    TypeTag.LONG256: _WIDE_INTEGER,
    TypeTag.GEOBYTE: _GEOHASH,
    TypeTag.GEOSHORT: _GEOHASH,
    TypeTag.GEOINT: _GEOHASH,
    TypeTag.GEOLONG: _GEOHASH,
}
"""Types whose Arrow type does not determine their literals."""

_BY_ARROW = {
    "bool": _Conversion(_boolean, _write_plain, "TRUE"),
    **{f"{sign}int{bits}": _INTEGER for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": _FLOAT,
    "float64": _FLOAT,
    "decimal128": _DECIMAL,
    "decimal256": _DECIMAL,
    "timestamp": _Conversion(_point_in_time, _write_point_in_time, "'2024-03-01'", _NO_TIME),
    "date32": _Conversion(_point_in_time, _write_point_in_time, "'2024-03-01'", _NO_TIME),
    "time32": _TIME_OF_DAY,
    "time64": _TIME_OF_DAY,
    "string": _TEXT,
    "dictionary": _TEXT,
    "binary": _Conversion(_bytes, _write_plain, "b'bytes', in SQL text X'6279746573'"),
}


def _conversion(column_type: ColumnType) -> _Conversion:
    return _BY_TAG.get(column_type.tag) or _BY_ARROW[column_type.arrow.name]


def _example(value: Value, conversion: _Conversion) -> str:
    """Return the number that the caller put in quotes, without them, or else the example of the type."""
    if conversion in (_INTEGER, _FLOAT) and isinstance(value, str) and _NUMBER_TEXT.fullmatch(value):
        return value
    return conversion.example


def _mismatch(value: Value, column_type: ColumnType, column: str, operator: Operator) -> InvalidInputError:
    conversion = _conversion(column_type)
    shown = value_text(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    if isinstance(value, str) and conversion.wrong_text is not None:
        complaint = f", but {shown} {conversion.wrong_text}"
    else:
        complaint = f" and cannot be compared with {shown}; write for example"
    return InvalidInputError(
        f"column {column!r} is {column_type.name}{complaint} {quote_name(column)} {operator} {_example(value, conversion)}",
        kind="InvalidLiteral",
        column=column,
        type=column_type.name,
    )
