"""Every type of column: random values of it as Python compares them exactly, and literals to compare them with."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Address
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from coldparquet.records import replace


class Comparisons(StrEnum):
    """What a predicate may ask of a column."""

    ALL = "all"
    EQUALITY = "equality"
    NULLS = "nulls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type of column, with what can be in it."""

    name: str
    storage: Any
    """Arrow type in which the column is written and comes back; dictionaries come back as the options say."""
    draw: Callable[[Random], Any]
    """Makes one value, as Python compares it: whole numbers of the column's unit for points in time."""
    near: Callable[[Random, Any], Any]
    """Makes a value of the type or of a wider one, close to a given one."""
    extremes: tuple[Any, ...] = ()
    """Literals below and above all values, and others that are more than one among many."""
    literal: Callable[[Random, Any], Any] = lambda _random, value: value
    """Writes a value as a user may write it; ``literal_value`` undoes it."""
    questdb_type: str | None = None
    """Name for the field metadata, where the Arrow type alone does not say it."""
    encodings: tuple[str, ...] = ()
    """Parquet encodings besides PLAIN and a dictionary."""
    never_null: bool = False
    comparisons: Comparisons = Comparisons.ALL


def literal_value(literal: Any) -> Any:
    """Return what a literal stands for, comparable with the values of its column."""
    match literal:
        case UUID():
            return literal.bytes
        case IPv4Address():
            return int(literal)
        case np.datetime64():
            return int(literal.astype(np.int64))
    return literal


# --- Values of one type -----------------------------------------------------------------------------------------------


def _integer(low: int, high: int, random: Random) -> int:
    drawn = random.random()
    if drawn < 0.4:
        return min(max(random.randint(-20, 20), low), high)
    if drawn < 0.55:
        return random.choice((low, low + 1, high - 1, high))
    return random.randint(low, high)


def _near_integer(random: Random, value: int) -> Any:
    return value + random.choice((-2, -1, 1, 2, Decimal("0.5"), Decimal("-0.5"), 0.25 if abs(value) < 2**40 else 1))


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _double(random: Random) -> float:
    drawn = random.random()
    if drawn < 0.25:
        return random.choice((math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53))
    return round(random.gauss(0, 100), random.randint(0, 4)) if drawn < 0.7 else random.gauss(0, 1e9)


def _float(random: Random) -> float:
    drawn = _double(random)
    return _single(drawn) if math.isnan(drawn) or abs(drawn) < 3e38 or math.isinf(drawn) else 3.4028234663852886e38


def _near_double(random: Random, value: float) -> Any:
    away = random.choice((math.inf, -math.inf))
    if math.isnan(value):
        return away
    return random.choice((math.nextafter(value, away), value + 1.5, -value, 7))


def _text(random: Random) -> str:
    prefix = random.choice(("", "", "a", "common-prefix-of-some-length-", "ä", "\U0001f680"))
    letters = random.choice(("ab", "abcdefghij", "a\x00\x7f", "éß中", "\uffff\U0010ffff"))
    return prefix + "".join(random.choices(letters, k=random.choice((0, 1, 2, 5, 9, 70))))


def _near_text(random: Random, value: str) -> str:
    return random.choice((value + "\x00", value[:-1], value[:9] + "z", value + "a", value.upper()))


def _bytes(random: Random) -> bytes:
    return random.choice((b"", b"\xff" * 8, b"\x00")) + random.randbytes(random.choice((0, 1, 2, 9, 40)))


def _near_bytes(random: Random, value: bytes) -> bytes:
    return random.choice((value + b"\x00", value[:-1], value[:9] + b"\xff" * 3, value[:8]))


def _fixed_bytes(width: int, random: Random) -> bytes:
    return random.choice((bytes(width), b"\xff" * width, *[random.randbytes(width)] * 6))


def _near_fixed_bytes(random: Random, value: bytes) -> bytes:
    number = int.from_bytes(value, "big") + random.choice((-1, 1))
    return (number % (1 << 8 * len(value))).to_bytes(len(value), "big")


def _decimal(digits: int, scale: int, random: Random) -> Decimal:
    limit = 10**digits - 1
    small = random.randint(-min(limit, 300), min(limit, 300))
    return _scaled(random.choice((random.randint(-limit, limit), small, limit, -limit, 0)), scale)


def _scaled(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _near_decimal(scale: int, random: Random, value: Decimal) -> Any:
    # By way of fractions: the decimal context would round 76 digits.
    finer = Fraction(value) * 10 ** (scale + 1) + random.choice((-10, -1, 1, 10))
    return _scaled(int(finer), scale + 1)


def _doubles(dimensions: int, random: Random) -> list[Any]:
    length = random.choice((0, 1, 2, 3, 7))
    if dimensions == 1:
        return [random.choice((None, random.gauss(0, 1), math.inf)) for _ in range(length)]
    return [random.choice((None, _doubles(dimensions - 1, random))) for _ in range(length)]


def _grid(dimensions: int, random: Random) -> Any:
    shape = [random.choice((1, 2, 3)) for _ in range(dimensions)]
    return np.array([random.gauss(0, 1) for _ in range(math.prod(shape))]).reshape(shape).tolist()


def _instant_literal(unit: str, random: Random, value: Any) -> Any:
    fits = isinstance(value, int) and abs(value) < 2**53 * {"ms": 1, "us": 1, "ns": 512}[unit]
    return np.array(value, f"datetime64[{unit}]")[()] if fits and random.random() < 0.3 else value


# --- All types --------------------------------------------------------------------------------------------------------


def _integers(name: str, storage: Any, low: int, high: int, **more: Any) -> Kind:
    settings = {
        "draw": partial(_integer, low, high),
        "near": _near_integer,
        "extremes": (low, high, low - 1, high + 1, 0),
        "encodings": ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
        **more,
    }
    return Kind(name=name, storage=storage, **settings)


def _signed(bits: int, **more: Any) -> Kind:
    return _integers(f"int{bits}", getattr(pa, f"int{bits}")(), -(1 << bits - 1), (1 << bits - 1) - 1, **more)


def _unsigned(bits: int, **more: Any) -> Kind:
    return _integers(f"uint{bits}", getattr(pa, f"uint{bits}")(), 0, (1 << bits) - 1, **more)


def _instants(unit: str, *, is_utc: bool = True) -> Kind:
    storage = pa.timestamp(unit, "UTC" if is_utc else None)  # type: ignore[call-overload]  # the stubs list the units
    draw = partial(_integer, -(2**62), 2**62)
    extremes = (-(2**63), 2**63 - 1, 2**63, 0)
    literal = partial(_instant_literal, unit)
    return _integers(str(storage), storage, 0, 0, draw=draw, extremes=extremes, literal=literal)


def _decimals(digits: int, scale: int) -> Kind:
    storage: Any = pa.decimal256(digits, scale) if digits > 38 else pa.decimal128(digits, scale)
    return Kind(
        name=str(storage),
        storage=storage,
        draw=partial(_decimal, digits, scale),
        near=partial(_near_decimal, scale),
        extremes=(Decimal(10) ** digits, -(Decimal(10) ** digits), 0),
        encodings=("DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"),
    )


def _fixed(name: str, storage: Any, width: int, **more: Any) -> Kind:
    settings = {
        "draw": partial(_fixed_bytes, width),
        "near": _near_fixed_bytes,
        "extremes": (bytes(width), b"\xff" * width),
        "encodings": ("DELTA_BYTE_ARRAY",),
    }
    return Kind(name=name, storage=storage, **{**settings, **more})


def _arrays(name: str, dimensions: int, draw: Callable[[int, Random], Any]) -> Kind:
    storage: Any = pa.float64()
    for _ in range(dimensions):
        storage = pa.list_(storage)
    draw_one = partial(draw, dimensions)
    return Kind(
        name=name, storage=storage, draw=draw_one, near=lambda _random, value: value, comparisons=Comparisons.NULLS
    )


_BOOLEAN = Kind(
    name="bool",
    storage=pa.bool_(),
    draw=lambda random: random.random() < 0.5,
    near=lambda _random, value: not value,
    comparisons=Comparisons.EQUALITY,
)
_FLOATS = tuple(
    Kind(
        name=str(storage),
        storage=storage,
        draw=draw,
        near=_near_double,
        extremes=(math.inf, -math.inf, 0.0, -0.0, 0, 10**400),
        encodings=("BYTE_STREAM_SPLIT",),
    )
    for storage, draw in ((pa.float32(), _float), (pa.float64(), _double))
)
_TEXT_ENCODINGS = ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
_STRING = Kind(
    name="string",
    storage=pa.string(),
    draw=_text,
    near=_near_text,
    extremes=("", "\U0010ffff" * 3),
    encodings=_TEXT_ENCODINGS,
)
_BINARY = Kind(
    name="binary",
    storage=pa.binary(),
    draw=_bytes,
    near=_near_bytes,
    extremes=(b"", b"\xff" * 50),
    encodings=_TEXT_ENCODINGS,
)
_UUID = _fixed(
    "uuid",
    pa.uuid(),
    16,
    literal=lambda _random, value: UUID(bytes=value),
)

FOREIGN_KINDS: tuple[Kind, ...] = (
    *map(_signed, (8, 16, 32, 64)),
    *map(_unsigned, (8, 16, 32, 64)),
    *map(_instants, ("ms", "us", "ns")),
    _instants("us", is_utc=False),
    _integers("date32", pa.date32(), -100_000, 100_000),
    _integers(
        "time32", pa.time32("ms"), 0, 86_399_999, near=lambda random, value: (value + random.choice((-1, 1))) % 1000
    ),
    _integers(
        "time64", pa.time64("us"), 0, 86_399_999_999, near=lambda random, value: (value + random.choice((-1, 1))) % 1000
    ),
    _BOOLEAN,
    *_FLOATS,
    _STRING,
    _BINARY,
    *(_decimals(digits, scale) for digits, scale in ((6, 2), (18, 3), (38, 5), (60, 10))),
    _UUID,
    _fixed("fixed16", pa.binary(16), 16, comparisons=Comparisons.EQUALITY),
    _arrays("list", 1, _doubles),
    _arrays("list of lists", 2, _doubles),
)
"""Types of the files of others."""

QUESTDB_KINDS: tuple[Kind, ...] = (
    _signed(8, never_null=True),
    _signed(16, never_null=True),
    _signed(32),
    _signed(64),
    _unsigned(16, questdb_type="CHAR", never_null=True),
    _unsigned(
        32,
        questdb_type="IPv4",
        literal=lambda random, value: (
            IPv4Address(value) if isinstance(value, int) and 0 <= value < 2**32 and random.random() < 0.5 else value
        ),
    ),
    *map(_instants, ("ms", "us", "ns")),
    replace(_BOOLEAN, never_null=True),
    *_FLOATS,
    _STRING,
    replace(_STRING, name="STRING", questdb_type="STRING"),
    replace(_STRING, name="symbol", storage=pa.dictionary(pa.int32(), pa.string())),
    _BINARY,
    *(_decimals(digits, scale) for digits, scale in ((2, 1), (9, 3), (18, 3), (38, 5), (76, 10))),
    _UUID,
    _fixed("long128", pa.binary(16), 16, questdb_type="LONG128", comparisons=Comparisons.EQUALITY),
    _fixed("long256", pa.binary(32), 32, questdb_type="LONG256", comparisons=Comparisons.EQUALITY),
    _integers("geohash", pa.int32(), 0, 2**20 - 1, questdb_type="GEOHASH(4c)"),
    _arrays("double[]", 1, _grid),
    _arrays("double[][]", 2, _grid),
)
"""Types of QuestDB, as ``write_partition`` stores them."""


# --- Random columns: sorted or not, few values or many, NULLs strewn or in runs ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomColumn:
    """A column of a random table."""

    kind: Kind
    values: list[Any]
    """One per row, None for NULL."""
    is_required: bool
    """Whether the file is told that there are no NULLs."""

    def field(self, name: str) -> pa.Field[Any]:
        """Return the Arrow field with which the column is written."""
        metadata = {"questdb.type": self.kind.questdb_type} if self.kind.questdb_type else None
        return pa.field(name, self.kind.storage, nullable=not self.is_required, metadata=metadata)

    def array(self) -> Any:
        """Return the values in the Arrow type in which they are written."""
        storage = self.kind.storage
        if isinstance(storage, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(storage, pa.array(self.values, storage.storage_type))
        if pa.types.is_dictionary(storage):
            return pa.array(self.values, storage.value_type).dictionary_encode()
        if pa.types.is_temporal(storage):
            integers = pa.int32() if storage.bit_width == 32 else pa.int64()
            return pa.array(self.values, integers).view(storage)
        return pa.array(self.values, storage)


def random_column(random: Random, kind: Kind, rows: int) -> RandomColumn:
    """Draw a column of a random pattern: sorted or not, few or many values, NULLs strewn or in runs."""
    values = _PATTERNS[random.choice(tuple(_PATTERNS))](random, kind, rows)
    if not kind.never_null:
        values = random.choice((_keep, _strew_nulls, _null_runs, _keep, _all_null, _strew_nulls))(random, values)
    is_required = kind.never_null or (None not in values and random.random() < 0.2)
    return RandomColumn(kind=kind, values=values, is_required=is_required)


def random_literal(random: Random, column: RandomColumn, present: Sequence[Any]) -> Any:
    """Draw a literal: a value of the column, one close to it, or one far away; sometimes NULL."""
    drawn = random.random()
    if drawn < 0.02:
        return None
    if drawn < 0.15 and column.kind.extremes:
        return column.kind.literal(random, random.choice(column.kind.extremes))
    value = random.choice(present) if present and drawn < 0.85 else column.kind.draw(random)
    if drawn > 0.65:
        value = column.kind.near(random, value)
    return column.kind.literal(random, value)


def _ascending(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (value != value, value))  # noqa: PLR0124 - NaN, last


def _independent(random: Random, kind: Kind, rows: int) -> list[Any]:
    return [kind.draw(random) for _ in range(rows)]


def _few(random: Random, kind: Kind, rows: int) -> list[Any]:
    return random.choices([kind.draw(random) for _ in range(random.randint(1, 6))], k=rows)


def _sorted(random: Random, kind: Kind, rows: int) -> list[Any]:
    values = random.choice((_independent, _few))(random, kind, rows)
    return values if kind.comparisons is Comparisons.NULLS else _ascending(values)


def _descending(random: Random, kind: Kind, rows: int) -> list[Any]:
    return _sorted(random, kind, rows)[::-1]


def _almost_sorted(random: Random, kind: Kind, rows: int) -> list[Any]:
    values = _sorted(random, kind, rows)
    for _ in range(random.randint(1, 5)):
        first, second = random.randrange(rows), random.randrange(rows)
        values[first], values[second] = values[second], values[first]
    return values


def _runs(random: Random, kind: Kind, rows: int) -> list[Any]:
    values: list[Any] = []
    while len(values) < rows:
        values += [kind.draw(random)] * random.choice((1, 10, 50, 200))
    return values[:rows]


_PATTERNS: Mapping[str, Callable[[Random, Kind, int], list[Any]]] = {
    "independent": _independent,
    "few": _few,
    "sorted": _sorted,
    "descending": _descending,
    "almost sorted": _almost_sorted,
    "runs": _runs,
}


def _keep(_random: Random, values: list[Any]) -> list[Any]:
    return values


def _strew_nulls(random: Random, values: list[Any]) -> list[Any]:
    share = random.choice((0.02, 0.3, 0.95))
    return [None if random.random() < share else value for value in values]


def _null_runs(random: Random, values: list[Any]) -> list[Any]:
    result = list(values)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(values))
        stop = min(start + random.choice((5, 40, 150)), len(values))
        result[start:stop] = [None] * (stop - start)
    return result


def _all_null(random: Random, values: list[Any]) -> list[Any]:
    return [None] * len(values) if random.random() < 0.4 else values
